"""What distillation losses do in expectation: identities in small worlds, the negative ones too."""

import functools
import math

import pytest
import torch
from distillation_forms import FORMS
from distillation_worlds import Form, apart, responses, taught, updates, ways
from torch import Tensor

import tokenpo
from tokenpo.lab.exact.truth import slopes
from tokenpo.lab.exact.world import State, World

SEEDS = (0, 1, 2)
NEAR = 1e-10


@functools.cache
def expected(name: str, seed: int, same: bool = False) -> Tensor:
    """The expected update of a form; with `same`, of a student that is the teacher."""
    at = taught(seed)
    chance, each = updates(at, FORMS[name], at.teacher if same else None)
    return chance @ each


def down(seed: int) -> dict[str, Tensor]:
    return ways(taught(seed), taught(seed).world.initial)


def noise(form: Form, seed: int) -> float:
    chance, each = updates(taught(seed), form)
    return float(chance @ (each - chance @ each).square().sum(1))


def close(x: Tensor, y: Tensor) -> bool:
    return float((x - y).norm()) < NEAR


@pytest.mark.parametrize("seed", SEEDS)
def test_the_listed_responses_are_all(seed: int) -> None:
    """Their chances sum to 1, and the divergence of whole responses is the sum over them."""
    at = taught(seed)
    walked, p, q = responses(at.world), at.world.initial.log_softmax(-1), at.teacher.log_softmax(-1)
    lp, lq = (torch.where(walked.mask, walked.taken(x), 0.0).sum(1) for x in (p, q))
    assert len(lp) == 121 and float(lp.exp().sum()) == pytest.approx(1, abs=1e-14)
    assert float(lp.exp() @ (lp - lq)) == pytest.approx(float(apart(at, at.world.initial)), abs=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ways_down_are_those_of_finite_differences(seed: int) -> None:
    at = taught(seed)
    step = torch.zeros_like(at.world.initial)
    step[2, 1] = 1e-5
    slope = (apart(at, at.world.initial + step) - apart(at, at.world.initial - step)) / 2e-5
    place = 2 * step.shape[1] + 1
    assert float(slope) == pytest.approx(-float(down(seed)["sequence"][place]), abs=1e-9)


EXACT = {
    "credit x to go": "sequence", "credit x": "reverse", "credit x + KL of the state": "reverse",
    "path of k2": "reverse", "path of k3": "forward", "path and credit of k3": "reverse",
    "full reverse": "reverse", "full forward": "forward", "full JSD": "jsd",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXACT)
def test_descends_its_divergence(name: str, seed: int) -> None:
    assert close(expected(name, seed), down(seed)[EXACT[name]])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [name for name in FORMS if name not in EXACT])
def test_descends_none_of_the_four(name: str, seed: int) -> None:
    """As expected updates of any length: the best multiple is still off by a hundredth."""
    update = expected(name, seed)
    for way in down(seed).values():
        nearest = way * (update @ way) / way.square().sum()
        assert float((update - nearest).norm()) > 0.01 * float(update.norm()) or float(update.norm()) < NEAR


@pytest.mark.parametrize("seed", SEEDS)
def test_the_negative_results(seed: int) -> None:
    """A credit of the state alone and the path of k1 have no expected update; −k3 ascends the forward divergence."""
    to = down(seed)
    for name in ("credit −KL of the state", "path of k1"):
        assert float(expected(name, seed).norm()) < NEAR
        assert noise(FORMS[name], seed) > 0.1
    assert close(expected("credit −k3", seed), to["reverse"] - to["forward"])


@pytest.mark.parametrize("seed", SEEDS)
def test_who_stands_still_at_the_teacher(seed: int) -> None:
    moving = {name for name in FORMS if float(expected(name, seed, same=True).norm()) > 1e-3}
    assert moving == {"top-k soft targets", "top-k forward", "top-k forward, at least 0", "top-k reverse"}
    still = set(FORMS) - moving
    assert max(float(expected(name, seed, same=True).norm()) for name in still) < NEAR


@pytest.mark.parametrize("seed", SEEDS)
def test_less_noise_for_the_same_update(seed: int) -> None:
    """The whole distribution in place of one sample; and a baseline of the state need not help."""
    assert noise(FORMS["full reverse"], seed) < noise(FORMS["credit x"], seed) / 2
    assert noise(FORMS["full forward"], seed) < noise(FORMS["path of k3"], seed) / 2
    assert noise(FORMS["credit x to go"], seed) > noise(FORMS["credit x"], seed)


def test_the_gradient_in_the_logits() -> None:
    """By hand, at a state with p = (1/2, 1/4, 1/4) and q = (1/4, 1/4, 1/2): the forward way down is q − p."""
    p, q = (0.5, 0.25, 0.25), torch.tensor([[0.25, 0.25, 0.5]], dtype=torch.float64)
    at = type(taught(0))(World("one", "", None, "", (State("s", p, (0.0, 0.0, 1.0)),), {"s": 1.0}), q.log())
    forward = updates(at, FORMS["full forward"])[1][0]
    assert forward.tolist() == pytest.approx([-0.25, 0.0, 0.25], abs=1e-15)
    gap = math.log(2) / 4  # KL(p ‖ q) = ½ log 2 − ¼ log 2
    reverse = updates(at, FORMS["full reverse"])[1][0]
    wanted = [-0.5 * (math.log(2) - gap), 0.25 * gap, 0.25 * (math.log(2) + gap)]
    assert reverse.tolist() == pytest.approx(wanted, abs=1e-15)


def test_rewards_and_a_teacher() -> None:
    """In groups of two, which hold half of the gradient of the reward: opd with rewards descends both."""
    at = taught(0)
    chance, each = updates(at, tokenpo.method("opd", rewards=True), size=2)
    both = slopes(at.world, at.world.initial)["J"].flatten() / 2 + down(0)["reverse"]
    assert close(chance @ each, both)
