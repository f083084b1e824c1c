"""A world: a finite automaton whose responses are paths.

In a state the policy draws one of V tokens; the token leads to the next state, or ends the response with a reward. The
policy's value and its gradient are then sums over all responses, which `truth.py` takes without error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import TokenPOError


@dataclass(frozen=True)
class State:
    """A state, in which a token is drawn.

    Args:
        name: unique in its world.
        p: probability of each token under the initial policy.
        to: where each token leads: the name of a state, or the reward with which the response ends.
        earns: reward that arrives with each token where the response goes on; () is none.
    """

    name: str
    p: tuple[float, ...]
    to: tuple[str | float, ...]
    earns: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class World:
    """Axes: S states, V tokens, P prompts.

    Args:
        name: on the command line.
        premise: the assumption of a family of methods, in words.
        holds: whether the assumption is true here; None for a world that isolates an effect without testing one.
        about: the world in one or two sentences.
        states: in any order.
        prompts: share of the prompts that begin in a state, by its name.
        sound: the state that a response passes if its answer is reasoned; "" where that means nothing.

    Raises:
        TokenPOError: probabilities that do not sum to 1, a state that does not exist, is never reached or met again.
    """

    name: str
    premise: str
    holds: bool | None
    about: str
    states: tuple[State, ...]
    prompts: Mapping[str, float]
    sound: str = ""

    def __post_init__(self) -> None:
        if fault := next(self._faults(), ""):
            raise TokenPOError(f"world {self.name}: {fault}")

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """Number of each state."""
        return {state.name: number for number, state in enumerate(self.states)}

    @functools.cached_property
    def initial(self) -> Tensor:
        """[S, V] logits of the initial policy."""
        return torch.tensor([state.p for state in self.states], dtype=torch.float64).log()

    @functools.cached_property
    def next(self) -> Tensor:
        """[S, V] int, the state that each token leads to; -1 where the response ends."""
        return torch.tensor([[self.index[x] if isinstance(x, str) else -1 for x in s.to] for s in self.states])

    @functools.cached_property
    def reward(self) -> Tensor:
        """[S, V] that arrives with a token: with the last one what the response ends with, mostly 0 before."""
        earns = [s.earns or (0.0,) * len(s.to) for s in self.states]
        rewards = [
            [earned if isinstance(x, str) else x for x, earned in zip(s.to, e, strict=True)]
            for s, e in zip(self.states, earns, strict=True)
        ]
        return torch.tensor(rewards, dtype=torch.float64)

    @property
    def earns(self) -> bool:
        """Whether rewards arrive on the way."""
        return any(state.earns for state in self.states)

    @functools.cached_property
    def starts(self) -> Tensor:
        """[P] int, the state that each prompt begins in."""
        return torch.tensor([self.index[name] for name in self.prompts])

    @functools.cached_property
    def shares(self) -> Tensor:
        """[P] share of each prompt."""
        return torch.tensor(list(self.prompts.values()), dtype=torch.float64)

    @functools.cached_property
    def layers(self) -> list[set[int]]:
        """The states that the t-th token can be drawn in; the last set is empty if every response ends."""
        layers = [set(self.starts.tolist())]
        while layers[-1] and len(layers) <= len(self.states):
            layers.append({x for s in layers[-1] for x in self.next[s].tolist() if x >= 0})
        return layers

    @property
    def length(self) -> int:
        """Tokens of the longest response."""
        return len(self.layers) - 1

    def _faults(self) -> Iterator[str]:
        if len(self.index) != len(self.states):
            yield "two states have one name"
        for name, p in [*((state.name, state.p) for state in self.states), ("prompts", tuple(self.prompts.values()))]:
            if abs(sum(p) - 1) > 1e-12 or min(p) <= 0:
                yield f"the probabilities of {name} are {p}: they must be above 0 and sum to 1"
        for state in self.states:
            if not len(state.p) == len(state.to) == len(self.states[0].p):
                yield f"{state.name} has {len(state.p)} probabilities and {len(state.to)} ways on: all V"
            if len(state.earns) not in (0, len(state.p)):
                yield f"{state.name} has {len(state.p)} probabilities and {len(state.earns)} rewards on the way: all V"
            for target in state.to:
                if isinstance(target, str) and target not in self.index:
                    yield f"{state.name} leads to {target}, which is no state"
        if unknown := {*self.prompts, *filter(None, [self.sound])} - set(self.index):
            yield f"{sorted(unknown)[0]} is no state"
        if self.layers[-1]:
            yield "a response can come back to a state, so that it need not end"
        if lost := [state.name for s, state in enumerate(self.states) if s not in set().union(*self.layers)]:
            yield f"no prompt leads to {lost[0]}"


def falling(top: float, tokens: int, ratio: float = 0.6) -> tuple[float, ...]:
    """Probabilities that begin with `top`; each of the others is `ratio` of the one before it.

    >>> falling(0.5, 3, 0.25)
    (0.5, 0.4, 0.1)
    """
    rest = [ratio**k for k in range(tokens - 1)]
    return (top, *((1 - top) * x / sum(rest) for x in rest))


def fillers(name: str, certainty: Sequence[float], tokens: int, to: str | float) -> tuple[State, ...]:
    """A chain NAME1, NAME2, ... of states in which the token does not matter; the last leads to `to`. `certainty` is
    the probability of the likeliest token in each of them.
    """
    ways: list[str | float] = [*(f"{name}{k}" for k in range(2, len(certainty) + 1)), to]
    return tuple(
        State(f"{name}{k}", falling(top, tokens), (way,) * tokens)
        for k, (top, way) in enumerate(zip(certainty, ways, strict=False), 1)
    )


def between(low: float, high: float, count: int) -> list[float]:
    """`count` numbers from low to high, evenly apart."""
    return [low + (high - low) * (k + 0.5) / count for k in range(count)]
