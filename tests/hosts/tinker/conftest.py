"""A small recipe for a server in this process."""

import collections
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from small_recipes import merged
from tinker_support import MODEL
from tinker_support.server import Weights
from tokenpo.train.recipe.config import Config


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Config]:
    return functools.partial(_small, tmp_path / "run")


@pytest.fixture
def averaging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that divides a step's gradient by its number of sequences, as SkyRL's jax backend does."""
    passed, stepped, counts = Weights.forward_backward, Weights.step, collections.Counter()

    def forward_backward(self: Weights, data, forward_only: bool, kind: str = "cross_entropy"):
        counts[id(self)] += 0 if forward_only else len(data)
        return passed(self, data, forward_only, kind)

    def step(self: Weights, params) -> None:
        count = counts.pop(id(self))
        for each in self.parameters:
            if each.grad is not None:
                each.grad /= count
        stepped(self, params)

    monkeypatch.setattr(Weights, "forward_backward", forward_backward)
    monkeypatch.setattr(Weights, "step", step)


def _small(out: Path, **sections: dict) -> Config:
    """Three steps on four problems x four responses of at most forty tokens; `sections` are merged in."""
    raw: dict = {
        "seed": 5,
        "model": {"path": MODEL, "lora": {"rank": 8}},
        "method": {"name": "grpo"},
        "task": {"name": "dial_sum", "options": {"operands": 3}},
        "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 40},
        "train": {"steps": 3, "minibatches": 2, "lr": 1e-4},
        "evaluate": {"problems": 0},
        "output": {"dir": str(out), "checkpoint_every": 1, "trace_every": 1, "rollouts_every": 2},
    }
    return merged(raw, sections, "test")
