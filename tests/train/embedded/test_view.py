import io

from tokenpo.cli.view import Lines
from tokenpo.train.run.loop import train


def test_a_line_for_each_step(small, coin, tmp_path):
    stream = io.StringIO()
    train(small(tmp_path / "run"), Lines(stream))
    lines = stream.getvalue().splitlines()
    assert "objective grpo" in lines
    assert any(line.startswith("before: greedy accuracy") for line in lines)
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["1/4", "2/4", "3/4", "4/4"]
    assert lines[lines.index(steps[-1]) + 1].startswith("  held-out accuracy") and max(map(len, lines)) <= 120
    assert "rewarded 1: " in stream.getvalue().partition("step 1/4")[0]
