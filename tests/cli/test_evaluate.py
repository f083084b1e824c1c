"""`tokenpo eval` from the command line: what it writes."""

import json
from pathlib import Path

import pytest

from tokenpo.cli.evaluate import EXAMPLES
from tokenpo.cli.main import main
from tokenpo.lab.evaluate.benchmarks import BENCHMARKS
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from written_runs import write_lines

TINY = ["tiny", "--task", "dial_sum", "--problems", "4", "--max-new-tokens", "40"]


def run(*arguments: str) -> int:
    return main(["eval", *arguments])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(name: str, *records: dict) -> str:
    return str(write_lines(Path(name), records))


def test_help_names_every_benchmark_and_an_adapter_is_to_be_merged(tmp_path, capsys):
    listed = next(line for line in EXAMPLES.splitlines() if line.startswith("benchmarks: "))
    assert listed.split()[1:] == list(BENCHMARKS)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert run(str(tmp_path)) == 2
    assert "merge it with peft's AutoPeftModelForCausalLM" in capsys.readouterr().err


def test_a_model_on_a_task(capsys):
    assert run(*TINY, "--samples-per-prompt", "3", "--k", "3,1,8", "--out", "out") == 0
    shown = capsys.readouterr().out
    assert "tiny on dial_sum: 5 of 12 samples are right (prompts: 4).\n" in shown
    assert "k = 1" in shown and "NaN" in shown
    assert "k = 8 is NaN: no prompt has more than 3 samples, draw at least 8 per prompt." in shown
    results = json.loads(Path("out/results.json").read_text("utf-8"))
    assert [n["k"] for n in results["numbers"] if n["metric"] == "maj@k"] == [1, 3, 8]
    assert results["config"]["sampling"]["samples"] == 3
    assert results["config"] == json.loads(Path("out/config.json").read_text("utf-8"))
    assert len(Path("out/samples.jsonl").read_text("utf-8").splitlines()) == 12
    before = Path("out/results.json").read_bytes()

    # The samples written are samples: the same numbers come out of the file.
    assert run("--samples", "out/samples.jsonl", "--k", "1,3,8", "--out", "again") == 0
    again = json.loads(Path("again/results.json").read_text("utf-8"))
    assert again | {"config": 0} == results | {"config": 0}
    # The same command again draws nothing and writes the same bytes; another k is another view of the same samples.
    assert run(*TINY, "--samples-per-prompt", "3", "--k", "1,3,8", "--out", "out") == 0
    assert Path("out/results.json").read_bytes() == before
    capsys.readouterr()
    assert run(*TINY, "--samples-per-prompt", "2", "--out", "out") == 2
    assert "holds results of another evaluation (sampling.samples: 3 -> 2)" in capsys.readouterr().err


def test_a_run_brings_its_task_and_how_it_was_sampled(tmp_path, capsys):
    """Nothing but the directory is given, and avg@k is what the run itself measured at its end, and greedily too."""
    Path("small.toml").write_text(
        'seed = 3\nmodel.device = "cpu"\ntask = {name = "dial_sum", seed = 5, options = {operands = 3}}\n'
        "rollout = {prompts = 2, group_size = 2, max_new_tokens = 30, temperature = 0.9, top_p = 0.8, top_k = 5}\n"
        "train = {steps = 1, minibatches = 1}\nevaluate = {problems = 6, samples = 4, rows = 16}\n"
    )
    assert main(["train", "small.toml", "--out", "run", "--no-report"]) == 0
    measured = json.loads(Path("run/metrics.jsonl").read_text("utf-8").splitlines()[-1])
    assert run("run", "--out", "own", "--device", "cpu") == 0
    assert "the run's task dial_sum: 6 held-out problems, samples of each: 4, temp" in capsys.readouterr().out
    assert run("run", "--temperature", "0", "--out", "greedy") == 0
    sampled, greedy = ("eval/avg", "eval/avg_low", "eval/avg_high"), ("eval/accuracy", "eval/low", "eval/high")
    for out, k, names in (("own", 4, sampled), ("greedy", 1, greedy)):
        numbers = json.loads(Path(out, "results.json").read_text("utf-8"))["numbers"]
        [found] = [n for n in numbers if (n["metric"], n["k"]) == ("avg@k", k)]
        assert [found[x] for x in ("value", "low", "high")] == pytest.approx([measured[n] for n in names], abs=1e-12)
    assert 0 < measured["eval/avg"] < 1 <= measured["kept_tokens"] <= 5
    assert run("run", "--top-p", "1.5", "--out", "wrong") == 2 and "top_p is 1.5" in capsys.readouterr().err

    assert run("run", "--task-option", "operands=4", "--temperature", "0", "--seed", "8", "--out", "other") == 0
    other = json.loads(Path("other/results.json").read_text("utf-8"))["config"]
    assert other["problems"]["options"] == {"operands": 4}
    assert other["sampling"] | {"samples": 1, "max_new_tokens": 30, "temperature": 0.0, "seed": 8} == other["sampling"]
    assert run("run/model") == 2
    assert "only a run directory brings its own task" in capsys.readouterr().err


