import io
import re

import pytest
from rich.console import Console
from rich.live import Live

from tokenpo.cli.view import LiveView, PlainView, make_view
from tokenpo.train.run.embedded import train


def test_plain_lines_where_there_is_no_terminal(small, coin, tmp_path):
    stream = io.StringIO()
    view = make_view(stream)
    assert isinstance(view, PlainView)
    train(small(tmp_path / "run"), view)
    lines = stream.getvalue().splitlines()
    assert "objective grpo" in lines
    assert any(line.startswith("before: greedy accuracy") for line in lines)
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["1/4", "2/4", "3/4", "4/4"]
    assert "held-out accuracy" in steps[-1]
    assert "rewarded 1: " in stream.getvalue().partition("step 1/4")[0]
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("width", [160, 80, 56])
def test_numbers_are_whole_at_every_width(width):
    stream = io.StringIO()
    view = LiveView(Console(file=stream, force_terminal=True, color_system=None, width=width, height=40))
    view._live = Live(console=view._console, auto_refresh=False)
    view._live.start()
    numbers = {"reward": -0.000123456, "entropy": 123456.0, "length": 250.0, "seconds_rollout": 1.0}
    for step in range(1, 61):
        view.step({"step": step, **numbers, "accuracy": step / 60}, 60)
    last = re.sub(r"\x1b\[[\d;?]*\w", "", stream.getvalue()).rpartition("step 60 of 60")[2]
    for shown in ("-0.000123 │ -0.000123", "123,456 │   123,456", "1.00 │     0.925", "250 │       250"):
        assert shown in last
    assert "…" not in last
    assert all(len(line) <= width for line in last.splitlines())


def test_text_of_the_run_is_never_markup():
    stream = io.StringIO()
    LiveView(Console(file=stream, force_terminal=True)).say("[bold]runs/[x][/]")
    assert "[bold]runs/[x][/]" in stream.getvalue()
