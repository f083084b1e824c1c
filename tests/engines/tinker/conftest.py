"""The Tinker engine's clients in front of a server in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tinker_support import MODEL, Cloud, Service
from tokenpo.models.directory import ASSETS
from tokenpo.recipe.config import Config, parse_config


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """What the test's sessions meet: the model that ships with the package, elsewhere."""
    cloud = Cloud(ASSETS)
    monkeypatch.setattr("tokenpo.engines.tinker.service.connect", lambda config: Service(cloud))
    return cloud


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Config]:
    return functools.partial(_small, tmp_path / "run")


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
    for name, section in sections.items():
        raw[name] = {**raw.get(name, {}), **section}
    return parse_config(raw, "test")
