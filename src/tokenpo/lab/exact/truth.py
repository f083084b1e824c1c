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


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact properties of a policy, all with the graph to the logits. Axes: S states, V tokens.

    Args:
        J: mean reward.
        value: [S] mean reward from a state on.
        advantage: [S, V] Q − V of a token, its mean effect on the reward.
        visits: [S] mean number of visits in a response.
        entropy: nats, mean over tokens.
        length: mean number of tokens of a response.
        sound: share of the reward from responses through the world's sound state; NaN without one.
    """

    J: Tensor
    value: Tensor
    advantage: Tensor
    visits: Tensor
    entropy: Tensor
    length: Tensor
    sound: Tensor


def truth(world: World, logits: Tensor) -> Truth:
    """The exact properties of the policy with these logits [S, V]."""
    logp = logits.log_softmax(-1)
    p, states = logp.exp(), len(logits)
    goes_on = world.next >= 0
    source = torch.arange(states)[:, None].expand_as(world.next)[goes_on]
    P = torch.zeros(states, states, dtype=p.dtype).index_put((source, world.next[goes_on]), p[goes_on], True)
    system = torch.eye(states, dtype=p.dtype) - P
    start = torch.zeros(states, dtype=p.dtype).index_put((world.starts,), world.shares, True)
    value = torch.linalg.solve(system, (p * world.reward).sum(-1))
    visits = torch.linalg.solve(system.T, start)
    q = world.reward + torch.where(goes_on, value[world.next.clamp(min=0)], 0.0)
    length, J = visits.sum(), start @ value
    sound = visits[world.index[world.sound]] * value[world.index[world.sound]] / J if world.sound else J * torch.nan
    entropy = (visits * -(p * logp).sum(-1)).sum() / length
    return Truth(J, value, q - value[:, None], visits, entropy, length, sound)


def slopes(world: World, logits: Tensor) -> dict[str, Tensor]:
    """The gradients [S, V] of J, entropy and length to the logits, by name."""
    logits = logits.detach().requires_grad_()
    at = truth(world, logits)
    targets = {"J": at.J, "entropy": at.entropy, "length": at.length}
    return {name: torch.autograd.grad(x, logits, retain_graph=True)[0] for name, x in targets.items()}


def deciding(world: World) -> Tensor:
    """[S] bool, the states whose token changes the expected reward under the initial policy."""
    advantage = truth(world, world.initial).advantage
    return (advantage.max(-1).values - advantage.min(-1).values) > 1e-9
