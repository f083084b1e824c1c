"""Rollouts from a world: the inputs that sampler and forward passes would report, computed from a table of logits.

Axes: N rollouts, T tokens (padded), S states, V tokens of the vocabulary, G rollouts of a group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import Unsupported
from ...core.facts import facts_of
from ...core.ops import kl
from ...core.ops.group import Groups
from ...core.types import Policy, Rollouts
from .truth import truth
from .world import World

PROMPT_LOGPROB = -1.0  # nats; any number, as a world's prompts have no tokens
_FURTHEST = 11.0  # nats, bound of the log-ratios in `_divergence`


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


def walk(world: World, logits: Tensor, groups: int, size: int, draws: torch.Generator, *, even: bool) -> Walk:
    """Paths of the policy with these logits [S, V], in `groups` groups of `size`; prompts by their shares.

    Args:
        even: sample tokens in each state as evenly as their probabilities allow (systematic sampling, in random order)
            rather than independently, so that a large batch is close to its expectation.
    """
    start = world.starts[_dealt(world.shares.cumsum(0).expand(groups, -1), torch.zeros(groups).long(), draws)]
    group = torch.arange(groups).repeat_interleave(size)
    return onward(world, logits, start.repeat_interleave(size), group, draws, even=even)


def onward(world: World, logits: Tensor, at: Tensor, group: Tensor, draws: torch.Generator, *, even: bool) -> Walk:
    """Paths from the states `at` [N], sampled as in `walk`, with the groups `group` [N]."""
    at, rows, cumulative = at.clone(), len(at), logits.softmax(-1).cumsum(-1)
    states, tokens = torch.zeros(2, world.length, rows, dtype=torch.long)
    mask, reward = torch.zeros(world.length, rows, dtype=torch.bool), torch.zeros(rows, dtype=logits.dtype)
    alive = torch.arange(rows)
    for t in range(world.length):
        here = at[alive]
        places = cumulative[here]
        token = _dealt(places, here, draws) if even else _drawn(places, draws)
        states[t, alive], tokens[t, alive], mask[t, alive] = here, token, True
        reward[alive] += world.reward[here, token]
        at[alive] = world.next[here, token]
        alive = alive[at[alive] >= 0]
        if not len(alive):
            break
    return Walk(states.T, tokens.T, mask.T, reward, group)


def rollouts(
    world: World, walked: Walk, logits: Tensor, needs: frozenset[str], sampler: Tensor | None = None
) -> Rollouts:
    """The inputs of an objective with these needs; the reference policy is the world's initial one.

    Args:
        logits: [S, V] of the old policy, to which the update is anchored.
        sampler: [S, V] of the policy that sampled; None if that is the old policy.
    """
    size = int((walked.group == walked.group[0]).sum())
    logp, mask, reward = logits.log_softmax(-1), walked.mask, walked.reward
    arrived = torch.where(mask, world.reward[walked.states, walked.tokens], 0.0).to(reward.dtype)
    outcome = arrived.gather(1, mask.sum(1, keepdim=True) - 1)
    optional = {
        "rollout_logprob": lambda: walked.taken((logits if sampler is None else sampler).log_softmax(-1)),
        "ref_logprob": lambda: walked.taken(world.initial.log_softmax(-1)),
        # The teacher is the initial policy with each token's advantage added to its logit.
        "teacher_logprob": lambda: walked.taken(
            (world.initial + truth(world, world.initial).advantage).log_softmax(-1)
        ),
        "token_ids": lambda: walked.tokens,
        "prompt_logprob": lambda: torch.full((len(reward),), PROMPT_LOGPROB, dtype=logits.dtype),
        "influence": lambda: _influence(logp, walked, size),
        "divergence": lambda: _divergence(logp, walked, size),
        # If tokens before the last earn rewards, their sum is one column and the outcome another.
        "rewards": lambda: torch.cat([reward[:, None] - outcome, outcome], 1) if world.earns else reward[:, None],
        "token_reward": lambda: arrived,
        "baseline": lambda: _greedy(world, logits)[walked.states[:, 0]],
        # Each prompt is a role: rewards of one prompt are comparable.
        "role": lambda: walked.states[:, 0],
        # Each token is an action, so it is a turn of its own.
        "turn": lambda: torch.arange(mask.shape[1]).expand(mask.shape),
        "anchor": lambda: walked.states,
        "value": lambda: truth(world, logits).value.detach()[walked.states],  # that of a perfect critic
    }
    return Rollouts(
        mask=mask, reward=reward, group=walked.group, old_logprob=walked.taken(logp),
        **{name: make() for name, make in optional.items() if name in needs},
        **_by_formula(Rollouts, logp, walked, needs),
    )  # fmt: skip


def _greedy(world: World, logits: Tensor) -> Tensor:
    """[S] reward from each state on if the likeliest token is always taken."""
    best, earned = logits.argmax(-1), torch.zeros(len(logits), dtype=logits.dtype)
    reward, following = (x.gather(1, best[:, None])[:, 0] for x in (world.reward, world.next))
    for _ in range(world.length):
        earned = reward + torch.where(following >= 0, earned[following.clamp(min=0)], 0.0)
    return earned


def _by_formula(owner: type, logp: Tensor, walked: Walk, needs: frozenset[str]) -> dict[str, Tensor]:
    """The needed inputs [N, T] that are functions of the next-token distributions."""
    return {
        name: fact.formula(logp)[walked.states]
        for name, fact in facts_of(owner).items()
        if fact.formula is not None and name in needs
    }


def view(logits: Tensor, walked: Walk, needs: frozenset[str]) -> Policy:
    """The predictions at the sampled tokens of the policy with these logits [S, V], with their graph.

    Unsupported if the objective reads teacher_divergence.
    """
    if "teacher_divergence" in needs:
        raise Unsupported(
            "a method that reads teacher_divergence compares whole distributions, and here a world's teacher scores "
            "sampled tokens alone: choose opd"
        )
    logp = logits.log_softmax(-1)
    return Policy(logprob=walked.taken(logp), **_by_formula(Policy, logp, walked, needs))


def _drawn(cumulative: Tensor, draws: torch.Generator) -> Tensor:
    """[M] tokens, sampled independently from the rows of cumulative probabilities [M, V]."""
    return _place(cumulative, torch.rand(len(cumulative), dtype=torch.float64, generator=draws))


def _dealt(cumulative: Tensor, state: Tensor, draws: torch.Generator) -> Tensor:
    """[M] tokens as from `_drawn`, but rows with the same `state` [M] share its tokens evenly (systematic sampling)."""
    shuffled = torch.randperm(len(state), generator=draws)
    order = shuffled[state[shuffled].argsort(stable=True)]
    count = torch.bincount(state)
    first = count.cumsum(0) - count
    rank = torch.arange(len(state)) - first[state[order]]
    offset = torch.rand(len(count), dtype=torch.float64, generator=draws)
    place = torch.empty(len(state), dtype=torch.float64)
    place[order] = (rank + offset[state[order]]) / count[state[order]]
    return _place(cumulative, place)


def _place(cumulative: Tensor, at: Tensor) -> Tensor:
    place = (cumulative.double() <= at[:, None]).sum(-1)
    return place.clamp(max=cumulative.shape[-1] - 1)  # by rounding, the last sum may be below 1


def _influence(logp: Tensor, walked: Walk, size: int) -> Tensor:
    """[N, T] Σ ⟨g, g'⟩⟨h, h'⟩ over the tokens of the group's right responses, where h is the one-hot of the state."""
    groups = Groups.of(walked.group, walked.mask.any(1))
    right = (groups.above_mean(walked.reward))[:, None] & walked.mask
    residual = -logp.exp()[walked.states]
    residual.scatter_add_(-1, walked.tokens[..., None], torch.ones_like(residual[..., :1]))
    total = torch.zeros(len(walked.group) // size, *logp.shape, dtype=logp.dtype)
    where = walked.group[:, None].expand_as(walked.states) - walked.group[0]
    total.index_put_((where[right], walked.states[right]), residual[right], True)
    return (residual * total[where, walked.states]).sum(-1)


def _divergence(logp: Tensor, walked: Walk, size: int) -> Tensor:
    """[N, T] divergence of the group's next-token distributions at each position; uniform ones for ended responses."""
    rows = logp[walked.states].masked_fill(~walked.mask[..., None], -math.log(logp.shape[1]))
    grouped = rows.unflatten(0, (-1, size))
    x = (grouped.mean(1, keepdim=True) - grouped).clamp(-_FURTHEST, _FURTHEST)
    return kl.k3(x).sum(-1).mean(1, keepdim=True).expand(-1, size, -1).flatten(0, 1)
