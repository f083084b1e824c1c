"""Fingerprints: GRPO's by hand, what each fact does to a method that reads it, and the picture of it."""

import dataclasses
from xml.etree import ElementTree

import pytest
import torch
from fingerprint.curves import AXES, EQUAL, RATIOS, distance, fingerprint
from fingerprint.drawing import HEIGHT, WIDTH, panel_svg, panels, svg
from fingerprint.step import LENGTH, SIZE, Facts, pushes

import tokenpo

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


def test_equal_only_where_nothing_differs():
    assert distance(GRPO, dataclasses.replace(GRPO, name="other"))[0] == 0
    assert distance(tokenpo.method("grpo", high=0.3), GRPO)[0] > 0.005
    for far, where in (distance(GRPO, tokenpo.method("thr")), distance(tokenpo.method("thr"), GRPO)):
        assert far > EQUAL and where in {axis.title for axis in AXES}


def test_draws_are_no_dependence():
    """S-GRPO takes tokens at random, wherever they stand."""
    own = fingerprint(tokenpo.method("s_grpo"))
    keys = {axis.key for axis in AXES if own.varies(axis, 0)}
    assert own.noise > 0 and keys == {"ratio", "length", "accuracy"}


def test_the_picture_is_drawn_from_the_curves():
    shown = panels(tokenpo.method("thr"), GRPO)
    assert [panel.axis.key for panel in shown] == ["ratio", "length", "accuracy", "influence"]
    picture = ElementTree.fromstring(svg("<thr>", WIDTH, HEIGHT, [panel_svg(panel, 0, 0) for panel in shown]))
    name = "{http://www.w3.org/2000/svg}"
    assert "<thr>" in (picture.findtext(f"{name}title") or "")
    headings = [x.text for x in picture.iter(f"{name}text") if x.get("class") == "h"]
    assert headings == [panel.axis.title for panel in shown]
    lines = [x.get("class") for x in picture.iter(f"{name}path") if x.get("class") in ("r", "w", "g")]
    assert lines == ["g", "g", "r", "w"] * 4
