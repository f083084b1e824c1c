"""A random model of a few thousand parameters, and a task that even a random model gets right half of the time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from random_models import random_gpt2, random_qwen
from small_models import lm, make_model, prompts
from small_recipes import merged
from tokenpo.train.recipe.config import Config
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.rollout import Experience
from tokenpo.train.run.updates import Trainer
from tokenpo.train.tasks import Problem, Score

__all__ = ["lm", "make_model", "prompts"]


class Coin:
    """Right when the tokens of the response sum to an even number; problem `i` is the prompt "i=".

    Every problem whose position is in `settled` is always right, so its groups carry no advantage.
    """

    name = "coin"

    def __init__(self, settled: int = 0) -> None:
        self.settled = settled
        self.seen: list[tuple[str, int, int]] = []

    def problems(self, split: str, start: int, count: int) -> list[Problem]:
        self.seen.append((split, start, count))
        return [Problem(f"{i}=", answer=i) for i in range(start, start + count)]

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        right = [
            sum(ids) % 2 == 0 or (self.settled > 0 and problem.answer % self.settled == 0)
            for problem, ids in zip(problems, completion_ids, strict=True)
        ]
        return [Score(float(x), x, "" if x else "odd") for x in right]

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the family that the package ships."""
    return random_qwen(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def double_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An architecture without a single float32 cast inside, for gradients that are exact in float64."""
    return random_gpt2(tmp_path_factory.mktemp("double"))


@pytest.fixture
def coin(monkeypatch: pytest.MonkeyPatch) -> Coin:
    """Every run of the test gets this task, whatever its recipe says."""
    task = Coin()
    monkeypatch.setattr("tokenpo.train.recipe.plan.make_task", lambda name, options, seed: task)
    return task


@pytest.fixture
def small(model_dir: Path) -> Callable[..., Config]:
    """small(out, **sections): four steps on four prompts x four responses of at most six tokens, with the sections."""
    usual = {
        "seed": 5,
        "model": {"path": str(model_dir), "device": "cpu"},
        "method": {"name": "grpo"},
        "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 6},
        "train": {"steps": 4, "minibatches": 2, "lr": 1e-2, "micro_rows": 6},
        "evaluate": {"problems": 6, "samples": 2},
        "output": {"checkpoint_every": 0, "trace_every": 2},
    }

    def build(out: Path, **sections: dict) -> Config:
        return merged(usual, {**sections, "output": {"dir": str(out), **sections.get("output", {})}}, "test")

    return build


@pytest.fixture
def begin(small: Callable[..., Config], coin: Coin, tmp_path: Path) -> Callable[..., tuple[Local, Trainer, Experience]]:
    """begin(cursor=0, **sections) -> the parts of a small run, and its rollout batch from this problem on."""

    def build(cursor: int = 0, **sections: dict) -> tuple[Local, Trainer, Experience]:
        config = small(tmp_path / "run", **sections)
        engine = Local.open(Plan(config))
        trainer = engine.trainer
        return engine, trainer, engine.collect(cursor)

    return build
