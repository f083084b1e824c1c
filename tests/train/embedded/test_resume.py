"""2N steps == N + resume + N, bit for bit; and the same seed gives the same bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run_views import Watch, numbers
from tokenpo.base.errors import TokenPOError
from tokenpo.train.models import LanguageModel
from tokenpo.train.recipe.config import differences, parse_config
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.directory import describe, plan_resume
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.step import View


def logged(directory: Path) -> dict[str, object]:
    """Everything a run left that must not depend on the clock."""
    last = max((directory / "checkpoints").iterdir())
    state = json.loads((last / "state.json").read_text())
    critic = last / "critic.safetensors"
    return {
        "critic": critic.read_bytes() if critic.exists() else None,
        "metrics": numbers(directory),
        "samples": (directory / "samples.jsonl").read_bytes(),
        "trace": (directory / "trace.jsonl").read_bytes(),
        "state": {k: v for k, v in state.items() if k != "sizes"},
        "weights": (last / "model.safetensors").read_bytes(),
        "moments": (last / "optimizer.safetensors").read_bytes(),
        "model": (directory / "model" / "model.safetensors").read_bytes(),
    }


CRASHED = {
    **{key: {} for key in ("hapo", "ha_dw", "lopti")},
    # A toy's covariances are small: a band and a share in which tokens are drawn, so that the draw is tested.
    "clip_cov": {"method": {"cov_low": 0.0, "cov_high": 100.0, "fraction": 0.2}},
    # Coefficients that act from the first step on and move in every one.
    "skywork_entropy": {"method": {"start": 0.1, "largest": 1.0, "delta": 0.01}},
    "dapo": {"train": {"kl_target": 1e-5}},
    "grpo": {"train": {"autocast": True}},  # the bf16 copy is not saved
    "ppo": {"critic": {"warmup": 3}},  # longer than the first checkpoint
    "vineppo": {"method": {"every": 3, "continuations": 2}},
    "rloo": {"rollout": {"top_p": 0.8, "top_k": 7, "min_p": 0.01, "dynamic_sampling": True}},
    "igrpo": {"method": {"drafts": 2, "template": "{draft}{prompt}"}},
}


@pytest.mark.parametrize("method", CRASHED)
def test_a_crashed_run_resumes_bit_for_bit(method, small, coin, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenpo.train.models.half.has_bf16", lambda device: True)
    usual = {
        "method": {"name": method},
        "evaluate": {"every": 2, "problems": 2},
        "train": {"steps": 3, "epochs": 2, "warmup": 5, "micro_rows": 8},
    }
    sections = usual | {name: usual.get(name, {}) | more for name, more in CRASHED[method].items()}
    once = train(small(tmp_path / "once", **sections), View())
    output = {"checkpoint_every": 2, "keep": 1}
    with pytest.raises(RuntimeError, match="power cut"):
        train(small(tmp_path / "twice", output=output, **sections), Watch(crash=3))
    assert len(numbers(tmp_path / "twice")) == 4  # steps 0 to 3: one more than the checkpoint knows
    twice = resume(tmp_path / "twice", View())
    assert once.finished and twice.finished
    made = numbers(once.directory)[1:]
    assert all(line["continued_tokens"] > 0 for line in made) == (method in ("vineppo", "igrpo"))
    if method == "dapo":  # the rate moves in every batch
        assert len({line["kl_rate"] for line in made}) > 2
    assert logged(once.directory) == logged(twice.directory)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(small, coin, tmp_path):
    runs = [train(small(tmp_path / name), View()).directory for name in "ab"]
    assert logged(runs[0]) == logged(runs[1])
    config = small(tmp_path / "c").model_copy(update={"seed": 6})
    other = train(config, View()).directory
    assert logged(other)["weights"] != logged(runs[0])["weights"]


@pytest.mark.slow
def test_two_processes_and_two_orders_of_hashes_give_the_same_bytes(tmp_path: Path) -> None:
    settings = (
        "train.steps=2 rollout.prompts=2 rollout.group_size=4 rollout.max_new_tokens=24 evaluate.problems=4 "
        "evaluate.samples=0 evaluate.every=0 threads=1"
    ).split()
    command = [sys.executable, "-P", "-m", "tokenpo", "train", "quickstart", *(f"--set={x}" for x in settings)]
    found = []
    for hashes, seed in (("1", 0), ("2", 0), ("0", 1)):
        out = tmp_path / hashes
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
        words = [*command, f"--set=seed={seed}", "--out", str(out)]
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (out / "report.html").stat().st_size > 10_000
        found.append(logged(out))
    first, second, other = found
    assert first == second and first["weights"] != other["weights"]


def test_a_finished_run_can_be_prolonged(small, coin, tmp_path):
    straight = train(small(tmp_path / "once", evaluate={"problems": 0}), View())
    short = small(tmp_path / "twice", evaluate={"problems": 0}, train={"steps": 2})
    train(short, View())
    with pytest.raises(TokenPOError, match=r"all of its 2 steps: .*--set train.steps=4"):
        resume(short.directory(), View())
    longer = small(tmp_path / "twice", evaluate={"problems": 0})
    assert differences(short, longer) == ["train.steps: 2 -> 4"]
    assert resume(short.directory(), View(), longer).steps == 4
    assert logged(straight.directory) == logged(longer.directory())


@pytest.mark.parametrize("name", ["task.options.path", "task.options.test_path", "task.options.verifier", "model.path"])
def test_other_files_under_the_same_name_are_refused(name, small, tmp_path, model_dir):
    files = {"task.options.path": tmp_path / "train.jsonl", "task.options.test_path": tmp_path / "test.jsonl"}
    for place, file in files.items():
        file.write_text("".join(json.dumps({"prompt": f"{place} {i}", "answer": "1"}) + "\n" for i in range(6)))
    files["task.options.verifier"] = tmp_path / "mine.py"
    files["task.options.verifier"].write_text("def reward(completions):\n    return [0.0] * len(completions)\n")
    model = shutil.copytree(model_dir, tmp_path / "model")
    options = {"path": str(files["task.options.path"]), "test_path": str(files["task.options.test_path"])}
    options |= {"verifier": f"{files['task.options.verifier']}:reward", "reward_seconds": 0.0}
    run, train_ = tmp_path / "run", {"steps": 2}
    config = small(run, task={"name": "files", "options": options}, model={"path": str(model)}, train=train_)
    train(config, View())
    assert plan_resume(run, None) == (Plan(config), [])
    file = files.get(name, model / "config.json")
    file.write_text(file.read_text() + "\n")
    with pytest.raises(TokenPOError, match=rf"\(contents of {name}: \w+ -> \w+\): leave settings and files as they"):
        resume(run, View())
    _, changed = plan_resume(run, config, accept=True)
    assert [line.partition(":")[0] for line in changed] == [f"contents of {name}"]


def test_an_edited_config_is_another_config(small, coin, tmp_path):
    """Not by hand in the run directory either."""
    run = tmp_path / "run"
    train(small(run, evaluate={"problems": 0}), View())
    config = run / "config.json"
    edited = json.loads(config.read_text())
    edited["train"] |= {"lr": 0.02, "steps": 6}
    config.write_text(json.dumps(edited))
    with pytest.raises(TokenPOError, match=r"another config \(train\.lr: 0\.01 -> 0\.02\): .*--accept-changes"):
        resume(run, View())
    assert resume(run, View(), accept=True).steps == 6
    assert json.loads((run / "changes.jsonl").read_text())["changes"] == ["train.lr: 0.01 -> 0.02"]


@pytest.fixture
def finished(small, coin, tmp_path, made=[]) -> Path:  # noqa: B006
    """A run of four steps with an evaluation after each; made once, a copy for every test."""
    if not made:
        made.append(train(small(tmp_path / "made", evaluate={"every": 1}), View()).directory)
    return shutil.copytree(made[0], tmp_path / "run")


REFUSED = {
    "name": "other", "seed": 6, "threads": 2, "model.dtype": "float64", "method.name": "tepo", "task.name": "sums",
    "rollout.prompts": 8, "rollout.temperature": 0.9, "train.lr": 0.02, "train.epochs": 2, "train.nonfinite": "skip",
    "evaluate.problems": 7,
}  # fmt: skip
FREE = {"train.steps": 9, "output.keep": 5, "output.checkpoint_every": 3, "output.trace_every": 1}


def test_only_steps_and_output_may_change(small, tmp_path):
    config = small(tmp_path)
    describe(tmp_path, Plan(config))
    for name, value in (REFUSED | FREE).items():
        raw = config.model_dump()
        place, _, key = name.rpartition(".")
        (raw[place] if place else raw)[key] = value
        wanted = parse_config(raw, "test")
        assert [line.partition(":")[0] for line in differences(config, wanted)] == [name]
        if name in FREE:
            assert plan_resume(tmp_path, wanted) == (Plan(wanted), [])
        else:
            with pytest.raises(TokenPOError, match=rf"with another config \({re.escape(name)}: .*--accept"):
                plan_resume(tmp_path, wanted)


def test_a_run_is_resumed_where_it_is(small, tmp_path):
    """Another directory would hold nothing of it, and its config.json would name a place where it is not."""
    run = tmp_path / "run"
    run.mkdir()
    describe(run, Plan(small(run)))
    with pytest.raises(TokenPOError, match=r"is resumed where it is, not in .*other: leave out --out"):
        plan_resume(run, small(tmp_path / "other"))
    with pytest.raises(TokenPOError, match=r"nowhere/config\.json cannot be read: No such file"):
        plan_resume(tmp_path / "nowhere", None)
    moved = run.rename(tmp_path / "moved")
    for wanted in (None, small(run), small(moved), small(moved / ".." / "moved")):
        assert plan_resume(moved, wanted)[1] == []


def test_a_damaged_checkpoint_is_passed_over(small, coin, tmp_path):
    config = small(tmp_path / "run", output={"checkpoint_every": 1, "keep": 4})
    whole = logged(train(config, View()).directory)
    checkpoints = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == [f"step-00000{i}" for i in (1, 2, 3, 4)]
    (checkpoints[3] / "checksums.json").write_text("{}")
    file = checkpoints[2] / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    view = Watch()
    resume(tmp_path / "run", view)
    assert view.begun == 2
    assert "step-000004 is damaged" in view.notes[0] and "step-000003 is damaged" in view.notes[1]
    assert logged(tmp_path / "run") == whole


def test_a_directory_with_something_in_it_is_not_overwritten(small, coin, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(TokenPOError, match="not empty"):
        train(small(tmp_path / "run"), View())


def test_a_run_that_breaks_before_its_first_step_leaves_nothing(small, coin, tmp_path, monkeypatch):
    """A chat template, say, that fails on the first prompt: the same command is to work once it is corrected."""

    def broken(self, prompt):
        raise TokenPOError("the chat template fails")

    config = small(tmp_path / "run")
    for problems in (0, 6):  # while sampling for step 1, in the first evaluation
        monkeypatch.setattr(LanguageModel, "encode", broken)
        with pytest.raises(TokenPOError, match="the chat template fails"):
            train(small(tmp_path / "run", evaluate={"problems": problems}), View())
        assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    monkeypatch.setattr("tokenpo.train.recipe.plan.make_task", lambda name, options, seed: coin)
    assert train(config, View()).finished


def test_a_model_is_not_resumed(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3", "vocab_size": 9}')
    with pytest.raises(TokenPOError, match=f"is a model, not a run: give {tmp_path}$"):
        resume(tmp_path / "model", View())
