"""A small recipe for a server in this process, and the server over HTTP."""

import asyncio
import collections
import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from small_recipes import merged
from tinker_support import MODEL, Cloud
from tinker_support.http import Wire
from tinker_support.server import Weights
from tokenpo.hosts.tinker import answers
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.recipe.config import Config


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Config]:
    return functools.partial(_small, tmp_path / "run")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """The server over HTTP. We ask again at once, and the client after a fiftieth of its pauses below ten seconds."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setattr(answers, "PAUSE", 0.0)
    monkeypatch.setattr("tinker._base_client.INITIAL_RETRY_DELAY", 0.01)
    shorter = SimpleNamespace(**vars(asyncio) | {"sleep": lambda s: asyncio.sleep(s / 50 if s < 10 else s)})
    for module in ("api_future_impl", "internal_client_holder", "retry_handler"):
        monkeypatch.setattr(f"tinker.lib.{module}.asyncio", shorter)
    return Wire(Cloud(ASSETS))


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
