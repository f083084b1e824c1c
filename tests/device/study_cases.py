"""The study that runs on a GPU (studies/2026-11-26-card), on the stand-in: its base model and its runs.

Run by `test_stand_in`, in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from device.stand_in import NAME, stand_in
from tokenpo.models.directory import ASSETS

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "2026-11-26-card"))
import card  # pyright: ignore[reportMissingImports]
import mixture  # pyright: ignore[reportMissingImports]

import base  # pyright: ignore[reportMissingImports]


class Here:
    """A pool of processes that calls in this one."""

    def apply_async(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Here:
        self.result = function(*arguments)
        made = Here()
        made.result = self.result
        return made

    def get(self, timeout: float = 0) -> Any:
        return self.result


@pytest.fixture(autouse=True)
def device():
    """A program that has the device."""
    card._held.clear()
    with stand_in() as there:
        yield there


def test_the_base_model(tmp_path):
    """Its supervised steps are in halves there, so they are near the processor's and not equal."""
    plan, made = card.registration(small=True), []
    for where in ("cpu", NAME):
        out = tmp_path / where
        out.mkdir()
        made.append(base.make(out, plan, where, Here(), 1))
        assert json.loads((out / "base.json").read_text()) == made[-1]
        assert (out / "base" / "model.safetensors").is_file()
    here, there = (x["checks"][-1]["loss"] for x in made)
    assert there == pytest.approx(here, rel=0.02) and there != here and made[0]["steps"] == made[1]["steps"] == 2


@pytest.mark.parametrize("method", ["dapo", "hapo", "tepo"])
def test_a_run_is_that_of_the_processor(method, tmp_path):
    """With the model that ships, which is right now and then. Two runs in one process begin with the same weights."""
    plan = card.registration(small=True)
    plan["rollout"] |= {"prompts": 4, "group_size": 4, "max_new_tokens": 24}
    mixture.write(tmp_path, (3, 4), train=8, test=8)
    shutil.copytree(ASSETS, tmp_path / "base")
    found = []
    for where in ("cpu", NAME, NAME):
        if where == "cpu" or not found[1:]:
            card._held.clear()
        job = (method, "held", 0)
        found.append(card.make(card.recipe(plan, job, 1e-3, tmp_path, where), plan, job, graphs=True))
        assert found[-1].pop("seconds") > 0
    here, there, again = found
    assert there == again and here["values"]["train-area"] == there["values"]["train-area"] > 0
    assert there["values"] == pytest.approx(here["values"], rel=1e-2) and there["values"]["mean:kl"] > 0
    assert there["course"]["kl_rate"] == pytest.approx(here["course"]["kl_rate"], rel=1e-2)
