"""Pictures and tables of the effective coefficient show its numbers, and always with the same bytes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.core.coefficient import coefficients, entropy_at
from tokenpo.evidence.report.coefficients import (
    ENTROPIES,
    RATIOS,
    SHOWN,
    draw,
    numbers,
    text,
    write_coefficients,
)


def test_curves_and_map_are_the_coefficients():
    objective = tokenpo.method("sapo")
    curves, plane, bar = draw("sapo", objective).axes
    lines = {line.get_label(): line for line in curves.lines if line.get_label().startswith("A =")}
    for label, advantage in (("A = +1", 1.0), ("A = −1", -1.0)):
        ratio, c = lines[label].get_data()
        assert (ratio.min(), ratio.max()) == pytest.approx((0.1, 10))
        np.testing.assert_allclose(c, coefficients(objective, torch.as_tensor(ratio), [advantage])[0], rtol=1e-12)
    assert curves.get_xscale() == plane.get_xscale() == "log"
    (mesh,) = plane.collections
    c = np.asarray(mesh.get_array())
    assert c.shape == (65, 121)
    expected = coefficients(objective, torch.logspace(-1, 1, 121, dtype=torch.float64), torch.linspace(-2, 2, 65))
    np.testing.assert_allclose(c, expected, rtol=1e-12, atol=1e-14)
    # The colours are centred at 0, where they are neutral: no channel stands out.
    low, high = mesh.get_clim()
    assert low == -high < -1
    assert np.ptp(mesh.cmap(0.5)[:3]) < 0.02
    assert (mesh.cmap(0.1)[0] > mesh.cmap(0.1)[2]) and (mesh.cmap(0.9)[2] > mesh.cmap(0.9)[0])
    for axes in (curves, plane):
        assert axes.get_xlabel() == "ratio p / p_old, log scale"
    assert curves.get_ylabel() == bar.get_ylabel() == "c, in units of the advantage"
    assert plane.get_ylabel() == "advantage A"


def test_levels_of_entropy_are_shown_where_they_differ():
    """ASPO: two of ten tokens exceed the 80 % quantile of their response, of the shown the last two."""
    curves, *planes, _ = draw("aspo", tokenpo.method("aspo")).axes
    labels = [line.get_label() for line in curves.lines if line.get_label().startswith("A = +1")]
    assert labels == ["A = +1, H_old 0.03 to 0.30 nats", "A = +1, H_old 0.95 to 1.50 nats"]
    assert [axes.get_title(loc="left") for axes in planes] == [label.partition(", ")[2] for label in labels]
    low, high = (np.asarray(axes.collections[0].get_array()) for axes in planes)
    assert (low != high).any()
    curves, _, _ = draw("grpo_s", tokenpo.method("grpo_s")).axes  # reads entropies for its credit alone
    assert len([line for line in curves.lines if line.get_label().startswith("A =")]) == 2


def test_numbers_are_those_of_the_levels():
    objective = tokenpo.method("hapo")
    rows = numbers(objective)
    table = coefficients(objective, RATIOS, [1.0, -1.0], old_entropy=ENTROPIES)
    assert [(a, label) for a, label, _ in rows[:2]] == [(1.0, "H_old 0.03 nats"), (-1.0, "H_old 0.03 nats")]
    off_bound = [0, 1, 3, 4, 5, 6, 7]  # 0.9 bounds the neutral zone
    for i, (_, _, c) in enumerate(rows):
        np.testing.assert_allclose(np.take(c, off_bound), table[SHOWN[i // 2], i % 2, off_bound], rtol=1e-7, atol=1e-12)


def test_a_method_that_reads_both_entropies_moves_the_current_one():
    """TEPO: H below the median of H_old is falling, k3 takes r - 1 off r: 1 for every ratio inside the clip."""
    rows = {(a, label): c for a, label, c in numbers(tokenpo.method("tepo"))}
    falling = [label for _, label in rows if float(label.split()[-2]) < entropy_at(0.5)]
    assert set(falling) == {"H 0.03 to 0.30 nats"}
    np.testing.assert_allclose(rows[1.0, falling[0]], [1, 1, 1, 1, 1, -0.3, -1, -3], rtol=1e-7)
    np.testing.assert_allclose(rows[1.0, "H 0.95 to 1.50 nats"], [0.3, 0.7, 0.9, 1, 1.1, 0, 0, 0], rtol=1e-7)


def test_in_batch_scope_every_level_is_a_response_of_its_own():
    """SENT holds one token at either end of the covariances: ten equal ones of a response would shut each other out."""
    labels = list(dict.fromkeys(label for _, label, _ in numbers(tokenpo.method("sent"))))
    assert labels == ["H 0.03 to 0.30 nats", "H 0.95 to 1.50 nats"]


def test_a_ratio_on_a_bound_is_inside():
    on_bound = tokenpo.method("grpo", low=0.3, high=1.0)
    up, down = (c for _, _, c in numbers(on_bound))
    assert up[6] == pytest.approx(2.0, rel=1e-6)
    assert down[1] == pytest.approx(-0.7, rel=1e-6)
    hapo = numbers(tokenpo.method("hapo"))[-2][2]
    assert hapo[2] == pytest.approx(0.9, rel=1e-6)  # inside the neutral zone a token of high entropy weighs 1


def test_text_is_aligned():
    lines = text("grpo", tokenpo.method("grpo"))
    assert lines[0].startswith("effective coefficient c of grpo, p_old = 0.1")
    assert lines[1].split() == ["ratio", "0.3", "0.7", "0.9", "1", "1.1", "1.3", "2", "4"]
    assert " ".join(lines[2].split()) == "A = +1 0.300 0.700 0.900 1.000 1.100 0.000 0.000 0.000"
    assert " ".join(lines[3].split()) == "A = -1 0.000 0.000 -0.900 -1.000 -1.100 -1.300 -2.000 -4.000"
    assert len({len(line) for line in lines[1:]}) == 1


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_bytes_whatever_the_settings_of_the_reader(ending, tmp_path):
    import matplotlib

    objective = tokenpo.method("cispo")
    first = write_coefficients("cispo", objective, tmp_path / f"one.{ending}").read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "savefig.dpi": 30, "svg.hashsalt": "x"}):
        second = write_coefficients("cispo", objective, tmp_path / f"two.{ending}").read_bytes()
    assert first == second
    assert b"Date" not in first
    assert b"dc:date" not in first
    assert len(first) > 10_000


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("none/out.png", "there is no directory .*none: make it"),
        ("out.jpg", "is .png or .svg, not .jpg"),
        ("out", "without"),
    ],
)
def test_a_place_that_cannot_be_is_named(place, said, tmp_path):
    with pytest.raises(TokenPOError, match=said):
        write_coefficients("grpo", tokenpo.method("grpo"), tmp_path / place)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(TokenPOError, match=r"d\.svg is a directory: name a file in it"):
        write_coefficients("grpo", tokenpo.method("grpo"), tmp_path / "d.svg")

    def full(_, place, **__):
        Path(place).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(TokenPOError, match=r"c\.svg cannot be written: No space left on device; give another place"):
        write_coefficients("grpo", tokenpo.method("grpo"), tmp_path / "c.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["d.svg"]
