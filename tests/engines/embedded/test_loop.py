from __future__ import annotations

import json

import pytest

from tokenpo.cli.view import SilentView
from tokenpo.engines.embedded.loop import train
from tokenpo.tasks import Score


@pytest.mark.parametrize("method", ["grpo", "tepo", "hapo"])
def test_training_raises_the_reward(method, small, coin, tmp_path, monkeypatch):
    """Even tokens are rewarded one by one; a policy that climbs the wrong way would shun them."""

    def score(problems, completions, completion_ids):
        return [Score(sum(i % 2 == 0 for i in ids) / len(ids), False) for ids in completion_ids]

    monkeypatch.setattr(coin, "score", score)
    sections = {"rollout": {"prompts": 8, "group_size": 8}, "train": {"steps": 12, "lr": 2e-2}}
    train(small(tmp_path / "run", method={"name": method}, evaluate={"problems": 0}, **sections), SilentView())
    rewards = [json.loads(line)["reward"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rewards[0] < 0.65
    assert rewards[-1] > 0.85


def test_the_learning_rate_follows_the_updates_of_all_steps(small, coin, tmp_path):
    train(small(tmp_path / "run", train={"warmup": 5, "lr": 0.6}, evaluate={"problems": 0}), SilentView())
    rates = [json.loads(line)["lr"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.6])
