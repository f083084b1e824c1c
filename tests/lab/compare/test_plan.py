"""The runs of a comparison: planned ones differ in nothing but the method, existing ones are paired by their seeds."""

import json
from contextlib import closing
from pathlib import Path

import pytest
import torch

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.cli.main import main
from tokenpo.lab.compare.plan import pairs, parse_methods, read_existing
from tokenpo.train.recipe.config import differences
from tokenpo.train.recipe.plan import Plan
from written_runs import rows, write_lines


def entries(text):
    return [(entry.label, entry.method, dict(entry.options)) for entry in parse_methods(text)]


def test_methods_with_options_and_labels():
    assert entries("tepo, hapo:tau=0,beta = 0 ,plain HAPO@hapo:tau=0,gtpo:entropy_clamp=[0.2, 0.28],x@grpo") == [
        ("tepo", "tepo", {}),
        ("hapo:tau=0,beta=0", "hapo", {"tau": "0", "beta": "0"}),
        ("plain HAPO", "hapo", {"tau": "0"}),
        ("gtpo:entropy_clamp=[0.2, 0.28]", "gtpo", {"entropy_clamp": "[0.2, 0.28]"}),
        ("x", "grpo", {}),
    ]
    assert entries('a@hapo:entropy="old,x:y=1",b@grpo')[0] == ("a", "hapo", {"entropy": '"old,x:y=1"'})
    assert entries("a/b.py:late:low=0.1,high=0.3,x@pkg.mod:late, my files/b.py:late") == [
        ("late:low=0.1,high=0.3", "a/b.py:late", {"low": "0.1", "high": "0.3"}),
        ("x", "pkg.mod:late", {}),
        ("late", "my files/b.py:late", {}),
    ]


def test_pairs():
    labels = ["a", "b", "c"]
    assert pairs(labels, "b") == [("a", "b"), ("c", "b")]
    assert pairs(labels, "all") == [("b", "a"), ("c", "a"), ("c", "b")]
    with pytest.raises(TokenPOError, match=r"--baseline d is not among the methods: give one of a, b, c, or all"):
        pairs(labels, "d")


def test_runs_of_a_seed_share_everything_but_the_method(plan):
    made = plan("grpo,hapo:tau=0,plain@hapo:tau=0,beta=0", 3, ["seed=7", "train.lr=1e-3"])
    assert made.subject.seeds == (7, 8, 9)  # from the recipe's own on
    assert [run.seed for run in made.runs] == [7, 7, 7, 8, 8, 8, 9, 9, 9]
    for run in made.runs:
        apart = {line.partition(":")[0] for line in differences(made.runs[0].config, run.config)}
        assert apart <= {"method.name", "method.tau", "method.beta", "seed", "output.dir"}
        assert run.config.train.lr == 1e-3 and run.config.threads == 1
        assert run.config.output.dir == str(run.directory)
    assert made.subject.methods["plain"] == {"name": "hapo", "tau": 0, "beta": 0}
    assert [run.directory.name for run in made.runs[:3]] == ["grpo-seed7", "hapo-tau=0-seed7", "plain-seed7"]
    assert (
        "TokenGroupAdvantage" in made.subject.objectives["plain"]
        and "Redistribution" not in made.subject.objectives["plain"]
    )


@pytest.mark.parametrize(
    ("methods", "seeds", "overrides", "kind", "message"),
    [
        ("grpo", 2, [], TokenPOError, "nothing to compare with"),
        ("grpo,hapo:tau", 2, [], TokenPOError, "'hapo:tau' is not a method"),
        ("a@grpo,a@dapo", 2, [], TokenPOError, "names a twice"),
        ("grpo,dapo:low=0.1,low=0.2", 2, [], TokenPOError, "dapo:low=0.1,low=0.2 gives an option twice"),
        ("grpo,tepoo", 2, [], UnknownName, "did you mean 'tepo'"),
        ("grpo,dapo", 2, ["method.name=tepo"], TokenPOError, "use --methods"),
    ],
)
def test_mistakes_are_named(plan, methods, seeds, overrides, kind, message):
    with pytest.raises(kind) as error:
        plan(methods, seeds, overrides)
    assert message in str(error.value)


@pytest.mark.parametrize("lora", [False, True])
def test_equal_seeds_share_weights_problems_and_randomness(plan, lora):
    """The pairing itself: whatever the method, runs of one seed begin with the same weights and draw the same rollouts
    of the same problems; another seed draws others.
    """
    from tokenpo.train.run.embedded import Local

    methods = "grpo,tepo" if lora else "grpo,tepo,hapo,adv_reweight"
    made = plan(methods, 2, ["model.lora.rank=2"] if lora else [])
    first, weights = {}, {}
    for run in made.runs:
        engine = Local.open(Plan(run.config))
        with closing(engine.task):
            drawn = engine.collect(0).drawn[0]
            later = [problem.prompt for problem in engine.task.problems("train", 2, 20)]
            test = [problem.prompt for problem in engine.task.problems("test", 0, 20)]
        state = {name: x.clone() for name, x in engine.lm.model.state_dict().items()}
        shared = ([problem.prompt for problem in drawn.problems], later, test, drawn.completions)
        assert first.setdefault(run.seed, shared) == shared
        twin = weights.setdefault(run.seed, state)
        assert twin.keys() == state.keys() and all(torch.equal(x, state[name]) for name, x in twin.items())
    one, other = (first[seed] for seed in made.subject.seeds)
    assert all(a != b for a, b in zip(one, other, strict=True))
    same = all(torch.equal(x, weights[1][name]) for name, x in weights[0].items())
    assert same != lora  # the model is loaded, adapters are drawn by the seed


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
    return read_existing([f"{label}={place}/{label}-*" for label in labels])


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


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (["runs/grpo-0", "b=dapo-*"], "--runs runs/grpo-0: write LABEL='PATTERN'"),
        (["a=grpo-*", "b=dapo-*", "b=twin"], "dapo-1 and twin are both b with seed 1: leave one out"),
        (["a=grpo-0", "b=dapo-1"], "two or more (seeds of a: 0; seeds of b: 1): train the missing ones"),
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
