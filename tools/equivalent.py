"""The mutants that change nothing: no test can tell them from the code, and here is why."""

from __future__ import annotations

# (file, line before, line after) -> why no test can tell them apart.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "ops/entropy_score.py",
        "safe = torch.where(spread > 0, spread, 1.0)",
        "safe = torch.where(spread > 0, spread, (2.0))",
    ): "without spread every raw value is 0, whatever it is divided by",
    (
        "ops/entropy_score.py",
        "return torch.where(z > 0, _over(z, scale.top), below if negative_is_positive else -below)",
        "return torch.where((z >= 0), _over(z, scale.top), below if negative_is_positive else -below)",
    ): "0 over either end is 0",
    (
        "ops/masked.py",
        'if bits is None or x.device.type != "cpu":',
        "if bits is None or (x.device.type == 'cpu'):",
    ): "the choice is the same number, more slowly",
    (
        "ops/ratio.py",
        "bounded = x.detach().clamp(-BOUND, BOUND)",
        "bounded = (x).clamp(-BOUND, BOUND)",
    ): "`sloped` sends no gradient to its value",
    (
        "stages/credit.py",
        "centred = reward.double() - mean",
        "centred = (reward) - mean",
    ): "the mean is float64, so the difference is too",
    (
        "stages/shaping.py",
        "accuracy = winners.size() / everyone.size().clamp(min=1)",
        "accuracy = winners.size() / (everyone.size())",
    ): "0/0 only where nobody is right, and there the penalty is 0 whatever the accuracy",
    (
        "stages/shaping.py",
        "accuracy = winners.size() / everyone.size().clamp(min=1)",
        "accuracy = winners.size() / everyone.size().clamp(min=(2))",
    ): "a response alone in its group is never longer than its own target",
    (
        "stages/shaping.py",
        "target = torch.maximum((low + high) / 2, winners.sum(length) / winners.size().clamp(min=1))",
        "target = torch.maximum((low + high) / 2, winners.sum(length) / (winners.size()))",
    ): "0/0 only where nobody is right, and there the penalty is 0 whatever the target",
    (
        "stages/shaping.py",
        "target = torch.maximum((low + high) / 2, winners.sum(length) / winners.size().clamp(min=1))",
        "target = torch.maximum((low + high) / 2, winners.sum(length) / winners.size().clamp(min=(2)))",
    ): "of one winner, (low + high)/2 is its length already",
    (
        "stages/shaping.py",
        "excess = ((length - target) / target).clamp(0.0, 1.0)",
        "excess = ((length - target) / target).clamp(0.0, (2.0))",
    ): "no winner exceeds twice (low + high)/2 > high/2",
    (
        "methods/aspo.py",
        "still = ratio.detach()",
        "still = (ratio)",
    ): "a graph that nobody follows: the slope is handed over beside the value",
    (
        "methods/dppo.py",
        "returning = torch.where(batch.credit.advantage > 0, here <= there, here >= there)",
        "returning = torch.where(batch.credit.advantage > 0, (here < there), here >= there)",
    ): "what has not moved has no divergence, and is inside",
    (
        "methods/dppo.py",
        "returning = torch.where(batch.credit.advantage > 0, here <= there, here >= there)",
        "returning = torch.where(batch.credit.advantage > 0, here <= there, (here > there))",
    ): "what has not moved has no divergence, and is inside",
    (
        "methods/dppo.py",
        "returning = torch.where(batch.credit.advantage > 0, here <= there, here >= there)",
        "returning = torch.where((batch.credit.advantage >= 0), here <= there, here >= there)",
    ): "without advantage the surrogate is 0 on either side, and nothing is cut off",
    (
        "methods/dapo.py",
        "if overlong_length is not None and overlong_cache is not None:",
        "if (overlong_length is not None or overlong_cache is not None):",
    ): "one without the other is refused above",
    (
        "methods/dppo.py",
        "logprob = batch.policy.logprob.detach()",
        "logprob = (batch.policy.logprob)",
    ): "what is made of it is a choice, which has no gradient",
    (
        "methods/dppo.py",
        "x = self.anchor(batch).detach().log()",
        "x = (self.anchor(batch)).log()",
    ): "what is made of it is a choice, which has no gradient",
    (
        "methods/gtpo.py",
        "sets = [(everyone & right[:, None], entropy, 1.0), (everyone & ~right[:, None], 1 / entropy, -1.0)]",
        "sets = [(everyone & right[:, None], entropy, 1.0), (everyone & ~right[:, None], (2) / entropy, -1.0)]",
    ): "a share of the sum does not change when all are doubled",
    (
        "methods/gtpo.py",
        "return sign * (self.base + self.share * count * x / groups.sum(x).clamp(min=FLOOR))",
        "return sign * (self.base + self.share * count * x / (groups.sum(x)))",
    ): "0/0 only where nobody is alive, and there the reward is 0",
    (
        "methods/gtpo.py",
        "mean = groups.sum(r.sum(1))[:, None] / size.clamp(min=1)",
        "mean = groups.sum(r.sum(1))[:, None] / (size)",
    ): "0/0 only where the collection is empty, and there nothing is read",
    (
        "ops/entropy_score.py",
        "return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, raw.min().clamp(max=0) / safe)",
        "return EntropyScale(pivot, spread, (raw.max()) / safe, raw.min().clamp(max=0) / safe)",
    ): "the pivot is one of the values: the largest lies at or above it, the smallest at or below",
    (
        "ops/entropy_score.py",
        "return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, raw.min().clamp(max=0) / safe)",
        "return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, (raw.min()) / safe)",
    ): "the pivot is one of the values: the largest lies at or above it, the smallest at or below",
    (
        "ops/entropy_score.py",
        "return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, raw.min().clamp(max=0) / safe)",
        "return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, raw.min().clamp(max=(1)) / safe)",
    ): "the pivot is one of the values: the largest lies at or above it, the smallest at or below",
    (
        "methods/gtpo.py",
        "mean = groups.sum(r.sum(1))[:, None] / size.clamp(min=1)",
        "mean = groups.sum(r.sum(1))[:, None] / size.clamp(min=(2))",
    ): "r is measured from the smallest value: a collection of one is 0, whatever it is divided by",
    (
        "methods/gtpo.py",
        "lost = -self.base - self.share * self.shares(losers, 1 / mean)",
        "lost = -self.base - self.share * self.shares(losers, (2) / mean)",
    ): "shares are relative: a factor on all of them cancels",
    (
        "methods/gtpo.py",
        "return masked.mean(entropy, rollouts.mask, 1)[:, 0].clamp(min=FLOOR)",
        "return (masked.mean(entropy, rollouts.mask, 1)[:, 0])",
    ): "only a row without tokens has a mean of 0, and it is in no group",
    (
        "methods/gtpo.py",
        "count = members.size().clamp(min=1)",
        "count = (members.size())",
    ): "an empty set has no member that reads its share",
    (
        "methods/vespo.py",
        "phi = torch.where(advantage < 0, self.negative(log_weight), self.positive(log_weight))",
        "phi = torch.where((advantage <= 0), self.negative(log_weight), self.positive(log_weight))",
    ): "without advantage the surrogate is 0 under either weight, and nothing is cut off",
    (
        "ops/head.py",
        "if w.shape[1] < 2 * hidden.shape[1]:",
        "if (w.shape[1] <= 2 * hidden.shape[1]):",
    ): "which side is scaled changes time and rounding alone",
    (
        "ops/head.py",
        "if w.shape[1] < 2 * hidden.shape[1]:",
        "if w.shape[1] < (3) * hidden.shape[1]:",
    ): "which side is scaled changes time and rounding alone",
    (
        "ops/softmax.py",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, 2**26",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**(18), 2**26",
    ): "the size of a block, which changes time and memory alone",
    (
        "ops/softmax.py",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, 2**26",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = (3)**17, 2**26",
    ): "the size of a block, which changes time and memory alone",
    (
        "ops/softmax.py",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, 2**26",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, 2**(27)",
    ): "the size of a block, which changes time and memory alone",
    (
        "ops/softmax.py",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, 2**26",
        "_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, (3)**26",
    ): "the size of a block, which changes time and memory alone",
    (
        "ops/ratio.py",
        "ratio = geometric(log_ratios.detach(), mask)",
        "ratio = geometric((log_ratios), mask)",
    ): "a value whose slope is handed over has no other gradient",
    (
        "ops/ratio.py",
        "x = (logprob - old_logprob).detach()",
        "x = (logprob - old_logprob)",
    ): "a value whose slope is handed over has no other gradient",
    (
        "ops/covariance.py",
        "_PLACES = 2**15",
        "_PLACES = 2**(16)",
    ): "the size of a block, which changes time and memory alone",
    (
        "ops/covariance.py",
        "_PLACES = 2**15",
        "_PLACES = (3)**15",
    ): "the size of a block, which changes time and memory alone",
    (
        "ops/covariance.py",
        "return advantage.detach().sum() / max(1, count), logprob.detach().sum() / max(1, count)",
        "return advantage.detach().sum() / max((2), count), logprob.detach().sum() / max(1, count)",
    ): "of a token alone the other factor is 0",
    (
        "ops/covariance.py",
        "return advantage.detach().sum() / max(1, count), logprob.detach().sum() / max(1, count)",
        "return advantage.detach().sum() / max(1, count), logprob.detach().sum() / max((2), count)",
    ): "of a token alone the other factor is 0",
    (
        "ops/softmax.py",
        "peak, s, mean, *moments = by(logits, scale, out, 5 if drift else 3)",
        "peak, s, mean, *moments = by(logits, scale, out, (6) if drift else 3)",
    ): "a place more that nobody fills or reads",
    (
        "ops/softmax.py",
        "moved = (moments[1] - mean * moments[0]).mul_(_LN2) if drift else peak.new_empty(0, 1)",
        "moved = (moments[1] - mean * moments[0]).mul_(_LN2) if drift else peak.new_empty(0, (2))",
    ): "empty either way",
    ("ops/softmax.py", "FLOOR = -1e4", "FLOOR = -(20000.0)"): "the probability is 0 from about -1075 on",
    (
        "stages/surrogate.py",
        "return bound if torch.is_tensor(bound) else like.new_tensor(bound)",
        "return (bound if not torch.is_tensor(bound) else like.new_tensor(bound))",
    ): "clamp takes two numbers as it takes two tensors",
    (
        "fused/work.py",
        "tensors = hidden.detach(), head.detach(), _detached(bias), target, scale",
        "tensors = (hidden), head.detach(), _detached(bias), target, scale",
    ): "they are read without gradients alone",
    (
        "fused/work.py",
        "tensors = hidden.detach(), head.detach(), _detached(bias), target, scale",
        "tensors = hidden.detach(), (head), _detached(bias), target, scale",
    ): "they are read without gradients alone",
    (
        "fused/work.py",
        "buffer = self.hidden.new_empty(min(self.chunk, at.stop - at.start), len(self.head))",
        "buffer = self.hidden.new_empty(min(self.chunk, (at.stop + at.start)), len(self.head))",
    ): "it starts at 0, or is longer than a chunk",
    (
        "fused/work.py",
        "if objective.entropy_gradient and policy.entropy is not None:",
        "if (objective.entropy_gradient or policy.entropy is not None):",
    ): "who declares no gradient through the entropy sends none",
    (
        "blocks.py",
        '_PLACES = {"cpu": 2**16}',
        '_PLACES = {"cpu": (3)**16}',
    ): "the size of a block, which changes time and memory alone",
    (
        "blocks.py",
        '_PLACES = {"cpu": 2**16}',
        '_PLACES = {"cpu": 2**(17)}',
    ): "the size of a block, which changes time and memory alone",
    (
        "blocks.py",
        "_PLACES_ELSEWHERE = 2**22",
        "_PLACES_ELSEWHERE = (3)**22",
    ): "the size of a block, which changes time and memory alone",
    (
        "blocks.py",
        "_PLACES_ELSEWHERE = 2**22",
        "_PLACES_ELSEWHERE = 2**(23)",
    ): "the size of a block, which changes time and memory alone",
    (
        "blocks.py",
        "if size >= n:",
        "if (size > n):",
    ): "one block of all rows",
    (
        "blocks.py",
        "order = rollouts.group.argsort(stable=True)",
        "order = rollouts.group.argsort(stable=(False))",
    ): "each row's credit is put back where it stands; another order inside a group would be another rounding",
    (
        "ops/group.py",
        "return x.new_zeros(self.count + 1, *x.shape[1:]).index_add_(0, index, x)[self.index]",
        "return x.new_zeros(self.count + (2), *x.shape[1:]).index_add_(0, index, x)[self.index]",
    ): "one more group that nobody reads",
}
