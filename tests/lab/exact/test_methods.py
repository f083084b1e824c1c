"""The core methods in four worlds, through the learner: what is known of them shows, and what is not there does not."""

from __future__ import annotations

import math

import pytest
import torch

import tokenpo
from tokenpo.lab.exact import measures, training
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.model import Table
from tokenpo.lab.exact.worlds import WORLDS

CORE = (
    "grpo", "dr_grpo", "dapo", "gspo", "gspo_token", "clip_cov", "kl_cov", "tepo_v1", "tepo", "gtpo", "grpo_s",
    "tr_grpo", "hapo",
)  # fmt: skip
FOUR = ("sure_fork_filler", "two_modes", "free_length", "easy_and_hard")
# Methods that divide by the length of a response: short answers count more there, and length is free.
BY_LENGTH = {"grpo", "gspo", "gspo_token", "clip_cov", "kl_cov", "tr_grpo", "grpo_s"}


@pytest.fixture(scope="module")
def worlds() -> dict[str, Table]:
    return {name: Table(build()) for name, build in WORLDS.items()}


def contestant(name: str, **options: float) -> Contestant:
    return Contestant(name, tokenpo.method(name, **options))


@pytest.mark.parametrize("world", FOUR)
@pytest.mark.parametrize("method", CORE)
def test_on_policy(method, world, worlds):
    """Without weights on tokens the expected update is the gradient's direction, wherever nothing is divided by."""
    result = measures.observe(contestant(method), worlds[world], "init")
    found = {name: measure(result) for name, measure in measures.MEASURES.items()}
    assert all(math.isfinite(x.value) and math.isfinite(x.error) for x in found.values())
    assert -1 <= found["single"].value <= 1 and -1 <= found["useful"].value <= 1
    weighted = method in ("hapo", "tr_grpo", "gtpo") or (world == "free_length" and method in BY_LENGTH)
    assert weighted or found["cosine"].value > 0.99


def test_hapo_gives_the_surest_decision_nothing(worlds):
    model = worlds["sure_fork_filler"]
    result, fork = measures.observe(contestant("hapo"), model, "init"), model.world.index["fork"]
    by_state = result.single.unflatten(-1, model.start().shape).abs().amax((0, 1, 3))
    assert by_state[fork] < 1e-12 < 1e-4 < by_state[torch.arange(len(by_state)) != fork].min()
    assert measures.useful(result).value == pytest.approx(0, abs=1e-12)


def test_clip_after_a_drift(worlds):
    """A drift of 0.01 nats a token on one state is more than GRPO's clip allows there: nothing is left toward it."""
    world = worlds["fork_sure_filler"]
    left = {}
    for name in ("grpo", "cispo"):
        method = contestant(name)
        left[name] = measures.drift(method, world, measures.observe(method, world, "init"), "toward").value
    assert left["grpo"] == pytest.approx(0, abs=1e-9) and left["cispo"] > 0.9


def test_training_arrives_or_stands(worlds):
    size = training.STEPS["middle"]
    dapo = training.train(contestant("dapo"), worlds["two_modes"], size, even=True)
    assert dapo.J[0] == pytest.approx(0.4) and dapo.J[-1] >= training.GOAL > dapo.J[-2]
    assert len(dapo.J) - 2 < dapo.arrival <= len(dapo.J) - 1
    assert dapo.entropy[-1] < dapo.on_arrival("entropy") < dapo.entropy[-2]
    stuck = training.train(contestant("forking_tokens"), worlds["sure_fork_filler"], size, even=True)
    assert stuck.stands and stuck.arrival == math.inf and math.isnan(stuck.on_arrival("entropy"))
    assert stuck.J[-1] == pytest.approx(0.08, abs=1e-12)


def test_seeds_repeat_and_differ(worlds):
    once, again, other = (
        training.train(contestant("hapo"), worlds["two_modes"], 0.2, even=False, seed=seed).J for seed in (0, 0, 1)
    )
    assert once == again != other and len(once) == training.NOISY + 1


def test_hapo_samples_at_its_own_temperature(worlds):
    """From the second batch on; the log-probabilities stay those of the constant one, so that the ratio is 1."""
    with_it, without = (
        training.train(contestant("hapo", tau=tau), worlds["free_length"], 0.2, even=True).J for tau in (0.05, 0.0)
    )
    assert with_it[1] == without[1] and with_it[2] != without[2]
