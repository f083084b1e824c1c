"""The gradient coefficient c of a token: how strongly any loss changes its log-probability.

    ∇L = −Σ_it coefficient_it · c_it · ∇lp_it

c is the loss's gradient divided by the aggregation's coefficient. It includes weights and penalties, but no gradient
through the entropy. It is A at ratio 1, and 0 where a token is clipped.

Some methods compare a token with other tokens of its step. So the step also has `ROWS` companion responses of `TOKENS`
tokens. Half of them are right, and the policy has not moved on them. Their entropies have an exponential distribution
with mean `MEAN_ENTROPY`, and each token's log-probability is −H: most tokens are nearly certain, a few are not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.trial import Evaluation, columns_of, differentiate
from ..core.types import FACTS, Batch, Credit, Policy, Rollouts, Totals

ROWS, TOKENS, GROUP = 256, 16, 8
MEAN_ENTROPY = 0.5  # nats
# For a method that chooses tokens at random, c is the mean over this number of copies of the response.
COPIES = 64

Numbers = Tensor | Sequence[float]


def entropy_at(quantile: float) -> float:
    """This quantile of the companions' entropies, nats.

    >>> entropy_at(0.0), round(entropy_at(0.5), 3), round(entropy_at(0.8), 3)
    (0.0, 0.347, 0.805)
    """
    if not 0 <= quantile < 1:
        raise TokenPOError(f"entropy_at: quantile = {quantile} must lie in [0, 1)")
    return -MEAN_ENTROPY * math.log1p(-quantile)


def coefficients(
    objective: Any, ratio: Numbers, advantage: Numbers, *, old_prob: float = 0.1,
    entropy: float | Numbers | None = None, old_entropy: float | Numbers | None = None,
) -> Tensor:  # fmt: skip
    """c of a token for each ratio [R] and advantage [K]: [K, R] float64, by automatic differentiation.

    The token is the only one of its response, so the response's ratio is the token's. Entropies of shape [E] make it a
    response of E tokens with the same ratio and advantage, for methods that take a quantile over the response; the
    result is [E, K, R], one table per token. With scope "batch" the E tokens are in the same step.

    As the advantage is an argument, methods that differ only in credit have the same c. Rollout and reference policy
    equal the old one, temperatures are 1, memories are empty, the token's influence is 1 and its companions' is 0, and
    the response counts as right if A > 0.

    Args:
        objective: anything with `needs`, `prepare` and `loss` (and `observe`, with scope "batch").
        ratio: p / p_old > 0.
        advantage: advantage of the token.
        old_prob: p_old in (0, 1]; ratio · old_prob must not exceed 1.
        entropy: of the current policy, nats; None takes the old policy's.
        old_entropy: of the old policy, nats; None takes the companions' median.

    Raises:
        TokenPOError: an axis is not flat, finite and non-empty, a probability outside (0, 1], or an entropy negative.

    >>> from tokenpo.methods import method
    >>> coefficients(method("grpo"), [0.5, 1.0, 1.5], [1.0, -1.0])
    tensor([[ 0.5000,  1.0000,  0.0000],
            [ 0.0000, -1.0000, -1.5000]], dtype=torch.float64)
    """
    ratio, advantage = _axis("ratio", ratio), _axis("advantage", advantage)
    if not 0 < old_prob <= 1:
        raise TokenPOError(f"coefficients: old_prob = {old_prob} must lie in (0, 1]")
    if not (ratio > 0).all() or float(ratio.max()) * old_prob > 1 + 1e-12:
        raise TokenPOError(f"coefficients: ratios must lie in (0, {1 / old_prob:g}], or p = ratio · old_prob exceeds 1")
    old_entropy = entropy_at(0.5) if old_entropy is None else old_entropy
    old, now = (_entropies(x) for x in (old_entropy, old_entropy if entropy is None else entropy))
    if old.dim() and now.dim() and len(old) != len(now):
        raise TokenPOError(f"coefficients: entropy has {len(now)} tokens, old_entropy {len(old)}: give the same number")
    response = max(old, now, key=Tensor.dim)
    step = _Step.of(objective, math.log(old_prob), now.expand_as(response), old.expand_as(response))
    logprob = (math.log(old_prob) + ratio.log()).clamp(max=0.0)
    table = torch.stack([step.coefficients(a, logprob) for a in advantage])
    return table.permute(2, 0, 1) if response.dim() else table[..., 0]


@dataclass(frozen=True, eq=False)
class _Step:
    """One optimiser step: the response in the first `copies` rows and `tokens` columns, then its companions."""

    objective: Any
    rollouts: Rollouts
    policy: Policy
    copies: int
    tokens: int

    @staticmethod
    def of(objective: Any, old_logprob: float, entropy: Tensor, old_entropy: Tensor) -> _Step:
        """The step with exactly the fields that the objective needs; fields that are not designed here are neutral."""
        copies, tokens = COPIES if getattr(objective, "draws", False) else 1, max(entropy.numel(), 1)
        shape = (copies + ROWS, max(TOKENS, tokens))

        def table(own: Tensor | float, others: Tensor | float) -> Tensor:
            x = torch.zeros(shape, dtype=torch.float64)
            x[:copies, :tokens], x[copies:, :TOKENS] = own, others
            return x

        # A stride of about the golden ratio spreads every response over all quantiles, without randomness.
        ranks = (torch.arange(ROWS * TOKENS) * 2531 % (ROWS * TOKENS)).view(ROWS, TOKENS)
        spread = -MEAN_ENTROPY * torch.log1p(-(ranks.double() + 0.5) / ranks.numel())
        old = table(old_logprob, -spread)
        row = torch.arange(shape[0])
        right = (row % 2).double()  # right and wrong responses alternate, so that every group has both
        # With an influence of 0 everywhere, a threshold on it would drop every token.
        known = {
            "mask": table(1.0, 1.0).bool(), "reward": right, "group": row // GROUP, "old_logprob": old, "logprob": old,
            "old_entropy": table(old_entropy, spread), "entropy": table(entropy, spread), "prompt_logprob": old[:, 0],
            "token_ids": torch.arange(old.numel()).view(shape), "influence": table(1.0, 0.0),
            "rewards": right[:, None].expand(-1, columns_of(objective, 1)),
        }  # fmt: skip
        for name in FACTS.keys() - known.keys():
            neutral = FACTS[name].neutral
            like = old[:, 0] if FACTS[name].shape == "[N]" else old
            x = known[neutral] if isinstance(neutral, str) else torch.full_like(like, neutral)
            known[name] = x.long() if FACTS[name].kind.whole else x
        rollouts, policy = Rollouts.of(known, objective.needs), Policy.of(known, objective.needs)
        return _Step(objective, rollouts, policy, copies, tokens)

    def coefficients(self, advantage: Tensor, logprob: Tensor) -> Tensor:
        """c [R, E] for one advantage [] and each current log-probability [R] of the response's tokens."""
        reward = self.rollouts.reward.clone()
        reward[: self.copies] = (advantage > 0).double()
        rollouts = dataclasses.replace(self.rollouts, reward=reward)
        credit = self.objective.prepare(rollouts)
        advantages = credit.advantage.clone()
        advantages[: self.copies] = torch.where(rollouts.mask[: self.copies], advantage, 0.0)
        credit = dataclasses.replace(credit, advantage=advantages)
        own = torch.arange(self.copies)
        moved = [self.policy.logprob.index_fill(0, own, lp) for lp in logprob]
        policies = [dataclasses.replace(self.policy, logprob=lp) for lp in moved]
        step = differentiated(self.objective, rollouts, credit, policies, own, Totals.of(rollouts))
        coefficient = step.loss.terms["coefficient"]
        # Padding, and tokens that the aggregation leaves out, have coefficient 0.
        c = torch.where(coefficient == 0, 0.0, -step.gradient / coefficient)[:, : self.tokens]
        return c.reshape(len(logprob), self.copies, self.tokens).mean(1)


