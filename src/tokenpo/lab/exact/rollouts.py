"""Rollouts from a world: the inputs that sampler and forward passes would report, computed from a table of logits.

Axes: N rollouts, T tokens (padded), S states, V tokens of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.facts import facts_of
from ...core.objective import Objective
from ...core.types import FACTS, Policy, Rollouts
from .truth import truth
from .world import World

# Inputs that a world gives beside those that are functions of the next-token distributions.
_GIVEN = {"rollout_logprob", "ref_logprob", "token_ids", "rewards", "token_reward", "turn", "anchor", "value"}


@dataclass(frozen=True, eq=False)
class Walk:
    """Sampled paths.

    Args:
        states, tokens: [N, T] int, 0 where the mask is false.
        mask: [N, T] bool.
        reward: [N].
        group: [N] int; G consecutive rows are a group.
    """

    states: Tensor
    tokens: Tensor
    mask: Tensor
    reward: Tensor
    group: Tensor

    def rows(self, index: slice | Tensor) -> Walk:
        return Walk(*(x[index] for x in (self.states, self.tokens, self.mask, self.reward, self.group)))

    def taken(self, logp: Tensor) -> Tensor:
        """[N, T], the numbers of the sampled tokens from a table [S, V]."""
        return logp[self.states, self.tokens]


def walk(world: World, logits: Tensor, groups: int, size: int, draws: torch.Generator) -> Walk:
    """Paths of the policy with these logits [S, V], in `groups` groups of `size`; prompts by their shares.

    In each state tokens are sampled as evenly as their probabilities allow (systematic sampling, in random order), so
    that a large batch is close to its expectation.
    """
    start = world.starts[_dealt(world.shares.cumsum(0).expand(groups, -1), torch.zeros(groups).long(), draws)]
    group = torch.arange(groups).repeat_interleave(size)
    return onward(world, logits, start.repeat_interleave(size), group, draws)


def onward(world: World, logits: Tensor, at: Tensor, group: Tensor, draws: torch.Generator) -> Walk:
    """Paths from the states `at` [N], sampled as in `walk`, with the groups `group` [N]."""
    at, rows, cumulative = at.clone(), len(at), logits.softmax(-1).cumsum(-1)
    states, tokens = torch.zeros(2, world.length, rows, dtype=torch.long)
    mask, reward = torch.zeros(world.length, rows, dtype=torch.bool), torch.zeros(rows, dtype=logits.dtype)
    alive = torch.arange(rows)
    for t in range(world.length):
        here = at[alive]
        token = _dealt(cumulative[here], here, draws)
        states[t, alive], tokens[t, alive], mask[t, alive] = here, token, True
        reward[alive] += world.reward[here, token]
        at[alive] = world.next[here, token]
        alive = alive[at[alive] >= 0]
        if not len(alive):
            break
    return Walk(states.T, tokens.T, mask.T, reward, group)


def lacking(objective: Objective) -> str:
    """What a world does not give and the objective needs, for a message; "" if it runs."""
    given = _GIVEN | {name for name, fact in FACTS.items() if fact.formula}
    missing = sorted(objective.needs - given)
    return missing[0] if missing else ""


def rollouts(world: World, walked: Walk, logits: Tensor, needs: frozenset[str]) -> Rollouts:
    """The inputs of an objective with these needs; the policy with these logits sampled, and is the reference."""
    logp, mask, reward = logits.log_softmax(-1), walked.mask, walked.reward
    old = walked.taken(logp)
    arrived = torch.where(mask, world.reward[walked.states, walked.tokens], 0.0).to(reward.dtype)
    outcome = arrived.gather(1, mask.sum(1, keepdim=True) - 1)
    optional = {
        "rollout_logprob": lambda: old,
        "ref_logprob": lambda: old,
        "token_ids": lambda: walked.tokens,
        # If tokens before the last earn rewards, their sum is one column and the outcome another.
        "rewards": lambda: torch.cat([reward[:, None] - outcome, outcome], 1) if world.earns else reward[:, None],
        "token_reward": lambda: arrived,
        # Each token is an action, so it is a turn of its own.
        "turn": lambda: torch.arange(mask.shape[1]).expand(mask.shape),
        "anchor": lambda: walked.states,
        "value": lambda: truth(world, logits).value.detach()[walked.states],  # that of a perfect critic
    }
    known = {"mask": mask, "reward": reward, "group": walked.group, "old_logprob": old}
    known |= {name: make() for name, make in optional.items() if name in needs}
    return Rollouts.of(known | _by_formula(logp, walked, needs - facts_of(Policy).keys()))


def view(logits: Tensor, walked: Walk, needs: frozenset[str]) -> Policy:
    """The predictions at the sampled tokens of the policy with these logits [S, V], with their graph."""
    logp = logits.log_softmax(-1)
    return Policy(logprob=walked.taken(logp), **_by_formula(logp, walked, needs & facts_of(Policy).keys()))


def _by_formula(logp: Tensor, walked: Walk, needs: frozenset[str]) -> dict[str, Tensor]:
    """The needed inputs [N, T] that are functions of the next-token distributions."""
    return {
        name: fact.formula(logp)[walked.states]
        for name, fact in FACTS.items()
        if fact.formula is not None and name in needs
    }


def _dealt(cumulative: Tensor, state: Tensor, draws: torch.Generator) -> Tensor:
    """[M] tokens from rows of cumulative probabilities [M, V]; rows with the same `state` [M] share them evenly."""
    shuffled = torch.randperm(len(state), generator=draws)
    order = shuffled[state[shuffled].argsort(stable=True)]
    count = torch.bincount(state)
    first = count.cumsum(0) - count
    rank = torch.arange(len(state)) - first[state[order]]
    offset = torch.rand(len(count), dtype=torch.float64, generator=draws)
    place = torch.empty(len(state), dtype=torch.float64)
    place[order] = (rank + offset[state[order]]) / count[state[order]]
    token = (cumulative.double() <= place[:, None]).sum(-1)
    return token.clamp(max=cumulative.shape[-1] - 1)  # by rounding, the last sum may be below 1
