"""The picture of a run shows the run's own numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from tokenpo.base.errors import TokenPOError
from tokenpo.evidence.report.figure import draw, examples, main, write_figure
from tokenpo.runs.read import read_run


def a_run(path: Path, *, traced: bool = True) -> Path:
    path.mkdir()
    steps = [
        {"step": 0, "eval/accuracy": 0.2, "eval/low": 0.1, "eval/high": 0.35},
        {"step": 1, "accuracy": 0.3, "length": 20.0, "entropy": 0.4, "entropy_q10": 0.0, "entropy_q90": 1.0},
        {"step": 2, "accuracy": 0.9, "length": 40.0, "entropy": 0.1, "entropy_q10": 0.0, "entropy_q90": 0.3},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    rollouts = [
        {
            "step": 1,
            "row": 0,
            "prompt": "1+1=",
            "tokens": ["#", "3"],
            "correct": False,
            "terms": {"entropy": [0.5, 2.0]},
        },
        {
            "step": 2,
            "row": 0,
            "prompt": "1+2=",
            "tokens": ["#", "4"],
            "correct": False,
            "terms": {"entropy": [0.1, 0.1]},
        },
        {
            "step": 2,
            "row": 1,
            "prompt": "1+2=",
            "tokens": ["=", "#", "3"],
            "correct": True,
            "terms": {"entropy": [1.0, 0, 0]},
        },
    ]
    if traced:
        (path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rollouts))
    return path


def test_curves_are_the_metrics(tmp_path):
    run = a_run(tmp_path / "run")
    accuracy, length, entropy, *_ = draw(read_run(run), examples(run)).axes
    assert accuracy.lines[0].get_xydata().tolist() == [[1, 0.3], [2, 0.9]]
    assert accuracy.containers[0].lines[0].get_xydata().tolist() == [[0, 0.2]]
    (bar,) = accuracy.containers[0].lines[2][0].get_segments()
    assert bar[:, 1].tolist() == pytest.approx([0.1, 0.35])
    assert length.lines[0].get_ydata().tolist() == [20, 40]
    assert entropy.lines[0].get_ydata().tolist() == [0.4, 0.1]


def test_first_response_before_and_a_right_one_after(tmp_path):
    before, after = examples(a_run(tmp_path / "run"))
    assert (before.step, before.prompt, before.correct) == (1, "1+1=", False)
    assert (after.step, after.tokens, after.correct) == (2, ("=", "#", "3"), True)


def test_tokens_are_shaded_by_the_root_of_their_share_of_the_largest_entropy(tmp_path):
    from matplotlib import colormaps

    run = a_run(tmp_path / "run")
    *_, first, last = draw(read_run(run), examples(run)).axes
    assert [text.get_text() for text in last.texts] == ["=", "#", "3"]
    boxes = [patch for axes in (first, last) for patch in axes.patches if isinstance(patch, Rectangle)]
    # The largest entropy of both responses is 2.0; the darkest shade is 0.9 of the colour map.
    shares = [0.5 / 2, 2 / 2, 1 / 2, 0, 0]
    for box, share in zip(boxes, shares, strict=True):
        assert box.get_facecolor() == pytest.approx(colormaps["Purples"](0.9 * share**0.5))


def test_every_box_shows_its_whole_border_and_every_token_fits_its_box(tmp_path):
    run = a_run(tmp_path / "run")
    rollouts = [{"step": step, "tokens": [*"0123456789" * 4, "<|end|>"]} for step in (1, 2)]
    (run / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rollouts))
    figure = draw(read_run(run), examples(run))
    figure.canvas.draw()
    for axes in figure.axes[3:]:
        assert len(axes.texts) == 41
        for box, text in zip(axes.patches, axes.texts, strict=True):
            inner, outer = box.get_window_extent(), axes.get_window_extent()
            assert inner.x0 - 1 > outer.x0 and inner.x1 + 1 < outer.x1 < figure.bbox.x1
            assert inner.y0 - 1 > outer.y0 and inner.y1 + 1 < outer.y1
            assert text.get_window_extent().width < 0.85 * inner.width


def test_without_a_trace_there_is_a_remedy(tmp_path):
    with pytest.raises(TokenPOError, match="trace_every"):
        write_figure(a_run(tmp_path / "run", traced=False), tmp_path / "out.png")


def test_the_file_is_a_png_of_the_stated_width(tmp_path):
    out = write_figure(a_run(tmp_path / "run"), tmp_path / "out.png")
    head = out.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert math.isclose(int.from_bytes(head[16:20], "big"), 10 * 140, abs_tol=1)


def test_a_mistake_is_one_line_and_status_two(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["figure", str(tmp_path / "none"), str(tmp_path / "x.png")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"figure: {tmp_path / 'none'} is not a directory: give the run directory that `tokenpo train` wrote\n"
    )
    monkeypatch.setattr("sys.argv", ["figure", str(a_run(tmp_path / "run")), str(tmp_path / "nowhere" / "x.png")])
    with pytest.raises(SystemExit):
        main()
    assert "there is no directory" in capsys.readouterr().err
