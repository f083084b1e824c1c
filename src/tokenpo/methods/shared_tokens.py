"""Credit by the token ids that right and wrong responses of a group share."""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.credit import GroupAdvantage, by_group
from ..core.parts.loss import SequenceMean, TokenMean
from ..core.parts.part import CreditStage
from ..core.parts.surrogate import Clip, FixedBounds, LogLikelihood
from ..core.ranges import POSITIVE, Finite, Limit, NotNegative, Positive, TokenId
from ..core.types import Rollouts
from .options import High, Low, Threshold
from .paper import Paper


def fisher(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """The p-value [K] of Fisher's exact test, two-sided, of each table [[a, b], [c, d]]; counts [K] in float64."""
    row, column, n = a + b, a + c, a + b + c + d

    def log_choose(n: Tensor, k: Tensor) -> Tensor:
        return (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()

    k = torch.arange(int(column.amax()) + 1, dtype=a.dtype, device=a.device)[:, None]
    possible = (k <= row) & (k <= column) & (row - k <= n - column)
    log = log_choose(column, k.minimum(column)) + log_choose(n - column, (row - k).clamp(min=0).minimum(n - column))
    observed = log_choose(column, a) + log_choose(n - column, b)
    # Tables as likely as the observed one count; rounding must not part them.
    likelihood = torch.where(possible & (log <= observed + 1e-9), (log - log_choose(n, row)).exp(), 0.0)
    return likelihood.sum(0).clamp(max=1.0)


Weighing = Annotated[NotNegative, "weight of Fisher's test"]
Gain = Annotated[NotNegative, "weight of the information gain; the two weights are not both 0"]
Top = Annotated[Positive, "largest credit of a token id"]
End = Annotated[TokenId | None, "id of the end of text, which gets none; None credits all"]


class KeyTokens(CreditStage):
    """The group's advantage, and the association of each token id with right responses added to it."""

    reads = {"token_ids"}
    alpha: Weighing
    beta: Gain
    top: Top
    threshold: Finite
    end: int | None
    group: GroupAdvantage = GroupAdvantage()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha:
            self.require(beta=POSITIVE.because("as alpha is 0"))

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return by_group(self.of_group, rollouts, bonus)

    def of_group(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """Advantage [N, T] of the rows of one group."""
        mask, ids = rollouts.mask, rollouts.need("token_ids")
        groups = Groups.of(rollouts.group, mask.any(1))
        advantage = self.group.of(groups, rollouts.reward + bonus)[:, None].expand(mask.shape)
        right = groups.valid & (rollouts.reward > self.threshold)
        wrong = groups.valid & ~right
        if not (right.any() and wrong.any()):
            return advantage
        known, place = torch.unique(ids[mask], return_inverse=True)
        count = advantage.new_zeros(len(mask), len(known))
        count.index_put_((mask.nonzero()[:, 0], place), count.new_ones(()), accumulate=True)
        key = self.of_counts(count[right], count[wrong])
        if self.end is not None:
            key = key.masked_fill(known == self.end, 0.0)
        return advantage + masked.unpacked(key[place], mask)

    def of_counts(self, right: Tensor, wrong: Tensor) -> Tensor:
        """k [K] of K token ids, from how often each response has them, [right, K] and [wrong, K]."""
        a, b = ((x > 0).to(x.dtype).sum(0) for x in (right, wrong))
        c, d = len(right) - a, len(wrong) - b
        n = len(right) + len(wrong)
        p = fisher(a, b, c, d)
        test = torch.where(p < 1 - 1e-9, (-2 * p).exp(), 0.0)
        gain = _bits(a + c, b + d) - (a + b) / n * _bits(a, b) - (c + d) / n * _bits(c, d)
        own, other = right.sum(), wrong.sum()
        up, down = (_saturated(x.sum(0) / size, size / (own + other)) for x, size in ((right, own), (wrong, other)))
        effect = (a / (a + c)).sqrt().asin() - (b / (b + d)).sqrt().asin() + up / (down + 1e-5) - down / (up + 1e-5)
        return self.top * ((self.alpha * test + self.beta * gain) * effect / (2 * (self.alpha + self.beta))).tanh()


def _bits(x: Tensor, y: Tensor) -> Tensor:
    """Entropy in bits of the shares of x and y; 0 if both are 0."""
    share = torch.stack([x, y]) / (x + y).clamp(min=1)
    return torch.special.entr(share).sum(0) / torch.log(share.new_tensor(2.0))


def _saturated(frequency: Tensor, share: Tensor) -> Tensor:
    """BM25's term frequency, k1 = 2 and b = 1/2; `share` is the class's share of the tokens of both."""
    return 3 * frequency / (frequency + 1 + 2 * share)


@Paper(
    "KTAE: A Model-Free Algorithm to Key-Tokens Advantage Estimation in Mathematical Reasoning",
    "2505.16826",
    "code",
    code="xiaolizh1/KTAE@ea9fb77:verl/workers/actor/compute_key_tokens.py; "
    "xiaolizh1/KTAE@ea9fb77:verl/trainer/ppo/core_algos.py",
)
def ktae(
    *,
    alpha: Weighing = 1.0,
    beta: Gain = 1.0,
    top: Top = 1.0,
    threshold: Threshold = 0.0,
    end: End = None,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Adds to the advantage how much each token id goes with right responses of the group.

        a, b = right and wrong responses of the group that contain v;   c, d = those that do not
        F  = exp(−2 p), 0 where p = 1;   p of Fisher's exact test of [[a, b], [c, d]], two-sided
        IG = entropy of right or wrong, bits, less what is left of it once one knows whether v appears
        f_y = 3 q_y / (q_y + 1 + n_y / n̄),   q_y the share of v in the n_y tokens of y: + right, − wrong; n̄: mean n_y
        x  = asin √(a/(a+c)) − asin √(b/(b+d)) + f₊/(f₋ + 1e-5) − f₋/(f₊ + 1e-5)
        k_v = top · tanh((alpha F + beta IG) x / (2 (alpha + beta)));   A_it = A_i + k_v of its token
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    A_i is GRPO's. A group without right or without wrong responses has k = 0.
    Defaults: alpha, beta and top 1, as the authors' estimator sets them whatever their scripts say; clip 0.2/0.2.
    Departures: their k is 0 at one model's end of text (151643): end=ID.
    Note: a token id of one class only has k = ±top, whatever F and IG are. A no longer sums to 0.
    Reductions: where no id goes with either class, k is 0 and the loss is DAPO's with that clip.
    """
    credit = KeyTokens(alpha, beta, top, threshold, end)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean())


Strength = Annotated[NotNegative, "weight of a conflict token of a right response"]
Cost = Annotated[NotNegative, "advantage per nat of a response's mean entropy that is subtracted"]
Most = Annotated[Limit, "mean entropy, nats, above which a response is dropped"]


class Conflicts(CreditStage):
    """The group's centred advantage less the entropy's cost, weighted where right and wrong responses share tokens."""

    strength: Strength
    cost: Cost
    most: Most
    group: GroupAdvantage = GroupAdvantage(std=False)

    @property
    def reads(self) -> set[str]:
        return {"token_ids"} | ({"old_entropy"} if self.cost or self.most < math.inf else set())

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return by_group(self.of_group, rollouts, bonus)

    def of_group(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """Advantage [N, T] of the rows of one group."""
        mask, groups = rollouts.mask, Groups.of(rollouts.group, rollouts.mask.any(1))
        advantage = self.group.of(groups, rollouts.reward + bonus)[:, None]
        place = mask.cumsum(1) - 1
        shared = self.shared(rollouts, place, advantage)
        begins = shared & ((mask & ~shared).cumsum(1) == 0)
        shared = self.shared(rollouts, mask.sum(1, keepdim=True) - 1 - place, advantage)
        ends = shared & ((mask & ~shared).flip(1).cumsum(1).flip(1) == 0)
        weight = torch.where(advantage < 0, 0.0, self.strength)
        weight = torch.where(begins, weight, 1.0) * torch.where(ends, weight, 1.0)
        if "old_entropy" in self.reads:
            entropy = masked.mean(rollouts.need("old_entropy").double(), mask, dim=1)
            advantage = torch.where(entropy <= self.most, advantage - self.cost * entropy, 0.0)
        return weight * advantage / (begins | ends).sum(1, keepdim=True).clamp(min=1)

    @staticmethod
    def shared(rollouts: Rollouts, place: Tensor, advantage: Tensor) -> Tensor:
        """[N, T] bool, tokens whose id occurs at their place in responses of both signs; 0 has none."""
        mask, sign = rollouts.mask, advantage.expand(rollouts.mask.shape)[rollouts.mask]
        keys = torch.stack([place, rollouts.need("token_ids")])[:, mask]
        _, key = torch.unique(keys, dim=1, return_inverse=True)
        seen = torch.zeros(2, len(key), dtype=torch.bool, device=mask.device)
        seen[0, key[sign > 0]] = seen[1, key[sign < 0]] = True
        return masked.unpacked(seen.all(0)[key] & (sign != 0), mask)


@Paper(
    "GTPO: Stabilizing Group Relative Policy Optimization via Gradient and Entropy Control",
    "2508.03772",
    "code",
    code="winstonsmith1897/GTPO@5d33811:gtpo/gtpo_training.py",
)
def gtpo_conflict(*, strength: Strength = 2.0, cost: Cost = 0.1, most: Most = 0.7) -> Objective:
    """Spares the tokens that right and wrong responses begin or end with, and drops responses of high entropy.

        conflict: the token's place and id occur in responses of A > 0 and of A < 0 of the group,
                  and so do those of all tokens before it (places from the start) or behind it (from the end)
        w_it = 0 in conflict where A_i < 0, strength where A_i > 0 (its square in both runs), 1 elsewhere
        A_it = w_it (R_i − mean_g R − cost H̄_i) · 1[H̄_i ≤ most] / max(1, conflict tokens of i)
        J = 1/N Σ_i 1/|o_i| Σ_t A_it lp_it,   H̄_i the mean of H_old over the response

    The wrong responses no longer unlearn the format and the opening that right ones share.
    Defaults: 2, 0.1 and 0.7 nats, about ln 2 (code).
    Departures: the authors' code takes the current policy's entropies, and sums over responses. Their paper keeps the
    entropy's bound off where the first policy is above it.
    Notes: this is not `gtpo`, the GTPO of 2508.04349. A group of equal rewards still pays for its entropy.
    Reductions: strength = 1, cost = 0 and most = ∞ is, without conflict tokens, Dr. GRPO's policy gradient.
    """
    return Objective(Conflicts(strength, cost, most), LogLikelihood(), SequenceMean())
