"""A world: a finite automaton whose paths are the responses.

In each state the policy samples one of V tokens, which leads to another state or ends the response with a reward. The
policy's value and its gradient are sums over all responses, which `measures.py` computes exactly.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """A state, in which a token is sampled.

    Args:
        name: unique in its world.
        p: probability of each token under the initial policy.
        to: for each token, the name of the next state, or the reward with which the response ends.
    """

    name: str
    p: tuple[float, ...]
    to: tuple[str | float, ...]


@dataclass(frozen=True, eq=False)
class World:
    """Axes: S states, V tokens, P prompts.

    Args:
        prompts: state -> share of the prompts that begin in it.
    """

    name: str
    states: tuple[State, ...]
    prompts: Mapping[str, float]

    @functools.cached_property
    def index(self) -> dict[str, int]:
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
        """[S, V] reward of each token: that of the response for a last one, before it 0."""
        rewards = [[0.0 if isinstance(x, str) else x for x in state.to] for state in self.states]
        return torch.tensor(rewards, dtype=torch.float64)

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
    """A chain NAME1, NAME2, ... of states in which the token does not matter, on to the state or reward `to`.

    `certainty` is the probability of the likeliest token in each of the states.
    """
    ways: list[str | float] = [*(f"{name}{k}" for k in range(2, len(certainty) + 1)), to]
    return tuple(
        State(f"{name}{k}", falling(top, tokens), (way,) * tokens)
        for k, (top, way) in enumerate(zip(certainty, ways, strict=False), 1)
    )


def between(low: float, high: float, count: int) -> list[float]:
    """`count` evenly spaced numbers between low and high."""
    return [low + (high - low) * (k + 0.5) / count for k in range(count)]


WORLDS: dict[str, Callable[[], World]] = {}


def _world(
    states: Callable[[], Iterable[State]], prompts: Mapping[str, float] | None = None
) -> Callable[[], Iterable[State]]:
    """Registers a world with the function's name and states; by default all prompts begin in the first."""

    def build() -> World:
        built = tuple(states())
        return World(states.__name__, built, prompts or {built[0].name: 1.0})

    WORLDS[states.__name__] = build
    return states


def _decision(
    p: tuple[float, ...],
    right: Collection[int],
    certainty: Sequence[Sequence[float]],
    names: Sequence[str] = ("before", "fork", "right", "wrong"),
) -> Iterator[State]:
    """Fillers, then a decision in which the tokens `right` earn 1 and others 0, then fillers on either side.

    `p` are the decision's probabilities; `certainty` and `names` are of the chain before, right side, wrong side.
    """
    before, fork, on, lost = names
    ends = zip((on, lost), certainty[1:], (1.0, 0.0), strict=True)
    ways = [f"{name}1" if chain else end for name, chain, end in ends]
    yield from fillers(before, certainty[0], len(p), fork)
    yield State(fork, p, tuple(ways[token not in right] for token in range(len(p))))
    yield from fillers(on, certainty[1], len(p), 1.0)
    yield from fillers(lost, certainty[2], len(p), 0.0)


@_world
def fork_sure_filler() -> Iterable[State]:
    """Six tokens, of which the third decides; it is a toss-up, the others are nearly certain."""
    spans = (0.93, 0.95, 2), (0.95, 0.98, 3), (0.90, 0.93, 3)
    return _decision((1 / 3, 1 / 3, 1 / 3), {0}, [between(*span) for span in spans])


@_world
def sure_fork_filler() -> Iterable[State]:
    """Six tokens, of which the third decides; it is sure of a wrong one, the others are open."""
    spans = (0.40, 0.44, 2), (0.44, 0.50, 3), (0.50, 0.56, 3)
    return _decision((0.08, 0.86, 0.06), {0}, [between(*span) for span in spans])


@_world
def wandering_fork() -> Iterable[State]:
    """The first token sends the decision to one of four places; it is a toss-up, the others are nearly certain."""
    return _wandering((0.25, 0.28, 0.25, 0.22), (0.90, 0.98))


@_world
def wandering_sure() -> Iterable[State]:
    """The first token sends the decision to one of four places; it is sure of a wrong one, the others are open."""
    return _wandering((0.08, 0.82, 0.06, 0.04), (0.35, 0.55))


def _wandering(fork: tuple[float, ...], span: tuple[float, float]) -> Iterator[State]:
    """Token k of the first state leads to a path of k fillers, the decision `fork`, and 3 - k fillers."""
    sure = iter(between(*span, 18))
    yield State("gate", (0.3, 0.27, 0.23, 0.2), ("path0fork", *(f"path{k}before1" for k in (1, 2, 3))))
    for k in range(4):
        certainty = [[next(sure) for _ in range(count)] for count in (k, 3 - k, 3 - k)]
        yield from _decision(fork, {0}, certainty, [f"path{k}{name}" for name in ("before", "fork", "right", "wrong")])