def test_graded_rewards_agree_with_a_training_run(capsys):
    """A reward function of partial credit: mean reward and its interval are the same numbers, and stand below."""
    Path("judge.py").write_text("def partial(completions, **_):\n    return [len(c) % 5 / 4 for c in completions]\n")
    file = lines("sums.jsonl", *[{"prompt": f"{i % 9}+{i // 9}="} for i in range(40)])
    given = {"path": file, "verifier": "judge.py:partial", "reward_seconds": 0}
    engine = Local.open(Plan(parse_config({
        "rollout": {"max_new_tokens": 20}, "evaluate": {"problems": 4, "samples": 3, "rows": 16},
        "task": {"name": "files", "options": given}, "model": {"device": "cpu"},
    }, "test")))  # fmt: skip
    trained = engine.evaluate().sampled_reward
    told = [word for key, value in given.items() for word in ("--task-option", f"{key}={value}")]
    common = ["tiny", "--task", "files", *told, "--problems", "4", "--max-new-tokens", "20", "--rows", "16"]
    assert run(*common, "--samples-per-prompt", "3", "--out", "a") == 0
    assert trained is not None
    assert f"Mean reward of a sample: {trained.value:.3f}, {trained.low:.3f} to " in capsys.readouterr().out
    found = json.loads(Path("a/results.json").read_text("utf-8"))["reward"]
    assert (found["value"], found["low"], found["high"]) == (trained.value, trained.low, trained.high)
    assert run("--samples", "a/samples.jsonl", "--out", "b") == 0
    assert json.loads(Path("b/results.json").read_text("utf-8"))["reward"] == found


def test_a_model_on_a_file_of_ones_own(capsys):
    file = lines("sums.jsonl", *[{"question": f"{i}+1=", "answer": str(i + 1)} for i in range(1, 4)])
    common = ["tiny", "--benchmark", file, "--verifier", "exact", "--extract", "hash", "--max-new-tokens", "20"]
    assert run(*common, "--problems", "9") == 0  # of three: no problem counts twice
    assert "tiny on sums.jsonl: 3 of 3 samples are right (prompts: 3)." in capsys.readouterr().out
    out = Path("runs/eval-tiny-sums-seed0")
    sample = json.loads((out / "samples.jsonl").read_text("utf-8").splitlines()[0])
    assert sample["prompt"] == [{"role": "user", "content": "1+1="}]
    assert run(*common, "--chat", "no", "--problems", "2") == 0
    sample = json.loads(Path(f"{out}-2/samples.jsonl").read_text("utf-8").splitlines()[0])
    assert sample["prompt"] == "1+1="
    # In the place of a benchmark of the table, with its prompt and other columns.
    words = ("--benchmark", "AIME25", "--data", file, "--question", "question", *common[3:], "--out", "x")
    assert run("tiny", *words) == 0
    sample = json.loads(Path("x/samples.jsonl").read_text("utf-8").splitlines()[0])
    assert sample["prompt"][0]["content"].startswith("1+1=\n\nPlease reason step by step")


def test_interrupted_is_130_and_goes_on(monkeypatch, capsys):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tokenpo.lab.evaluate.run.draw", stop)
        assert run(*TINY) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert run(*TINY) == 0
    assert [path.name for path in Path("runs").iterdir()] == ["eval-tiny-dial_sum-seed0"]
