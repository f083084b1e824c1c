"""The value of a policy in a world and its gradient, exact in float64 by linear algebra.

A response visits no state twice, so the expected number of visits d and the value V of every state solve

    d = start + Pᵀ d        V = r + P V        P_ss' = Σ_a π(a|s) 1[a: s to s'],  r_s = Σ_a π(a|s) reward(s, a)

and J = Σ_p share_p V(start_p). This equals the sum over all responses; autograd differentiates it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .world import World

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
    """The exact properties of the policy with these logits [S, V]."""
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