@_world
def rare_filler() -> Iterable[State]:
    """The right token is a common one; the rare tokens, everywhere, make no difference."""
    return _decision((0.48, 0.42, 0.05, 0.03, 0.02), {1}, ([0.88], [0.86, 0.90], [0.87, 0.91]))


@_world
def rare_right() -> Iterable[State]:
    """The right token has a probability of 0.05; the fillers have no rare tokens."""
    return (
        State("before1", falling(0.24, 5, 0.9), ("fork",) * 5),
        State("fork", (0.40, 0.30, 0.15, 0.10, 0.05), (*["wrong1"] * 4, "right1")),
        State("right1", falling(0.25, 5, 0.88), ("right2",) * 5),
        State("right2", falling(0.26, 5, 0.86), (1.0,) * 5),
        State("wrong1", falling(0.27, 5, 0.84), ("wrong2",) * 5),
        State("wrong2", falling(0.28, 5, 0.82), (0.0,) * 5),
    )


@_world
def two_modes() -> Iterable[State]:
    """Two of four answers are right, one of them likelier than the other; then a filler."""
    return _decision((0.40, 0.30, 0.20, 0.10), {1, 3}, ([], [0.60], [0.50]), ("", "answer", "right", "wrong"))


@_world
def sparse_chain() -> Iterable[State]:
    """Four decisions, each right with probability 1/3, and all must be right: most groups are all wrong."""
    ways = [*((f"fork{k}", f"lost{k - 1}") for k in (2, 3, 4)), (1.0, 0.0)]
    for k, (right, wrong) in enumerate(ways):
        yield State(f"fork{k + 1}", (1 / 3, 0.34 + 0.01 * k, 2 / 3 - 0.34 - 0.01 * k), (right, wrong, wrong))
    yield from fillers("lost", [0.36, 0.37, 0.38], 3, 0.0)


@_world
def free_length() -> Iterable[State]:
    """The first token fixes the reward; then each token goes on or ends the response, after eight at the latest."""
    yield State("answer", (0.3, 0.7), ("right1", "wrong1"))
    for side, reward, less in (("right", 1.0, 0.0), ("wrong", 0.0, 0.005)):
        for k in range(1, 8):
            more = 0.73 - 0.01 * k - less
            yield State(f"{side}{k}", (more, 1 - more), (f"{side}{k + 1}" if k < 7 else reward, reward))


@_world
def forks_between_sure() -> Iterable[State]:
    """Three forks between forced tokens; all three must go right."""

    def fork(k: int, p: tuple[float, ...]) -> State:
        return State(f"fork{k}", p, (f"on{k}", f"off{k}", f"off{k}"))

    def forced(name: str, top: float, to: str | float) -> State:
        return State(name, falling(top, 3), (to,) * 3)

    return (
        fork(1, (0.50, 0.30, 0.20)), forced("on1", 0.95, "fork2"), forced("off1", 0.94, "stray2"),
        fork(2, (0.48, 0.32, 0.20)), forced("on2", 0.97, "fork3"), forced("off2", 0.96, "stray3"),
        fork(3, (0.46, 0.34, 0.20)), forced("on3", 0.99, 1.0), forced("off3", 0.98, 0.0),
        State("stray2", (0.45, 0.35, 0.20), ("off2",) * 3), State("stray3", (0.44, 0.36, 0.20), ("off3",) * 3),
    )  # fmt: skip


@functools.partial(_world, prompts={"easy": 0.5, "hard": 0.5})
def easy_and_hard() -> Iterable[State]:
    """Two prompts: one is answered right with probability 0.9, the other with 0.07."""
    easy, hard = ("", "easy", "easyright", "easywrong"), ("", "hard", "hardright", "hardwrong")
    yield from _decision((0.90, 0.06, 0.04), {0}, ([], [0.50, 0.62], [0.52, 0.64]), easy)
    yield from _decision((0.07, 0.53, 0.40), {0}, ([], [0.54, 0.66], [0.56, 0.68]), hard)


@_world
def lucky_guess() -> Iterable[State]:
    """The first token guesses, right in one of four, or reasons, in two steps that succeed with 0.8 and 0.85."""
    return (
        State("start", (0.30, 0.32, 0.22, 0.16), ("reason1", "guess", "guess", "guess")),
        State("reason1", (0.80, 0.10, 0.06, 0.04), ("reason2", "slip", "slip", "slip")),
        State("reason2", (0.85, 0.07, 0.05, 0.03), (1.0, 0.0, 0.0, 0.0)),
        State("slip", (0.70, 0.16, 0.09, 0.05), (0.0,) * 4),
        State("guess", (0.25, 0.27, 0.26, 0.22), (1.0, 0.0, 0.0, 0.0)),
    )
