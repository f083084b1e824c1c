"""The policies at which a method is judged: the initial one, later and stuck ones, and ones that have moved on since.

`late` and `stuck` lie on the exact gradient flow of the mean reward through the initial policy, at J = 0.95 and 0.03,
so that they are no method's own. A drifted policy is a step away from the one that sampled, as after some minibatches.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from .truth import slopes, truth
from .world import World

LATE, STUCK = 0.95, 0.03  # mean rewards
DRIFT = 0.01  # nats of KL(sampler, policy) a token
POLICIES = ("init", "late", "stuck")
DRIFTS = ("toward", "away", "random")
_STEP, _MOST = 0.1, 5000  # of the flow, in logits


@functools.lru_cache(maxsize=256)
def policy(world: World, name: str) -> Tensor:
    """[S, V] logits of one of `POLICIES`."""
    if name == "init":
        return world.initial
    return _flow(world, {"late": LATE, "stuck": STUCK}[name])


def drifted(world: World, logits: Tensor, name: str, size: float = DRIFT) -> Tensor:
    """[S, V] logits at KL `size` from these: toward the gradient of J, away from it, or in a random direction."""
    if name == "random":
        way = torch.randn(logits.shape, dtype=logits.dtype, generator=keyed_generator(0, f"exact/drift/{world.name}"))
    else:
        way = slopes(world, logits)["J"] * (1 if name == "toward" else -1)
    low, high = 0.0, 1.0
    while divergence(world, logits, logits + high * way) < size:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(world, logits, logits + middle * way) < size else (low, middle)
    return logits + high * way


def divergence(world: World, sampler: Tensor, other: Tensor) -> float:
    """KL of the sampler's next token to the other's, nats, in the mean over the tokens of the sampler."""
    logp, visits = sampler.log_softmax(-1), truth(world, sampler).visits
    apart = (logp.exp() * (logp - other.log_softmax(-1))).sum(-1)
    return float(visits @ apart / visits.sum())


def _flow(world: World, level: float) -> Tensor:
    """Up or down the gradient of J, in short steps, to where J is `level`."""
    logits = world.initial
    up = float(truth(world, logits).J) < level
    for _ in range(_MOST):
        way = slopes(world, logits)["J"]
        way = way / way.norm() * (_STEP if up else -_STEP)
        if (float(truth(world, logits + way).J) < level) != up:
            return logits + way * _crossing(world, logits, way, level, up)
        logits = logits + way
    raise AssertionError(f"{world.name} does not come to a mean reward of {level}")


def _crossing(world: World, logits: Tensor, way: Tensor, level: float, up: bool) -> float:
    """The part of the last step after which J is `level`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        short = (float(truth(world, logits + middle * way).J) < level) == up
        low, high = (middle, high) if short else (low, middle)
    return high
