"""Fingerprints: GRPO's by hand, what each fact does to a method that reads it, and the picture of it."""

from xml.etree import ElementTree

import pytest
import torch
from fingerprint.curves import AXES, RATIOS, fingerprint
from fingerprint.drawing import HEIGHT, WIDTH, panel_svg, panels, svg
from fingerprint.step import LENGTH

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
