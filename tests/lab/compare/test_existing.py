"""Runs that exist: grouped as the user says, paired by their seeds."""

import json
from pathlib import Path

import pytest

from tokenpo.cli.main import main
from tokenpo.lab.compare.plan import read_existing
from written_runs import rows, write_lines


def write(path: Path, config: dict, steps: int = 20, objective: str = "objective") -> Path:
    """A run directory as each host leaves it: config.json, metrics, objective."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    write_lines(path / "metrics.jsonl", rows(steps, 5, lambda s: 0.03 * s))
    (path / "objective.txt").write_text(f"{objective}\n")
    (path / "versions.json").write_text(json.dumps({"torch": "2.0"}))
    return path


def verl(method: str, seed: int | None) -> dict:
    """As verl's trainer describes a run."""
    settings = {"data": {"seed": seed}, "trainer": {"default_local_dir": f"{method}-{seed}"}}
    settings["algorithm"] = {"tokenpo": {"method": method, "report": f"{method}-{seed}"}}
    return {"method": {"name": method}, "train": {"steps": 20}, "model": {"path": "m"}, "verl": settings}


def trl(method: str, seed: int, **options: float) -> dict:
    """As TRL's trainer describes one."""
    return {
        "engine": "trl",
        "seed": seed,
        "model": {"path": "m"},
        "task": {"name": "reward"},
        "method": {"name": method, **options},
        "train": {"steps": 20, "processes": 1},
        "trl": {"output_dir": f"{method}-{seed}"},
    }


def read(place: Path, *labels: str):
    """The runs whose directories begin with each label."""
    return read_existing([f"{label}={place}/{label}-*" for label in labels], ())


def test_runs_of_the_embedded_engine_are_those_of_its_plan(made, tmp_path, capsys):
    """The same verdicts as the comparison that made them, and the directories in place of commands."""
    plan = made("grpo,plain@hapo:tau=0,dapo", 8)
    runs = [
        f"{label}={tmp_path}/out/{of}-seed*" for label, of in (("base", "grpo"), ("no tau", "plain"), ("d", "dapo"))
    ]
    out = tmp_path / "new" / "out"
    command = ["compare", "--runs", *runs, "--metrics", "accuracy", "--margin", "accuracy=0.41", "--out", str(out)]
    assert main(command) == 0
    record = json.loads((out / "compare.json").read_text())
    assert [(method["label"], method["method"]) for method in record["methods"]] == [
        ("base", "grpo"),
        ("no tau", "hapo"),
        ("d", "dapo"),
    ]
    assert record["methods"][1]["options"] == {"tau": 0}
    (metric,) = record["metrics"]
    assert [pair["verdict"] for pair in metric["pairs"]] == [
        "no tau above base, by less than 0.41",
        "d above base, by less than 0.41",
    ]
    assert metric["pairs"][1]["differences"] == pytest.approx([1 - 0.6 - 0.02 * seed for seed in range(8)])
    assert record["config"]["train.steps"] == 20 and "seed" not in record["config"] and not record["notes"]
    page = (out / "compare.html").read_text()
    assert "The directory of every run" in page and str(plan.runs[-1].directory) in page
    assert f"numbers: {out / 'compare.json'}" in capsys.readouterr().out


@pytest.mark.parametrize("host", [verl, trl])
def test_runs_of_other_hosts(host, tmp_path):
    """Below their directories, where TRL's trainer keeps them."""
    for label in ("grpo", "dapo"):
        for seed in (3, 4):
            path = tmp_path / f"{label}-{seed}"
            write(path / "tokenpo" if host is trl else path, host(label, seed))
    subject, runs = read(tmp_path, "grpo", "dapo")
    assert {label: [*of] for label, of in runs.items()} == {"grpo": [3, 4], "dapo": [3, 4]}
    assert subject.seeds == (3, 4) and subject.planned == 4 and not subject.notes
    write(tmp_path / "dapo-5", trl("dapo", 5), steps=19)
    subject, runs = read(tmp_path, "grpo", "dapo")
    assert [*runs["dapo"]] == [3, 4] and subject.notes == ("dapo-5 did not make all of its steps, and is left out.",)