def differentiated(
    objective: Any, rollouts: Rollouts, credit: Credit, policies: Sequence[Policy], rows: Tensor, totals: Totals,
    seeds: Sequence[int] = (0,),
) -> Evaluation:  # fmt: skip
    """The loss of these rows of a step, with its gradients, under each of the current policies in turn; all at once."""
    if getattr(objective, "scope", "row") == "batch":
        steps = [(policy, torch.Generator().manual_seed(seed)) for policy in policies for seed in seeds]
        batches = [objective.observe(Batch(rollouts, credit, policy), draws).rows(rows) for policy, draws in steps]
    else:
        batches = [Batch(rollouts.rows(rows), credit.rows(rows), policy.rows(rows)) for policy in policies]
    parts = [vars(batch.policy) for batch in batches]
    policy = {name: torch.cat([part[name] for part in parts]) for name, x in parts[0].items() if x is not None}
    credit = Credit.joined([batch.credit for batch in batches])
    return differentiate(objective, rollouts.rows(rows.repeat(len(batches))), credit, Policy(**policy), totals)


def _axis(name: str, values: Numbers) -> Tensor:
    x = torch.as_tensor(values, dtype=torch.float64).detach()
    if x.dim() != 1 or not x.numel() or not torch.isfinite(x).all():
        raise TokenPOError(f"coefficients: {name} must be a flat list of finite numbers, got shape {list(x.shape)}")
    return x


def _entropies(values: float | Numbers) -> Tensor:
    x = torch.as_tensor(values, dtype=torch.float64).detach()
    if x.dim() > 1 or not x.numel() or not (torch.isfinite(x) & (x >= 0)).all():
        raise TokenPOError("coefficients: entropies must be finite and >= 0, one number or a flat list of them, nats")
    return x
