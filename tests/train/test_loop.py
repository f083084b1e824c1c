"""The loop of `train/run/loop.py`."""

import math
from pathlib import Path
from typing import Any

import pytest

from run_views import Watch, lines
from tokenpo.train.recipe.config import Config, parse_config
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View
from tokenpo.train.tasks import Score, make_task


def recipe(out: Path, **settings: Any) -> Config:
    """Three steps on four problems x four responses of at most forty tokens."""
    raw = {
        "model": {"path": "tiny", "device": "cpu"},
        "method": {"name": "grpo"},
        "task": {"name": "dial_sum", "options": {"operands": 3}},
        "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 40},
        "evaluate": {"problems": 0},
        "train": {"steps": 3, "minibatches": 2, "lr": 1e-4, **settings},
        "output": {"dir": str(out)},
    }
    return parse_config(raw, "test")


def test_a_batch_without_numbers_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three batches is rewarded with an infinity."""
    kind, drawn = type(make_task("dial_sum", {}, 0)), iter(range(9))
    judge = kind.score

    def score(*given: Any) -> list[Score]:
        scores = judge(*given)
        return [Score(math.inf, False)] * len(scores) if next(drawn) == 1 else scores

    monkeypatch.setattr(kind, "score", score)
    made = lines(train(recipe(tmp_path / "run", nonfinite="skip"), View()).directory)
    assert [line["skipped_updates"] for line in made] == [0, 2, 0]


@pytest.mark.parametrize("reward", [0.0, None], ids=["nothing", "healthy"])
def test_a_run_that_learns_nothing_says_so_once_and_again_at_its_end(
    reward: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, view = type(make_task("dial_sum", {}, 0)), Watch()
    if reward is not None:
        monkeypatch.setattr(kind, "score", lambda self, problems, *_: [Score(reward, False)] * len(problems))
    train(recipe(tmp_path / "run", steps=4), view)
    warned = [line for line in view.lines if line.startswith("warning: ")]
    assert warned == ([] if reward is None else warned[:1] * 2)
    assert all(line.startswith("warning: step 3: the reward of every response was 0") for line in warned)
    assert bool(warned) == (reward is not None)