def test_of_the_default_metrics_those_that_the_host_logs(tmp_path, capsys):
    for method in ("grpo", "dapo"):
        for seed in (0, 1):
            path = write(tmp_path / f"{method}-{seed}", verl(method, seed))
            write_lines(path / "metrics.jsonl", [{"step": step, "entropy": 0.1} for step in range(1, 21)])
    command = ["compare", "--runs", f"g={tmp_path}/grpo*", f"d={tmp_path}/dapo*", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [metric["name"] for metric in record["metrics"]] == ["entropy"]
    assert main([*command, "--metrics", "accuracy,entropy"]) == 2
    assert "--metrics accuracy: no run in --runs logged a number for eval/accuracy" in capsys.readouterr().err


def test_settings_other_than_the_method_are_noted(tmp_path):
    """Names, places and seeds differ between the runs of one label, and are no difference of the methods."""
    for label, method, lr in (("a", "grpo", 1e-5), ("b", "dapo", 2e-5), ("c", "dapo", 1e-5)):
        for seed in (0, 1):
            of = verl(method, seed)
            of["verl"] |= {"actor": {"optim": {"lr": lr}, "data_loader_seed": seed}}
            write(tmp_path / f"{label}-{seed}", of)
    assert read(tmp_path, "a", "c")[0].notes == ()
    note = "The runs were not trained alike: they differ in {}."
    assert read(tmp_path, "a", "b")[0].notes == (note.format("verl.actor.optim.lr"),)
    write(tmp_path / "c-2", {**verl("dapo", 2), "train": {"steps": 20, "lr": 1}, "teacher": {"path": "t"}})
    notes = read(tmp_path, "a", "c")[0].notes
    assert notes[0].startswith("Only common seeds are compared: a lacks 2.")
    assert notes[1] == note.format("train.lr, teacher.path")


def test_a_label_with_several_methods_is_noted(tmp_path):
    for label, objectives in (("a", "xx"), ("b", "yx")):
        for seed, objective in enumerate(objectives):
            write(tmp_path / f"{label}-{seed}", trl("late", seed), objective=objective)
    (note,) = read(tmp_path, "a", "b")[0].notes
    assert note.startswith("The runs of b have different objectives")


def test_a_pair_without_common_seeds_is_noted(tmp_path):
    for label, seeds in (("grpo", (0, 1)), ("dapo", (0, 1)), ("hapo", (2, 3)), ("tepo", (1, 2))):
        for seed in seeds:
            write(tmp_path / f"{label}-{seed}", trl(label, seed))
    runs = [f"{label}={tmp_path}/{label}-*" for label in ("grpo", "dapo", "hapo", "tepo")]
    out = tmp_path / "out"
    assert main(["compare", "--runs", *runs, "--out", str(out)]) == 0
    notes = json.loads((out / "compare.json").read_text())["notes"]
    (note,) = (note for note in notes if note.startswith("Not compared"))
    assert note.endswith("runs of each have the same seeds: hapo and grpo, tepo and grpo.")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (["runs/grpo-0", "b=dapo-*"], "--runs runs/grpo-0: write LABEL='PATTERN'"),
        (["a=", "b=dapo-*"], "--runs a=: write LABEL='PATTERN'"),
        (["a=grpo-*", "all=dapo-*"], "the label all is taken"),
        (["a=grpo-*", "b=hapo-*"], "--runs b=hapo-*: no directory matches hapo-*"),
        (["a=grpo-*"], "--runs has finished runs of a only: write LABEL='PATTERN'"),
        (["a=grpo-*", "b=*-0"], "grpo-0 is both a and b: give patterns that share no run"),
        (["a=*o-*", "b=dapo-*"], "dapo-1 is both a and b"),
        (["a=grpo-*", "b=dapo-*", "b=twin"], "dapo-1 and twin are both b with seed 1: leave one out"),
        (["a=grpo-*", "b=unseeded"], "unseeded says no seed in config.json"),
        (["a=grpo-0", "b=dapo-1"], "finished runs with the same seeds (a has 0; b has 1): train the missing ones"),
    ],
)
def test_what_cannot_be_paired_is_a_sentence(runs, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("grpo-0", 0), ("dapo-1", 1), ("twin", 1)):
        write(tmp_path / name, trl("late", seed))
    write(tmp_path / "unseeded", verl("late", None))
    assert main(["compare", "--runs", *runs, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("tokenpo: ") and error.count("\n") == 1
    assert not (tmp_path / "out" / "compare.json").exists()
