"""The policies at which a method is judged: initial, late, stuck, and policies that have moved since they sampled.

`late` and `stuck` lie on the exact gradient flow of the mean reward through the initial policy, at J = 0.95 and 0.03:
no method's training led there. A drifted policy is a step away from the one that sampled, as after some minibatches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from .model import Table
from .truth import slopes, truth
from .world import World

LATE, STUCK = 0.95, 0.03  # mean rewards
DRIFT = 0.01  # nats of KL(sampler, policy) a token
_STEP, _MOST = 0.1, 5000  # of the flow, in logits


@functools.lru_cache(maxsize=256)
def policy(model: Table, name: str) -> Tensor:
    """Parameters of one of `POLICIES`."""
    return POLICIES[name](model)


@functools.lru_cache(maxsize=256)
def drifted(model: Table, name: str) -> Tensor:
    """Parameters at KL `DRIFT` from the initial ones, in the direction of one of `DRIFTS`."""
    at = policy(model, "init")
    way, sampler, far = DRIFTS[name](model, at), model.logits(at), 1.0

    def near(step: float) -> bool:
        return divergence(model.world, sampler, model.logits(at + step * way)) < DRIFT

    while near(far):
        far *= 2
    return at + _bisected(near, far) * way


def divergence(world: World, sampler: Tensor, other: Tensor) -> float:
    """KL of the sampler's next token to the other's, nats, in the mean over the tokens of the sampler."""
    logp, visits = sampler.log_softmax(-1), truth(world, sampler).visits
    apart = (logp.exp() * (logp - other.log_softmax(-1))).sum(-1)
    return float(visits @ apart / visits.sum())


def _flow(model: Table, level: float) -> Tensor:
    """Up or down the gradient of J, in short steps, to where J is `level`."""

    def below(parameters: Tensor) -> bool:
        return float(truth(model.world, model.logits(parameters)).J) < level

    at = model.start()
    up = below(at)
    for _ in range(_MOST):
        way = _gradient(model, at)
        way = way / way.norm() * (_STEP if up else -_STEP)
        if below(at + way) != up:
            return at + way * _bisected(lambda part, at=at, way=way: below(at + part * way) == up)
        at = at + way
    raise AssertionError(f"{model.world.name} does not come to a mean reward of {level}")


def _bisected(below: Callable[[float], bool], high: float = 1.0) -> float:
    """The number in 0..high at which `below` ends."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high


def _gradient(model: Table, at: Tensor) -> Tensor:
    return model.back(at, slopes(model.world, model.logits(at))["J"])


def _random(model: Table, at: Tensor) -> Tensor:
    return torch.randn(at.shape, dtype=at.dtype, generator=keyed_generator(0, f"exact/drift/{model.world.name}"))


POLICIES: dict[str, Callable[[Table], Tensor]] = {
    "init": lambda model: model.start(),
    "late": lambda model: _flow(model, LATE),
    "stuck": lambda model: _flow(model, STUCK),
}
# Directions in the parameters, of any length.
DRIFTS: dict[str, Callable[[Table, Tensor], Tensor]] = {
    "toward": _gradient,
    "away": lambda model, at: -_gradient(model, at),
    "random": _random,
}
