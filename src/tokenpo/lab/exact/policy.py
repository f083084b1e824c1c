"""A policy in a world: its true value and gradient, in float64 by linear algebra, and rollouts that it samples.

Axes: N rollouts, T tokens (padded), S states, V tokens of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.facts import facts_of
from ...core.objective import Objective
from ...core.types import FACTS, Policy, Rollouts
from .worlds import World

DRIFT = 0.01  # nats per token, KL(sampler ‖ policy) after a drift


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact properties of a policy, all with the graph to the logits. Axes: S states, V tokens.

    Args:
        J: mean reward.
        value: [S] mean reward from a state on.
        advantage: [S, V] Q − V of a token, its mean effect on the reward.
        visits: [S] mean number of visits in a response.
    """

    J: Tensor
    value: Tensor
    advantage: Tensor
    visits: Tensor


def truth(world: World, logits: Tensor) -> Truth:
    p, states, goes_on = logits.softmax(-1), len(logits), world.next >= 0
    source = torch.arange(states)[:, None].expand_as(world.next)[goes_on]
    P = torch.zeros(states, states, dtype=p.dtype).index_put((source, world.next[goes_on]), p[goes_on], True)
    system = torch.eye(states, dtype=p.dtype) - P
    start = torch.zeros(states, dtype=p.dtype).index_put((world.starts,), world.shares, True)
    value = torch.linalg.solve(system, (p * world.reward).sum(-1))
    q = world.reward + torch.where(goes_on, value[world.next.clamp(min=0)], 0.0)
    return Truth(start @ value, value, q - value[:, None], torch.linalg.solve(system.T, start))


def gradient(world: World, logits: Tensor) -> Tensor:
    """[S, V] gradient of the mean reward to the logits."""
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(truth(world, logits).J, logits)[0]


def divergence(world: World, sampler: Tensor, other: Tensor) -> float:
    """KL(sampler ‖ other) of the next token, nats, mean over the tokens of the sampler's responses."""
    logp, visits = sampler.log_softmax(-1), truth(world, sampler).visits
    kl = (logp.exp() * (logp - other.log_softmax(-1))).sum(-1)
    return float(visits @ kl / visits.sum())


def drifted(world: World) -> Tensor:
    """[S, V] logits up the true gradient from the initial policy, at KL `DRIFT`, by bisection."""
    way, low, high = gradient(world, world.initial), 0.0, 1.0
    while divergence(world, world.initial, world.initial + high * way) < DRIFT:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if divergence(world, world.initial, world.initial + middle * way) < DRIFT:
            low = middle
        else:
            high = middle
    return world.initial + high * way


# Inputs that a world gives beside those that are functions of the next-token distributions.
_GIVEN = {"rollout_logprob", "ref_logprob", "token_ids", "rewards", "token_reward", "turn", "anchor", "value"}


@dataclass(frozen=True, eq=False)
class Walk:
    """Sampled paths: states, tokens and mask [N, T], reward and group [N]; G consecutive rows are a group."""

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

    In each state tokens are sampled as evenly as their probabilities allow (systematic sampling, in random order).
    """
    start = world.starts[_dealt(world.shares.cumsum(0).expand(groups, -1), torch.zeros(groups).long(), draws)]
    at, group = start.repeat_interleave(size), torch.arange(groups).repeat_interleave(size)
    rows, cumulative = len(at), logits.softmax(-1).cumsum(-1)
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
    optional = {
        "rollout_logprob": lambda: old,
        "ref_logprob": lambda: old,
        "token_ids": lambda: walked.tokens,
        "rewards": lambda: reward[:, None],
        "token_reward": lambda: torch.where(mask, walked.taken(world.reward), 0.0),
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
