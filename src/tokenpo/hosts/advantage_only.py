"""Checks and helpers for hosts that give a loss only advantages [N, T] and log-probabilities [N, T]."""

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.learner import Learner
from ..core.negotiation import missing
from ..core.objective import Objective
from ..core.ops import turns
from ..core.ops.group import numbered
from ..core.parts import TokenMean
from ..core.trial import example
from ..core.types import Batch, Credit, Policy, Rollouts, Totals

# The optional inputs that TRL has, and verl too.
_THEIRS = frozenset({"entropy", "old_entropy", "ref_logprob", "rollout_logprob", "temperature", "token_ids", "turn"})
_SCALE = 2.0**-10


def remedy(objective: Objective) -> str:
    """The trainers that have every input of the objective, in words."""
    if "value" in objective.needs and objective.critic is None:
        return "choose another method"
    theirs = objective.needs <= _THEIRS
    others = ", TRL or verl" if theirs else " (tokenpo train)"
    return f"choose another method, or train with the embedded engine{others}"


def unfit(
    objective: Objective,
    provides: frozenset[str],
    host: str,
    *,
    proportional: bool = False,
    credit: bool = False,
    instead: str = "",
) -> Iterator[str]:
    """Yields a sentence for each need of the loss beyond advantages, log-probabilities and the inputs in `provides`.

    Args:
        proportional: the loss has to be proportional to the advantages; tested on an example.
        credit: the host makes advantages of rewards alone, without old log-probabilities; tested on an example.
        instead: the remedy in the message; if empty, that of `remedy`.
    """
    instead = instead or remedy(objective)
    if lacks := [*missing(objective, provides, host, dict.fromkeys(objective.needs, instead))]:
        yield from lacks
        return
    rollouts, _ = _trial(objective)
    prepared = objective.prepare(rollouts)
    obstacles = {
        "makes several passes over a batch": len(objective.split()) > 1,
        "remembers earlier batches": bool(objective.memories),
        "looks at a whole update before its losses": objective.scope == "batch",
        f"takes {', '.join(map(str, prepared.signals))} of whole batches into its loss": bool(prepared.signals),
    }
    for obstacle in (words for words, applies in obstacles.items() if applies):
        yield f"{objective.name} {obstacle}, and {host} hands a loss no more than advantages: {instead}"
    if proportional and not any(obstacles.values()):
        yield from unproportional(objective, host)
    moved = dataclasses.replace(rollouts, old_logprob=rollouts.old_logprob * 2)
    if credit and not torch.equal(prepared.advantage, objective.prepare(moved).advantage):
        yield (
            f"the credit of {objective.name} reads old log-probabilities, which {host} does not hand over where "
            f"advantages are made: {instead}"
        )


def unproportional(objective: Objective, host: str) -> Iterator[str]:
    """Yields a sentence if the loss is not proportional to the advantages; tested on an example."""
    rollouts, policy = _trial(objective)
    advantage, totals = objective.prepare(rollouts).advantage, Totals.of(rollouts)

    def value(scale: float) -> Tensor:
        return objective.loss(Batch(rollouts, Credit(advantage * scale), policy), totals).value

    if not torch.isclose(value(_SCALE), value(1.0) * _SCALE, rtol=1e-9):
        yield (
            f"the loss of {objective.name} is not proportional to its advantages, into which {host} multiplies "
            f"denominators: {remedy(objective)}"
        )


def unaged(objective: Objective, host: str) -> Iterator[str]:
    """Yields a sentence if the loss is biased on responses of an older policy, as asynchronous hosts have them."""
    if objective.assumes_on_policy and not objective.corrects_rollout:
        yield (
            f"{objective.name} takes the policy for the one that sampled ({objective.assumes_on_policy[0]}), and "
            f"{host} trains on older responses: take a method with a ratio, such as dapo"
        )


def sampler_alone(objective: Objective, host: str) -> Iterator[str]:
    """Yields a sentence if a part compares the old policy with the sampler, whose log-probabilities stand for both."""
    if idle := objective.idle_as_sampled:
        yield (
            f"{objective.name} compares the old policy with the one that sampled ({idle[0]}), and {host} knows the "
            f"sampler's log-probabilities alone: {remedy(objective)}"
        )


def reward_credit(objective: Objective, token_reward: Tensor, mask: Tensor, group: Sequence[Hashable]) -> Tensor:
    """[N, T] advantages from rewards per token [N, T] and the group's name of each row."""
    zeros = torch.zeros_like(token_reward)
    rollouts = Rollouts(
        mask=mask.bool(),
        reward=token_reward.sum(-1),
        group=torch.tensor(numbered(group), device=mask.device),
        old_logprob=zeros,
        rollout_logprob=zeros,
        token_reward=token_reward,
        turn=turns.numbered(mask.bool()),
    )
    return objective.prepare(rollouts.only(objective.needs)).advantage


def bare(mask: Tensor, old_logprob: Tensor, **others: Any) -> Rollouts:
    """Rollouts [N, T] without rewards, each row a group of its own."""
    rows = len(mask)
    group = torch.arange(rows, device=mask.device)
    return Rollouts(mask.bool(), old_logprob.new_zeros(rows), group, old_logprob, **others)


def credited(objective: Objective, rollouts: Rollouts, advantages: Tensor) -> Credit:
    """The host's advantages [N, T] as credit; Unsupported if the objective computes its own."""
    return Learner(objective, length=1, ratio=None).look(rollouts, credit=advantages).credit


def summed(objective: Objective, rollouts: Rollouts, credit: Credit, logprob: Tensor) -> tuple[Tensor, Tensor]:
    """(loss summed over tokens, for a host that divides it; [tokens] 1.0 where the clip removed the gradient)."""
    whole = dataclasses.replace(objective, aggregate=TokenMean())
    loss = whole.loss(Batch(rollouts, credit, Policy(logprob)), Totals(1.0, 1.0, 1.0))
    return loss.value, loss.terms["clipped"][rollouts.mask].float()


def _trial(objective: Objective) -> tuple[Rollouts, Policy]:
    rollouts, policy = example().values()
    return rollouts.only(objective.needs), policy.only(objective.needs)
