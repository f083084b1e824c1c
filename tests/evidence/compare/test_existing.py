"""`tokenpo compare --runs`: runs that exist, by method and seed, whatever engine made them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.evidence.compare.plan import read_existing
from written_runs import rows


def write(path: Path, config: dict, steps: int = 20) -> Path:
    """A run directory as each engine leaves it: config.json, metrics, objective."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(steps, 5, lambda s: 0.03 * s)))
    (path / "objective.txt").write_text("objective\n")
    (path / "versions.json").write_text(json.dumps({"torch": "2.0"}))
    return path


def verl(method: str, seed: int | None) -> dict:
    """As verl's trainer describes a run."""
    settings = {"data": {"seed": seed}, "trainer": {"default_local_dir": f"{method}-{seed}"}}
    return {"method": {"name": method}, "train": {"steps": 20}, "model": {"path": "m"}, "verl": settings}


def trl(method: str, seed: int, **options: float) -> dict:
    """As TRL's trainer describes one."""
    return {
        "engine": "trl", "seed": seed, "model": {"path": "m"}, "task": {"name": "reward"},
        "method": {"name": method, **options}, "train": {"steps": 20, "processes": 1},
        "trl": {"output_dir": f"{method}-{seed}"},
    }  # fmt: skip


def read(*runs: Path):
    return read_existing(runs, ())


def test_runs_of_the_embedded_engine_are_those_of_its_plan(made, tmp_path, capsys):
    """The same verdicts as the comparison that made them, and the directories in place of commands."""
    plan = made("grpo,plain@hapo:tau=0,dapo", 8)
    runs = [str(run.directory) for run in plan.runs]
    out = tmp_path / "new" / "out"
    assert (
        main(["compare", "--runs", *runs, "--metrics", "accuracy", "--margin", "accuracy=0.41", "--out", str(out)]) == 0
    )
    record = json.loads((out / "compare.json").read_text())
    assert [method["label"] for method in record["methods"]] == ["grpo", "hapo:tau=0", "dapo"]
    (metric,) = record["metrics"]
    assert [pair["verdict"] for pair in metric["pairs"]] == [
        "hapo:tau=0 above grpo, by less than 0.41", "dapo above grpo, by less than 0.41",
    ]  # fmt: skip
    assert metric["pairs"][1]["differences"] == pytest.approx([1 - 0.6 - 0.02 * seed for seed in range(8)])
    assert record["config"]["train.steps"] == 20 and not [key for key in record["config"] if key == "seed"]
    page = (out / "compare.html").read_text()
    assert "The directory of every run" in page and runs[-1] in page
    assert f"numbers: {out / 'compare.json'}" in capsys.readouterr().out


@pytest.mark.parametrize("engine", [verl, trl])
def test_runs_of_other_engines(engine, tmp_path):
    """Below their directories, where TRL's trainer keeps them."""
    paths = [tmp_path / f"{method}-{seed}" for method in ("grpo", "dapo") for seed in (3, 4)]
    for path in paths:
        method, _, seed = path.name.partition("-")
        write(path / "tokenpo" if engine is trl else path, engine(method, int(seed)))
    subject, runs = read(*paths)
    assert {label: [*of] for label, of in runs.items()} == {"grpo": [3, 4], "dapo": [3, 4]}
    assert subject.seeds == (3, 4) and subject.planned == 4 and not subject.notes
    short = write(tmp_path / "tepo", trl("tepo", 3), steps=19)
    subject, runs = read(*paths, short)
    assert [*runs] == ["grpo", "dapo"]
    assert subject.notes == ("tepo did not make all of its steps, and is left out.",)


def test_of_the_default_metrics_those_that_the_engine_logs(tmp_path, capsys):
    for method in ("grpo", "dapo"):
        for seed in (0, 1):
            path = write(tmp_path / f"{method}-{seed}", verl(method, seed))
            lines = [{"step": step, "entropy": 0.1} for step in range(1, 21)]
            (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["compare", "--runs", *map(str, sorted(tmp_path.iterdir())), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [metric["name"] for metric in record["metrics"]] == ["entropy"]
    assert main([*command, "--metrics", "accuracy,entropy"]) == 2
    assert "--metrics accuracy: no run in --runs logged a number for eval/accuracy" in capsys.readouterr().err


def test_several_engines_and_settings_are_told_apart(tmp_path):
    ours = {"seed": 0, "method": {"name": "grpo"}, "rollout": {"prompts": 2}, "train": {"steps": 20, "lr": 1e-4}}
    write(tmp_path / "a", ours)
    write(tmp_path / "b", {**ours, "train": {"steps": 20, "lr": 2e-4}})
    write(tmp_path / "c", trl("hapo", 0, tau=0.5))
    subject, _ = read(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    labels = ("grpo (embedded), train.lr=0.0001", "grpo (embedded), train.lr=0.0002", "hapo:tau=0.5 (trl)")
    assert subject.labels == labels
    assert subject.methods[labels[2]] == ("hapo", {"tau": 0.5})
    (note,) = subject.notes
    assert note.startswith("The methods were not trained alike: they differ in ") and "train.lr" in note


def test_what_cannot_be_paired_is_a_sentence(tmp_path, capsys):
    write(tmp_path / "a", trl("grpo", 0))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    write(tmp_path / "c", verl("dapo", None))
    write(tmp_path / "d", trl("dapo", 1))
    write(tmp_path / "e", {"train": {"steps": 20}})
    for names, message in (
        ("ab", r"a and .*b are both grpo with seed 0: leave one out"),
        ("ac", "c says no seed in config.json, and runs are paired by their seeds"),
        ("ae", "e says no method in config.json"),
        ("a", "nothing to compare with: all are grpo"),
    ):
        with pytest.raises(TokenPOError, match=message):
            read(*(tmp_path / name for name in names))
    assert main(["compare", "--runs", str(tmp_path / "a"), str(tmp_path / "d"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.endswith("no pair to compare has two finished runs with the same seeds (grpo has 0; dapo has 1)\n")
    assert not (tmp_path / "out" / "compare.json").exists()
