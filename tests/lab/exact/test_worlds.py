"""Each world against what is said of it, and against itself with one thing wrong: a wrong world must be noticed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch

from tokenpo.base.errors import TokenPOError
from tokenpo.lab.exact.truth import deciding, slopes, truth
from tokenpo.lab.exact.world import State, World
from tokenpo.lab.exact.worlds import ENTROPY, LARGE, RARE, WORLDS

ALL = WORLDS | LARGE
PROMPTS = "prompts of all difficulties weigh the same in the gradient"
SIBLINGS = "siblings that share a prefix tell what a token is worth"
SHARES = (0.02, 0.10, 0.30, 0.70, 0.97)  # of hard_prompts


@dataclass(frozen=True)
class Said:
    """What a world is at its initial policy; lengths in tokens."""

    J: float
    length: float
    decides: set[str]


def endings(right: float) -> float:
    """Mean tokens of free_length: the first, and seven that each go on with 0.73 - 0.01 k, 0.005 less if wrong."""
    total = 1.0
    for share, less in ((right, 0.0), (1 - right, 0.005)):
        alive = share
        for k in range(1, 8):
            total += alive
            alive *= 0.73 - 0.01 * k - less
    return total


SAID = {
    "fork_sure_filler": Said(1 / 3, 6, {"fork"}),
    "sure_fork_filler": Said(0.08, 6, {"fork"}),
    "wandering_fork": Said(0.25, 5, {f"path{k}fork" for k in range(4)}),
    "wandering_sure": Said(0.08, 5, {f"path{k}fork" for k in range(4)}),
    "rare_filler": Said(0.42, 4, {"fork"}),
    "rare_right": Said(0.05, 4, {"fork"}),
    "two_modes": Said(0.4, 2, {"answer"}),
    "sparse_chain": Said(1 / 81, 4, {f"fork{k}" for k in range(1, 5)}),
    "free_length": Said(0.3, endings(0.3), {"answer"}),
    "forks_between_sure": Said(0.5 * 0.48 * 0.46, 6, {"fork1", "fork2", "fork3"}),
    "easy_and_hard": Said((0.9 + 0.07) / 2, 3, {"easy", "hard"}),
    # 0.3 responses of three tokens, 0.7 of two
    "lucky_guess": Said(0.3 * 0.8 * 0.85 + 0.7 * 0.25, 2.3, {"start", "reason1", "reason2", "guess"}),
    "long_filler": Said(0.45**3, 35, {"at7", "at17", "at27"}),
    # after the first of 40 tokens, 39 share out 0.8 in falling powers of 0.9
    "wide": Said(0.8 * sum(0.9**k for k in (3, 8, 18, 33)) / ((1 - 0.9**39) / 0.1), 6, {"fork"}),
    "paraphrases": Said(0.4**3, 6, {"turn0", "turn1", "turn2"}),
    "many_prompts": Said((0.04 + 0.15 + 0.35 + 0.60 + 0.85 + 0.96) / 6, 11, {f"fork{k}" for k in range(6)}),
    # the second fork is one token more
    "hard_prompts": Said(
        sum(SHARES) / 5, 16 + sum(p**0.5 for p in SHARES) / 5,
        {f"{which}{k}" for which in ("first", "second") for k in range(5)},
    ),
    "long_paraphrases": Said((0.25**2 + 0.55**2) / 2, 16, {f"{name}{k}" for name in ("turn", "then") for k in (0, 1)}),
}  # fmt: skip


def faults(world: World) -> list[str]:
    """In what a world is not what is said of it."""
    said, at, chosen = SAID[world.name], truth(world, world.initial), deciding(world)
    entropies = [round(-sum(p * math.log(p) for p in state.p), 9) for state in world.states]
    fillers = [h for h, yes in zip(entropies, chosen.tolist(), strict=True) if not yes]
    holds = PREMISES[world.premise](world) if world.premise in PREMISES else world.holds
    wrong = {
        "mean reward": abs(float(at.J) - said.J) > 1e-12,
        "length": abs(float(at.length) - said.length) > 1e-11,
        "decisions": {s.name for s, yes in zip(world.states, chosen.tolist(), strict=True) if yes} != said.decides,
        "two fillers are equally sure": len(set(fillers)) < len(fillers),
        "premise": holds is not world.holds,
    }
    return [name for name, fault in wrong.items() if fault]


def where_uncertain(world: World) -> bool:
    """Every decision is more uncertain than every filler; a state that sends to several places is neither."""
    p, chosen = world.initial.exp(), deciding(world)
    entropy, ways = -(p * p.log()).sum(-1), torch.tensor([len(set(state.to)) for state in world.states])
    return bool(entropy[chosen].min() > entropy[~chosen & (ways == 1)].max())


def rare_is_noise(world: World) -> bool:
    """No token below 0.1 is better than the mean by more than rounding."""
    return bool(truth(world, world.initial).advantage[world.initial.exp() < 0.1].max() < 1e-9)


def prompts_weigh_alike(world: World) -> bool:
    """What the prompts add to the gradient differs by less than a quarter; no two prompts share a state."""
    parts = []
    for prompt, share in world.prompts.items():
        names, new = {prompt}, {prompt}
        while new:
            new = {x for name in new for x in world.states[world.index[name]].to if isinstance(x, str)} - names
            names |= new
        rows = [world.index[name] for name in names]
        parts.append(float(slopes(world, world.initial)["J"][rows].norm()) / share)
    return max(parts) < 1.25 * min(parts)


def siblings_tell(world: World) -> bool:
    """Two siblings that both come to a later decision have come there by the same tokens half of the time."""
    p, on = world.initial.exp(), world.next >= 0
    states = torch.arange(len(p))[:, None].expand_as(on)[on]
    alike = torch.eye(len(p), dtype=p.dtype).index_put((states, world.next[on]), -(p[on] ** 2), True)
    start = torch.zeros(len(p), dtype=p.dtype).index_put((world.starts,), world.shares, True)
    together, visits = torch.linalg.solve(alike.T, start), truth(world, world.initial).visits
    later = deciding(world).index_fill(0, world.starts, False)
    both = visits**2 * len(world.prompts)  # no two prompts share a state, and all are as frequent
    return bool((together[later] > 0.5 * both[later]).all())


PREMISES: dict[str, Callable[[World], bool]] = {
    ENTROPY: where_uncertain,
    f"{ENTROPY}, wherever in the response that is": where_uncertain,
    RARE: rare_is_noise,
    PROMPTS: prompts_weigh_alike,
    SIBLINGS: siblings_tell,
}


@pytest.mark.parametrize("name", ALL)
def test_is_what_is_said_of_it(name: str) -> None:
    assert faults(ALL[name]()) == []


def with_states(world: World, **changed: State) -> World:
    return dataclasses.replace(world, states=tuple(changed.get(state.name, state) for state in world.states))


def without(world: World, gone: State) -> World:
    """A filler is left out: what led to it leads where it does."""
    on = gone.to[0]
    states = (
        dataclasses.replace(state, to=tuple(on if x == gone.name else x for x in state.to))
        for state in world.states
        if state != gone
    )
    prompts = {str(on) if name == gone.name else name: share for name, share in world.prompts.items()}
    return dataclasses.replace(world, states=tuple(states), prompts=prompts)


def mutants(world: World) -> Iterator[tuple[str, Callable[[], World]]]:
    """The world with one thing wrong, at every decision and in three fillers of each kind."""
    chosen, advantage = deciding(world).tolist(), truth(world, world.initial).advantage
    replace = dataclasses.replace

    def one(state: State, **changes: object) -> Callable[[], World]:
        return lambda: with_states(world, **{state.name: replace(state, **changes)})

    for k, state in enumerate(world.states):
        if chosen[k]:
            to, (best, worst) = list(state.to), (int(advantage[k].argmax()), int(advantage[k].argmin()))
            to[best] = to[worst]
            yield f"{state.name} is never right", one(state, to=tuple(to))
            if len(set(state.p)) > 1:
                yield f"{state.name} has the probabilities of others", one(state, p=(*state.p[1:], state.p[0]))
    plain = [state for k, state in enumerate(world.states) if not chosen[k] and len(set(state.to)) == 1]
    for state, other in zip(spread(plain), spread(plain[1:] + plain[:1]), strict=True):
        if other != state:
            yield f"{state.name} is as sure as {other.name}", one(state, p=other.p)
        yield f"{state.name} is left out", lambda gone=state: without(world, gone)
    for state in spread([state for state in world.states if not isinstance(state.to[-1], str)]):
        yield f"{state.name} ends otherwise", one(state, to=(*state.to[:-1], 1.0 - float(state.to[-1])))
    if len(world.prompts) > 1:
        shares = dict(zip(world.prompts, (0.75, *[0.25 / (len(world.prompts) - 1)] * len(world.prompts)), strict=False))
        yield "prompts of other shares", lambda: replace(world, prompts=shares)
    if world.premise in PREMISES:
        yield "the premise is judged wrongly", lambda: replace(world, holds=not world.holds)


def spread(states: list[State]) -> list[State]:
    """The first, the one in the middle and the last."""
    return [states[k] for k in sorted({0, len(states) // 2, len(states) - 1})] if states else []


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_world_is_noticed(name: str) -> None:
    """By what is said of it, or because it is refused."""

    def unnoticed(make: Callable[[], World]) -> bool:
        try:
            return faults(make()) == []
        except TokenPOError:
            return False

    tried = list(mutants(ALL[name]()))
    assert len(tried) >= 4
    assert [what for what, make in tried if unnoticed(make)] == []


@pytest.mark.parametrize(("uncertain", "certain"), [
    ("fork_sure_filler", "sure_fork_filler"), ("wandering_fork", "wandering_sure"),
])  # fmt: skip
def test_the_premise_of_entropy(uncertain: str, certain: str) -> None:
    """Where it is true every decision is more uncertain than every filler; where it is false, less."""
    for name, holds in ((uncertain, True), (certain, False)):
        world = WORLDS[name]()
        p, chosen = world.initial.exp(), deciding(world)
        entropy = -(p * p.log()).sum(-1)
        filler = entropy[~chosen & (torch.arange(len(p)) > 0)] if "wandering" in name else entropy[~chosen]
        assert world.holds is holds
        assert bool(entropy[chosen].min() > filler.max() if holds else entropy[chosen].max() < filler.min())


def test_the_premise_of_rarity() -> None:
    """True: the right token is common, and only fillers and wrong ones are rare. False: the rarest token is right."""
    rare, right = WORLDS["rare_filler"](), WORLDS["rare_right"]()
    assert (rare.holds, right.holds) == (True, False)
    for world, place in ((rare, 1), (right, -1)):
        fork = world.states[world.index["fork"]]
        best = truth(world, world.initial).advantage[world.index["fork"]].argmax()
        assert sorted(fork.p, reverse=True)[place] == fork.p[best]
    assert min(min(state.p) for state in right.states if state.name != "fork") > 0.1
