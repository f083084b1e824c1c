"""A world: a finite automaton whose paths are the responses.

In each state the policy samples one of V tokens, which leads to another state or ends the response with a reward. The
policy's value and its gradient are sums over all responses, which `truth.py` computes exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import TokenPOError


@dataclass(frozen=True)
class State:
    """A state, in which a token is sampled.

    Args:
        name: unique in its world.
        p: probability of each token under the initial policy.
        to: for each token, the name of the next state, or the reward with which the response ends.
        earns: reward of each token after which the response goes on; () means 0.
    """

    name: str
    p: tuple[float, ...]
    to: tuple[str | float, ...]
    earns: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class World:
    """Axes: S states, V tokens, P prompts.

    Args:
        premise: the assumption of a family of methods, in words.
        holds: whether the assumption is true here; None for a world that isolates an effect and tests no assumption.
        about: one or two sentences about the world.
        prompts: state -> share of the prompts that begin in it.

    Raises:
        TokenPOError: probabilities do not sum to 1, or a state can recur.
        KeyError: a token leads to a state that does not exist.
    """

    name: str
    premise: str
    holds: bool | None
    about: str
    states: tuple[State, ...]
    prompts: Mapping[str, float]

    def __post_init__(self) -> None:
        shares = [*(state.p for state in self.states), tuple(self.prompts.values())]
        if any(abs(sum(p) - 1) > 1e-12 or min(p) <= 0 for p in shares) or self.layers[-1]:
            raise TokenPOError(f"world {self.name}: let every p and the prompts' shares sum to 1, and no state recur")

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
        """[S, V] int, the state after each token; -1 if the response ends."""
        return torch.tensor([[self.index[x] if isinstance(x, str) else -1 for x in s.to] for s in self.states])

    @functools.cached_property
    def reward(self) -> Tensor:
        """[S, V] reward of each token: for a last token the reward that ends the response, before it mostly 0."""
        earns = [s.earns or (0.0,) * len(s.to) for s in self.states]
        rewards = [
            [earned if isinstance(x, str) else x for x, earned in zip(s.to, e, strict=True)]
            for s, e in zip(self.states, earns, strict=True)
        ]
        return torch.tensor(rewards, dtype=torch.float64)

    @property
    def earns(self) -> bool:
        """Whether tokens before the last earn rewards."""
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
        """The states in which the t-th token can be sampled; the last set is empty if every response ends."""
        layers = [set(self.starts.tolist())]
        while layers[-1] and len(layers) <= len(self.states):
            layers.append({x for s in layers[-1] for x in self.next[s].tolist() if x >= 0})
        return layers

    @property
    def length(self) -> int:
        """Number of tokens of the longest response."""
        return len(self.layers) - 1


def falling(top: float, tokens: int, ratio: float = 0.6) -> tuple[float, ...]:
    """Probabilities of `tokens` tokens: `top`, then a rest in which each is `ratio` times the one before it.

    >>> falling(0.5, 3, 0.25)
    (0.5, 0.4, 0.1)
    """
    rest = [ratio**k for k in range(tokens - 1)]
    return (top, *((1 - top) * x / sum(rest) for x in rest))


def fillers(name: str, certainty: Sequence[float], tokens: int, to: str | float) -> tuple[State, ...]:
    """A chain NAME1, NAME2, ... of states in which the token does not matter.

    Args:
        certainty: probability of the likeliest token in each of the states.
        tokens: V.
        to: the state or reward to which the last one leads.
    """
    ways: list[str | float] = [*(f"{name}{k}" for k in range(2, len(certainty) + 1)), to]
    return tuple(
        State(f"{name}{k}", falling(top, tokens), (way,) * tokens)
        for k, (top, way) in enumerate(zip(certainty, ways, strict=False), 1)
    )


def between(low: float, high: float, count: int) -> list[float]:
    """`count` evenly spaced numbers between low and high."""
    return [low + (high - low) * (k + 0.5) / count for k in range(count)]
