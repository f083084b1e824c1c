"""The policy's parameters: a table of logits, or a small network whose states share them.

In a table a token's step moves no other state; in a network it does, as in a language model, and some methods argue
from this interference. The gradient stays exact: it is the one in the logits, taken back through the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from .world import World

HIDDEN, OWN = 16, 4  # units; features that are a state's own


@dataclass(frozen=True, eq=False)
class Table:
    """The parameters are the logits [S, V]."""

    world: World

    def start(self) -> Tensor:
        """The parameters of the world's initial policy."""
        return self.world.initial

    def logits(self, parameters: Tensor) -> Tensor:
        """[S, V]."""
        return parameters

    def back(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        """The gradient in the parameters, from the one [S, V] in the logits."""
        return gradient


class Network(Table):
    """logits(s) = initial(s) + f(x_s) − f₀(x_s), f = W₂ tanh(W₁ x) with random weights, f₀ as it began.

    The features x_s of a prefix are its length and `OWN` random numbers of its state: prefixes of one length share much
    of a step, others little.
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
