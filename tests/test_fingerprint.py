"""Fingerprints: GRPO's by hand, what each fact does to a method that reads it, and the picture of it."""

import dataclasses
from xml.etree import ElementTree

import pytest
import torch
from fingerprint.curves import AXES, EQUAL, RATIOS, axes_of, distance, fingerprint
from fingerprint.drawing import draw, panels
from fingerprint.step import FOCAL, LENGTH, SIZE, Facts, pushes

import tokenpo
from tokenpo.core.parts import ReferenceKl

GRPO = tokenpo.method("grpo")
A = 0.5 / ((2 / 7) ** 0.5 + 1e-6)  # half of eight are right: mean 1/2, squared deviations sum to 2, over G − 1


def curve(name: str, axis: str, channel: int = 0) -> torch.Tensor:
    return fingerprint(tokenpo.method(name)).curves[axis][..., channel]


def test_grpo_by_hand():
    up, down = curve("grpo", "ratio").T.tolist()
    assert up == pytest.approx([r * A if r < 1.2 else 0.0 for r in RATIOS])
    assert down == pytest.approx([-r * A if r > 0.8 else 0.0 for r in RATIOS])
    lengths = next(axis.values for axis in AXES if axis.key == "length")
    assert curve("grpo", "length")[:, 0].tolist() == pytest.approx([A * LENGTH / n for n in lengths])


@pytest.mark.parametrize("right", range(SIZE + 1))
def test_accuracy_by_hand(right):
    reward = torch.tensor([1.0] * right + [0.0] * (SIZE - right), dtype=torch.float64)
    scaled = (reward - reward.mean()) / (reward.std() + 1e-6)
    up, down = pushes(GRPO, [Facts(accuracy=right / SIZE)])[0, :, 0].tolist()
    # There is no right response where none is right, and no wrong one where all are.
    assert up == pytest.approx(scaled[0].item(), abs=1e-9) if right else up != up
    assert down == pytest.approx(scaled[-1].item(), abs=1e-9) if right < SIZE else down != down


@pytest.mark.parametrize(
    ("name", "varies"),
    [
        ("tr_grpo", "probability"), ("gtpo", "entropy"), ("stapo", "probability"), ("thr", "influence"),
        ("tw_grpo", "divergence"), ("ha_dw", "earlier_accuracy"), ("arm", "prompt_logprob"), ("gspo", "response_ratio"),
        ("t_spmo", "position"), ("hmpo", "length"), ("tepo", "ratio_fallen"), ("dppo_kl", "rollout_ratio"),
        ("adv_reweight", "ref_ratio"), ("gpg", "batch_accuracy"), ("grpo_s", "response_entropy"),
    ],
)  # fmt: skip
def test_a_method_depends_on_what_it_is_about(name, varies):
    own, axis = fingerprint(tokenpo.method(name)), next(axis for axis in AXES if axis.key == varies)
    assert own.varies(axis, 0)
    assert not fingerprint(GRPO).varies(axis, 0) or varies == "length"
    assert any(panel.axis is axis for panel in panels(tokenpo.method(name), GRPO))


def test_an_entropy_bonus_is_a_push_on_the_entropy():
    """AER pays for entropy in groups of which less than half are right."""
    bonus = curve("aer", "accuracy", channel=1)
    assert (bonus[:4].nan_to_num(1.0) > 0).all() and not bonus[4:].nan_to_num().any()
    assert not curve("gtpo", "accuracy", channel=1).nan_to_num().any()


def test_equal_only_where_nothing_differs():
    assert distance(GRPO, dataclasses.replace(GRPO, name="other"))[0] == 0
    assert distance(tokenpo.method("grpo", high=0.3), GRPO)[0] > 0.005
    for far, where in (distance(GRPO, tokenpo.method("thr")), distance(tokenpo.method("thr"), GRPO)):
        assert far > EQUAL and where in {axis.title for axis in AXES}


def test_rejected_tokens_that_leave_have_no_push():
    """mis_geo rejects a response of 16 tokens whose ratio to the sampler is beyond 1.001: here 2^(1/16)."""
    left = pushes(tokenpo.corrected(GRPO, "mis_geo", leaves=True), [Facts(), Facts(rollout_ratio=2.0)])[..., 0]
    assert left.tolist() == [pytest.approx([A, -A]), [0, 0]]


def test_draws_are_no_dependence():
    """S-GRPO takes tokens at random, wherever they stand."""
    own = fingerprint(tokenpo.method("s_grpo"))
    keys = {axis.key for axis in AXES if own.varies(axis, 0)}
    assert own.noise > 0 and keys == {"ratio", "length", "accuracy"}


def test_the_token_is_the_same_in_both_responses():
    """With an advantage of one sign, and no length or group in it, right and wrong are pushed alike."""
    held = dataclasses.replace(GRPO, penalties=(ReferenceKl(0.5),), surrogate=tokenpo.method("raft").surrogate)
    apart = pushes(held, [Facts(ref_ratio=2.0)]) - pushes(held, [Facts()])
    assert FOCAL == (0, SIZE)
    assert apart[0, 0, 0].item() == pytest.approx(apart[0, 1, 0].item()) == pytest.approx(0.5 * (2 - 1))


def test_an_input_that_is_not_designed_has_an_axis_of_its_own():
    class Drift:
        """A method from outside: the credit of GRPO, weighed by the drift of the entropy."""

        needs = frozenset({"entropy_drift"})
        prepare = GRPO.prepare

        def loss(self, batch, totals):
            value = -(batch.policy.logprob * batch.credit.advantage * batch.policy.entropy_drift)[batch.mask].sum()
            return tokenpo.Loss(value / totals.tokens, {})

    own = fingerprint(Drift())
    axis = axes_of(Drift())[-1]
    assert axis.key == "entropy_drift" and own.varies(axis, 0)
    assert own.curves["entropy_drift"][:, 0, 0].tolist() == pytest.approx([A * x for x in axis.values])


def test_the_picture_is_drawn_from_the_curves():
    shown = panels(tokenpo.method("thr"), GRPO)
    assert [panel.axis.key for panel in shown] == ["ratio", "length", "accuracy", "influence"]
    picture = ElementTree.fromstring(draw("<thr>", tokenpo.method("thr"), GRPO))
    name = "{http://www.w3.org/2000/svg}"
    assert "<thr>" in (picture.findtext(f"{name}title") or "")
    headings = [x.text for x in picture.iter(f"{name}text") if x.get("class") == "h"]
    assert headings == [panel.axis.title for panel in shown]
    lines = [x.get("class") for x in picture.iter(f"{name}path") if x.get("class") in ("r", "w", "g")]
    assert lines == ["g", "g", "r", "w"] * 4
