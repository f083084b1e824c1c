"""The gradient coefficient c of a token, ∇L = −Σ_it coefficient_it · c_it · ∇lp_it (docs/ideas.md).

Some methods compare a token with others of its step. So the step also has `ROWS` companion responses of `TOKENS`
tokens, half of them right, on which the policy has not moved. Their entropies have an exponential distribution with
mean `MEAN_ENTROPY`, and each token's log-probability is −H: most tokens are nearly certain, a few are not.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.trial import Evaluation, columns_of, differentiate
from ..core.types import FACTS, Batch, Credit, Policy, Rollouts, Totals

ROWS, TOKENS, GROUP = 256, 16, 8
MEAN_ENTROPY = 0.5  # nats
COPIES = 64  # of the response, for a method that chooses tokens at random

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
    objective: Any, ratio: Numbers, advantage: Numbers, *, old_prob: float = 0.1, entropy: float | None = None,
    old_entropy: float | None = None,
) -> Tensor:  # fmt: skip
    """c of a token for each ratio [R] and advantage [K]: [K, R] float64, by automatic differentiation.

    The token is the only one of its response, so the response's ratio is the token's. As the advantage is an argument,
    methods that differ only in credit have the same c. Rollout and reference policy equal the old one, temperatures are
    1, memories are empty, the token's influence is 1 and its companions' is 0, and the response counts as right if
    A > 0.

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
    old_entropy = entropy_at(0.5) if old_entropy is None else old_entropy
    entropy = old_entropy if entropy is None else entropy
    if not 0 < old_prob <= 1:
        raise TokenPOError(f"coefficients: old_prob = {old_prob} must lie in (0, 1]")
    if not (ratio > 0).all() or float(ratio.max()) * old_prob > 1 + 1e-12:
        raise TokenPOError(f"coefficients: ratios must lie in (0, {1 / old_prob:g}], or p = ratio · old_prob exceeds 1")
    if not (0 <= entropy < math.inf and 0 <= old_entropy < math.inf):
        raise TokenPOError(f"coefficients: entropies must be finite and >= 0, got {entropy:g} and {old_entropy:g} nats")
    # A random choice of tokens is averaged over copies of the response.
    copies = COPIES if getattr(objective, "draws", False) else 1
    rollouts, policy = _step(objective, copies, math.log(old_prob), entropy, old_entropy)
    own, logprob = torch.arange(copies), (math.log(old_prob) + ratio.log()).clamp(max=0.0)
    policies = [dataclasses.replace(policy, logprob=policy.logprob.index_fill(0, own, lp)) for lp in logprob]
    table = []
    for a in advantage:
        reward = rollouts.reward.index_fill(0, own, float(a > 0))
        facts = dataclasses.replace(rollouts, reward=reward)
        credit = objective.prepare(facts)
        given = torch.where(facts.mask[:copies], a, 0.0)
        credit = dataclasses.replace(credit, advantage=torch.cat([given, credit.advantage[copies:]]))
        found = differentiated(objective, facts, credit, policies, own, Totals.of(facts))
        # A token that the aggregation leaves out has coefficient 0.
        coefficient = found.loss.terms["coefficient"]
        c = torch.where(coefficient == 0, 0.0, -found.gradient / coefficient)[:, 0]
        table.append(c.view(len(logprob), copies).mean(1))
    return torch.stack(table)


def _step(
    objective: Any, copies: int, old_logprob: float, entropy: float, old_entropy: float
) -> tuple[Rollouts, Policy]:
    """One optimiser step: `copies` responses of one token, then companions; fields not designed here are neutral."""
    shape = (copies + ROWS, TOKENS)

    def table(own: float, others: Tensor | float) -> Tensor:
        x = torch.zeros(shape, dtype=torch.float64)
        x[:copies, :1], x[copies:] = own, others
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
    return Rollouts.of(known, objective.needs), Policy.of(known, objective.needs)


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
