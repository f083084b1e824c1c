"""The policy's parameters, and the policies at which a method's update is measured.

The parameters are a table of logits, or the weights of a small network that all states share.

In a table, a step on a token changes no other state. In a network it does, as in a language model, and some methods are
motivated by this interference. The gradient is still exact: the gradient to the logits, propagated back through the
network.

`late` and `stuck` lie on the exact gradient flow of the mean reward through the initial policy, at J = 0.95 and 0.03,
so they favour no method. A drifted policy is a step away from the policy that sampled, as after some minibatches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from .truth import slopes, truth
from .world import World

HIDDEN, OWN = 16, 4  # hidden units; random features of each state
LATE, STUCK = 0.95, 0.03  # mean rewards of these policies
DRIFT = 0.01  # KL(sampler ‖ policy) of a drifted policy, nats per token
_STEP, _MOST = 0.1, 5000  # length of a step of the flow, and the largest number of steps


@dataclass(frozen=True, eq=False)
class Table:
    """The parameters are the logits [S, V]."""

    world: World

    def start(self) -> Tensor:
        return self.world.initial

    def logits(self, parameters: Tensor) -> Tensor:
        """[S, V]."""
        return parameters

    def back(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """The gradient to the parameters, from the gradient [S, V] to the logits."""
        return gradient


class Network(Table):
    """logits(s) = initial(s) + f(x_s) − f₀(x_s), f = W₂ tanh(W₁ x) with random weights, f₀ the initial f.

    The features x_s of a state are its length (one-hot) and `OWN` random numbers. A step on one state changes states of
    the same length much, others little.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        draws = keyed_generator(0, f"exact/network/{world.name}")
        own = torch.randn(len(world.states), OWN, dtype=torch.float64, generator=draws) / OWN**0.5
        depth = [next(t for t, layer in enumerate(world.layers) if s in layer) for s in range(len(world.states))]
        length = torch.nn.functional.one_hot(torch.tensor(depth)).double()
        self._features = torch.cat([own, length], 1) / 2**0.5
        self._shapes = (self._features.shape[1], HIDDEN), (HIDDEN, len(world.states[0].p))
        weights = (torch.randn(*s, dtype=torch.float64, generator=draws) / s[0] ** 0.5 for s in self._shapes)
        self._start = torch.cat([w.flatten() for w in weights])
        self._offset = world.initial - self._net(self._start)

    def start(self) -> Tensor:
        return self._start

    def logits(self, parameters: Tensor) -> Tensor:
        return self._net(parameters) + self._offset

    def back(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        parameters = parameters.detach().requires_grad_()
        return torch.autograd.grad(self.logits(parameters), parameters, gradient)[0]

    def _net(self, parameters: Tensor) -> Tensor:
        (rows, columns), second = self._shapes
        inner, outer = parameters.split([rows * columns, second[0] * second[1]])
        return torch.tanh(self._features @ inner.view(rows, columns)) @ outer.view(second)


@functools.lru_cache(maxsize=256)
def policy(model: Table, name: str) -> Tensor:
    """Parameters of one of `POLICIES`."""
    return POLICIES[name](model)


@functools.lru_cache(maxsize=256)
def drifted(model: Table, name: str) -> Tensor:
    """Parameters in the direction of one of `DRIFTS` from the initial ones, at KL `DRIFT`."""
    at = policy(model, "init")
    way, sampler, far = DRIFTS[name](model, at), model.logits(at), 1.0

    def near(step: float) -> bool:
        return divergence(model.world, sampler, model.logits(at + step * way)) < DRIFT

    while near(far):
        far *= 2
    return at + _bisected(near, far) * way


def divergence(world: World, sampler: Tensor, other: Tensor) -> float:
    """KL(sampler ‖ other) of the next token, nats, mean over the tokens of the sampler's responses."""
    logp, visits = sampler.log_softmax(-1), truth(world, sampler).visits
    kl = (logp.exp() * (logp - other.log_softmax(-1))).sum(-1)
    return float(visits @ kl / visits.sum())


def _flow(model: Table, level: float) -> Tensor:
    """Parameters where J is `level`, reached in short steps up or down the gradient of J."""

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
    """The number in 0..high up to which `below` is true, by bisection."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high


def _gradient(model: Table, at: Tensor) -> Tensor:
    return model.back(at, slopes(model.world, model.logits(at))["J"])


POLICIES: dict[str, Callable[[Table], Tensor]] = {
    "init": lambda model: model.start(),
    "late": lambda model: _flow(model, LATE),
    "stuck": lambda model: _flow(model, STUCK),
}
# Directions in the parameters, of any length.
DRIFTS: dict[str, Callable[[Table, Tensor], Tensor]] = {
    "toward": _gradient,
    "away": lambda model, at: -_gradient(model, at),
    "random": lambda model, at: torch.randn(
        at.shape, dtype=at.dtype, generator=keyed_generator(0, f"exact/drift/{model.world.name}")
    ),
}
