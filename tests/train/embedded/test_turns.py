"""Credit by turns from a task to a checkpoint: a calculator is called, its answers are trained around, and it pays."""

import pytest

import tokenpo
from run_views import Watch, lines
from tokenpo.base.errors import Unsupported
from tokenpo.lab.explain.explanation import push_of
from tokenpo.records import read
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.step import View

from .test_resume import logged


def _config(out, method: str, **sections):
    raw = {
        "model": {"path": "tiny", "device": "cpu"},
        "task": {"name": "dial_calculator", "options": {"call_reward": 0.05}},
        "method": {"name": method, **({"token_reward": True} if method == "otb" else {})},
        "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 40},
        "train": {"steps": 4, "lr": 2e-4},
        "evaluate": {"problems": 4, "every": 2},
        "output": {"dir": str(out), "checkpoint_every": 0, "rollouts_every": 2, "trace_every": 2},
    }
    return parse_config({name: {**raw.get(name, {}), **sections.get(name, {})} for name in raw}, "test")


@pytest.mark.parametrize("method", ["gigpo", "mt_grpo"])
def test_a_run_with_a_tool_resumes_bit_for_bit(method, tmp_path):
    small = {"rollout": {"prompts": 2, "max_new_tokens": 24}, "evaluate": {"problems": 2}}
    once = train(_config(tmp_path / "once", method, **small), View())
    with pytest.raises(RuntimeError, match="power cut"):
        train(_config(tmp_path / "twice", method, output={"checkpoint_every": 2, "keep": 1}, **small), Watch(crash=3))
    twice = resume(tmp_path / "twice", View())
    assert once.finished and twice.finished
    assert logged(once.directory) == logged(twice.directory)
    assert any(line["grad_norm"] > 0 for line in lines(once.directory)[1:])
    assert read(once.directory).rollouts.need("turn").max() > 1


def test_its_records_hold_turns_and_are_explained(tmp_path):
    """Every method of turns finds in the record what it was trained on, and `reward` is what arrived."""
    run = train(_config(tmp_path / "run", "otb"), View()).directory
    found = read(run)
    assert {"rewards", "turn", "anchor", "token_reward", "old_collision"} <= found.inputs
    assert found.reward_names == ("calls", "answer")
    assert found.rollouts.need("turn").max() > 2
    arrived = found.rollouts.need("token_reward").sum(1)
    assert arrived.tolist() == pytest.approx(found.rollouts.reward.tolist())
    for name in ("gdpo", "mt_grpo", "gigpo", "otb"):
        assert push_of(name, tokenpo.method(name), found).push.any(), name
    assert "=" in lines(run, "samples.jsonl")[0]["completion"]


def test_continuations_would_call_no_tool(tmp_path):
    config = _config(tmp_path / "run", "vineppo")
    with pytest.raises(Unsupported, match=r"vineppo samples continuations, .* and the task dial_calculator"):
        train(config, View())
    assert not (tmp_path / "run").exists()
