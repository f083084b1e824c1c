"""README's picture of a run shows the run's own numbers."""

import json
from pathlib import Path

import pytest
import run_picture as picture

from tokenpo.records.run import read_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    steps = [
        {"step": 0, "eval/accuracy": 0.2, "eval/low": 0.1, "eval/high": 0.35},
        {"step": 1, "accuracy": 0.3, "length": 20.0, "entropy": 0.4, "entropy_q10": 0.0, "entropy_q90": 1.0},
        {"step": 2, "accuracy": 0.9, "length": 40.0, "entropy": 0.1, "entropy_q10": 0.0, "entropy_q90": 0.3},
    ]
    rollouts = [
        {"step": step, "row": row, "prompt": "1+2=", "tokens": tokens, "correct": right, "terms": {"entropy": entropy}}
        for step, row, tokens, right, entropy in (
            (1, 0, ["#", "3"], False, [0.5, 2.0]),
            (2, 0, ["#", "4"], False, [0.1, 0.1]),
            (2, 1, ["=", "#", "3"], True, [1.0, 0, 0]),
        )
    ]
    for name, lines in (("metrics", steps), ("trace", rollouts)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_curves_are_the_metrics_and_tokens_those_of_a_right_response(run: Path) -> None:
    accuracy, length, entropy, first, last = picture.draw(read_run(run), picture.examples(run)).axes
    assert accuracy.lines[0].get_xydata().tolist() == [[1, 0.3], [2, 0.9]]
    (bar,) = accuracy.containers[0].lines[2][0].get_segments()
    assert bar[:, 1].tolist() == pytest.approx([0.1, 0.35])
    assert length.lines[0].get_ydata().tolist() == [20, 40]
    assert entropy.lines[0].get_ydata().tolist() == [0.4, 0.1]
    assert [[text.get_text() for text in axes.texts] for axes in (first, last)] == [["#", "3"], ["=", "#", "3"]]
    # The largest entropy of both responses is 2.0.
    shades = [box.get_facecolor() for axes in (first, last) for box in axes.patches]
    assert [shade[3] for shade in shades] == pytest.approx([0.9 * (x / 2) ** 0.5 for x in (0.5, 2.0, 1.0, 0, 0)])
    drawn = picture.write_picture(run, run / "out.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in drawn and "currentColor" in drawn and picture.INK not in drawn
    assert picture.write_picture(run, run / "again.svg").read_text(encoding="utf-8") == drawn
