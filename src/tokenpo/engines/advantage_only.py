"""Hosts whose losses are handed advantages [N, T] and log-probabilities, and nothing else of the rollout batch."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..base.errors import Unsupported
from ..core.negotiation import negotiate
from ..core.objective import Objective
from ..core.parts import TokenMean
from ..core.trial import example
from ..core.types import Batch, Credit, Policy, Rollouts, Totals

REMEDY = "choose another method, or train with the embedded engine, TRL or verl"
_SCALE = 2.0**-10


def require_handed(objective: Objective, provides: frozenset[str], host: str) -> None:
    """Refuses an objective whose loss wants more.

    Args:
        provides: inputs that the host has beside advantages and log-probabilities, old and new.
        host: what messages call it.

    Raises:
        Unsupported: naming method, what stands in the way, host and remedy.
    """
    negotiate(objective, provides, host, dict.fromkeys(objective.needs, REMEDY))
    signals = objective.prepare(_trial(objective)[0]).signals
    obstacles = {
        "makes several passes over a batch": len(objective.split()) > 1,
        "remembers earlier batches": bool(objective.memories),
        "looks at a whole update before its losses": objective.scope == "batch",
        f"takes {', '.join(map(str, signals))} of whole batches into its loss": bool(signals),
    }
    for what in (what for what, stands in obstacles.items() if stands):
        raise Unsupported(f"{objective.name} {what}, and {host} hands a loss no more than advantages: {REMEDY}")


def require_proportional(objective: Objective, host: str) -> None:
    """Refuses an objective whose loss does not follow its advantages in proportion, tried on an example.

    Raises:
        Unsupported: a penalty stands beside them, or a bound depends on their size.
    """
    rollouts, policy = _trial(objective)
    credit, whole = objective.prepare(rollouts), Totals.of(rollouts)

    def value(scale: float) -> Tensor:
        return objective.loss(Batch(rollouts, Credit(credit.advantage * scale), policy), whole).value

    if not torch.isclose(value(_SCALE), value(1.0) * _SCALE, rtol=1e-9):
        raise Unsupported(
            f"the loss of {objective.name} is not proportional to its advantages, into which {host} multiplies "
            f"denominators: {REMEDY}"
        )


def require_reward_credit(objective: Objective, host: str) -> None:
    """Refuses an objective whose credit depends on old log-probabilities, tried on an example.

    Raises:
        Unsupported: it does.
    """
    rollouts, _ = _trial(objective)
    other = Rollouts(**{**vars(rollouts), "old_logprob": rollouts.old_logprob * 2})
    if not torch.equal(objective.prepare(rollouts).advantage, objective.prepare(other).advantage):
        raise Unsupported(
            f"the credit of {objective.name} reads old log-probabilities, which {host} does not hand over where "
            f"advantages are made: {REMEDY}"
        )


def bare(mask: Tensor, old_logprob: Tensor, **others: Tensor | None) -> Rollouts:
    """Rows [N, T] of which the host hands over no reward and no group."""
    rows = len(mask)
    return Rollouts(
        mask=mask.bool(),
        reward=old_logprob.new_zeros(rows),
        group=torch.arange(rows, device=mask.device),
        old_logprob=old_logprob,
        **others,
    )


def summed(objective: Objective, rollouts: Rollouts, credit: Credit, logprob: Tensor) -> tuple[Tensor, Tensor]:
    """The loss as a sum over tokens, which the host divides; and of each token whether the clip holds it."""
    whole = dataclasses.replace(objective, aggregate=TokenMean())
    loss = whole.loss(Batch(rollouts, credit, Policy(logprob)), Totals(1.0, 1.0, 1.0))
    return loss.value, loss.terms["clipped"][rollouts.mask].float()


def _trial(objective: Objective) -> tuple[Rollouts, Policy]:
    inputs = example()
    return Rollouts(**inputs.rollouts).only(objective.needs), Policy(**inputs.policy).only(objective.needs)
