"""The exact values against the sum over all responses, one by one, and a wrong world against its error."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tokenpo.base.errors import TokenPOError
from tokenpo.evidence.exact.model import Table
from tokenpo.evidence.exact.policies import divergence, drifted, policy
from tokenpo.evidence.exact.truth import deciding, enumerated, slopes, truth
from tokenpo.evidence.exact.world import State, World
from tokenpo.evidence.exact.worlds import LARGE, WORLDS


def moved(world: World) -> torch.Tensor:
    """A policy at which nothing is special."""
    draws = torch.Generator().manual_seed(1)
    return world.initial + torch.randn(world.initial.shape, dtype=torch.float64, generator=draws)


@pytest.mark.parametrize("name", WORLDS)
def test_is_the_sum_over_all_responses(name: str) -> None:
    world = WORLDS[name]()
    every, logits = enumerated(world), moved(world).requires_grad_()
    logp, at = logits.log_softmax(-1), truth(world, logits)
    entropies = -(logp.exp() * logp).sum(-1)
    taken = logp[every.states, every.tokens] * every.mask
    p = world.shares[every.prompt] * taken.sum(1).exp()
    length = (p * every.mask.sum(1)).sum()
    means = {
        "J": (p * every.reward).sum(),
        "entropy": (p * (entropies[every.states] * every.mask).sum(1)).sum() / length,
        "length": length,
    }
    assert 8 <= len(p) <= 2000 and float(p.sum().detach()) == pytest.approx(1, abs=1e-13)
    exact = slopes(world, logits)
    for value, mean in ((at.J, means["J"]), (at.entropy, means["entropy"]), (at.length, means["length"])):
        torch.testing.assert_close(value, mean, rtol=0, atol=1e-13)
    for key, mean in means.items():
        slope = torch.autograd.grad(mean, logits, retain_graph=True)[0]
        torch.testing.assert_close(exact[key], slope, rtol=0, atol=1e-13)
    # The policy gradient theorem: token credit Q - V gives the gradient of J.
    credit = at.advantage.detach()[every.states, every.tokens] * every.mask
    theorem = torch.autograd.grad((p.detach()[:, None] * credit * taken).sum(), logits)[0]
    torch.testing.assert_close(theorem, exact["J"], rtol=0, atol=1e-13)


def test_sound_share() -> None:
    """Reasoned: 0.3 · 0.8 · 0.85 = 0.204; guessed: 0.7 · 0.25 = 0.175."""
    world = WORLDS["lucky_guess"]()
    assert float(truth(world, world.initial).sound) == pytest.approx(0.204 / 0.379, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "J", "length", "decides"),
    [
        ("fork_sure_filler", 1 / 3, 6, {"fork"}),
        ("sure_fork_filler", 0.08, 6, {"fork"}),
        ("wandering_fork", 0.25, 5, {f"path{k}fork" for k in range(4)}),
        ("wandering_sure", 0.08, 5, {f"path{k}fork" for k in range(4)}),
        ("rare_filler", 0.42, 4, {"fork"}),
        ("rare_right", 0.05, 4, {"fork"}),
        ("two_modes", 0.4, 2, {"answer"}),
        ("sparse_chain", 1 / 81, 4, {f"fork{k}" for k in range(1, 5)}),
        ("free_length", 0.3, None, {"answer"}),
        ("forks_between_sure", 0.5 * 0.48 * 0.46, 6, {"fork1", "fork2", "fork3"}),
        ("easy_and_hard", (0.9 + 0.07) / 2, 3, {"easy", "hard"}),
        # 0.3 responses of three tokens, 0.7 of two
        ("lucky_guess", 0.3 * 0.8 * 0.85 + 0.7 * 0.25, 2.3, {"start", "reason1", "reason2", "guess"}),
        ("long_filler", 0.45**3, 35, {"at7", "at17", "at27"}),
        ("wide", None, 6, {"fork"}),
        ("paraphrases", 0.4**3, 6, {"turn0", "turn1", "turn2"}),
        ("many_prompts", (0.04 + 0.15 + 0.35 + 0.60 + 0.85 + 0.96) / 6, 11, {f"fork{k}" for k in range(6)}),
        # the second fork is one token more
        (
            "hard_prompts",
            (0.02 + 0.10 + 0.30 + 0.70 + 0.97) / 5,
            16 + sum(p**0.5 for p in (0.02, 0.10, 0.30, 0.70, 0.97)) / 5,
            {f"{which}{k}" for which in ("first", "second") for k in range(5)},
        ),
        ("long_paraphrases", (0.25**2 + 0.55**2) / 2, 16, {f"{name}{k}" for name in ("turn", "then") for k in (0, 1)}),
    ],
)
def test_a_world_is_what_it_says(name: str, J: float | None, length: float | None, decides: set[str]) -> None:
    world = (WORLDS | LARGE)[name]()
    at, chosen = truth(world, world.initial), deciding(world)
    assert {state.name for state, yes in zip(world.states, chosen.tolist(), strict=True) if yes} == decides
    assert J is None or float(at.J) == pytest.approx(J, rel=1e-12)
    assert length is None or float(at.length) == pytest.approx(length, rel=1e-12)
    entropies = [-sum(p * torch.tensor(p).log().item() for p in state.p) for state in world.states]
    fillers = [round(h, 9) for h, yes in zip(entropies, chosen.tolist(), strict=True) if not yes]
    assert len(set(fillers)) == len(fillers), "two fillers are equally sure"


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


@pytest.mark.parametrize(("name", "level"), [("late", 0.95), ("stuck", 0.03)])
@pytest.mark.parametrize("world", ["sparse_chain", "easy_and_hard", "paraphrases"])
def test_later_policies(world: str, name: str, level: float) -> None:
    chosen = (WORLDS | LARGE)[world]()
    assert float(truth(chosen, policy(Table(chosen), name)).J) == pytest.approx(level, abs=1e-9)


@pytest.mark.parametrize("way", ["toward", "away", "random"])
def test_drift(way: str) -> None:
    world = WORLDS["forks_between_sure"]()
    to = drifted(Table(world), way)
    assert divergence(world, world.initial, to) == pytest.approx(0.01, rel=1e-9)
    gain = float(truth(world, to).J - truth(world, world.initial).J)
    assert way == "random" or (gain > 0.01 if way == "toward" else gain < -0.01)


def broken(**changes: State) -> World:
    world = WORLDS["two_modes"]()
    return replace(world, states=tuple(changes.get(state.name, state) for state in world.states))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answer": State("answer", (0.4, 0.3, 0.2, 0.2), ("wrong1", "right1", "wrong1", "right1"))}, "sum to 1"),
        ({"answer": State("answer", (0.5, 0.3, 0.2, 0.0), ("wrong1", "right1", "wrong1", "right1"))}, "above 0"),
        (
            {"answer": State("answer", (0.4, 0.3, 0.2, 0.1), ("wrong1", "wrong1", "wrong1", "wrong1"))},
            "leads to right1",
        ),
        ({"answer": State("answer", (0.4, 0.3, 0.2, 0.1), ("wrong", "right1", "wrong1", "right1"))}, "is no state"),
        ({"answer": State("answer", (0.5, 0.3, 0.2), ("wrong1", "right1", "wrong1"))}, "all V"),
        ({"right1": State("right1", (0.4, 0.3, 0.2, 0.1), ("answer",) * 4)}, "come back"),
        ({"right1": State("wrong1", (0.4, 0.3, 0.2, 0.1), (1.0,) * 4)}, "one name"),
    ],
)
def test_a_wrong_world_is_refused(change: dict[str, State], said: str) -> None:
    with pytest.raises(TokenPOError, match=said):
        broken(**change)
