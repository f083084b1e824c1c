"""`tokenpo compare` from the command line to its files."""

import json
import re
import shlex
from pathlib import Path

import pytest

from page_tree import read_html
from run_views import lines
from tokenpo.cli.main import main
from tokenpo.lab.compare.plan import State, make_plan, state, train_command
from written_runs import write_run

TINY = """
[model]
device = "cpu"
[rollout]
prompts = 2
group_size = 2
max_new_tokens = 50
[train]
steps = 2
minibatches = 2
[evaluate]
problems = 4
samples = 2
[output]
checkpoint_every = 1
trace_every = 0
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


METHODS = "grpo,plain@hapo:tau=0,beta=0"


def compare(tiny, out, *more):
    command = ["compare", str(tiny), "--methods", METHODS, "--seeds", "2", "--out", str(out), "--jobs", "2"]
    return main([*command, *more])


def check_results(out):
    """Table, page and numbers of two methods and two seeds."""
    record = json.loads((out / "compare.json").read_text())
    assert [metric["name"] for metric in record["metrics"]] == ["accuracy", "area", "entropy", "seconds"]
    assert record["methods"][1]["options"] == {"tau": 0, "beta": 0}
    assert all(len(metric["pairs"][0]["differences"]) == 2 for metric in record["metrics"])
    assert record["metrics"][3]["means"]["grpo"] > 0
    assert not [note for note in record["notes"] if "begin alike" in note or "software" in note]
    assert read_html((out / "compare.html").read_text()).one("h1").text == "2 methods on tiny, 2 seeds"


def test_two_methods_and_two_seeds_from_begin_to_end(tiny, tmp_path, capsys):
    """One run of seed 1 is made here, in this process, by the very arguments that the command gives its processes; the
    command skips it and makes the other. The runs of seed 0 are written by hand; below, the command makes all four.
    """
    out = tmp_path / "out"
    plan = make_plan(str(tiny), METHODS, 2, out=out)
    assert [run.name for run in plan.runs] == ["grpo seed 0", "plain seed 0", "grpo seed 1", "plain seed 1"]
    real = plan.runs[2]
    assert main(train_command(real, False)[4:]) == 0
    versions = json.loads((real.directory / "versions.json").read_text())
    for run in plan.runs[:2]:
        write_run(run, lines(real.directory), versions=versions)
    capsys.readouterr()
    found = [State.DONE, State.DONE, State.DONE, State.NEW]
    assert [state(run) for run in plan.runs] == found
    assert compare(tiny, out, "--dry-run") == 0
    few, *dry = capsys.readouterr().out.splitlines()
    assert few.startswith("note: 2 seeds cannot tell anything apart") and few.endswith("(--seeds 6).")
    assert [line.partition(" ")[0] for line in dry[:4]] == [one.value for one in found]
    assert dry[4] == f"4 runs, 3 done, in {out}" and not (out / "logs").exists()
    before = [(run.directory / "metrics.jsonl").stat().st_mtime_ns for run in plan.runs[:3]]

    assert compare(tiny, out) == 0
    shown = capsys.readouterr().out
    assert f"{out}: 4 runs, 3 done, 2 at a time" in shown and "[4/4] plain seed 1: done in " in shown
    assert "2 methods on tiny, 2 seeds" in shown and "2 seeds cannot tell anything apart" in shown
    assert f"page: {out / 'compare.html'}" in shown and f"numbers: {out / 'compare.json'}" in shown
    assert [(run.directory / "metrics.jsonl").stat().st_mtime_ns for run in plan.runs[:3]] == before
    check_results(out)

    # Everything is there now: asked for other numbers, it runs nothing.
    assert compare(tiny, out, "--metrics", "avg,sd:grad_norm", "--baseline", "all") == 0
    assert "plain − grpo" in capsys.readouterr().out
    assert compare(tiny, out, "--metrics", "avg", "--set", "train.lr=1") == 2
    assert "holds a run with another config (train.lr: 0.0002 -> 1.0)" in capsys.readouterr().err


@pytest.mark.parametrize("page", ["docs/start.md", "docs/comparison.md"])
def test_documented_commands_are_real(page, tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(
        r"^tokenpo (compare (?!--runs)[^#\n]*)|`tokenpo (compare [^`]* --methods [^`]*)`", text, re.MULTILINE
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text(TINY)
    assert commands
    for command in commands:
        words = shlex.split("".join(command))
        assert main([*words, *([] if "--dry-run" in words else ["--dry-run"])]) == 0
        assert " 0 done, in runs/compare-" in capsys.readouterr().out
