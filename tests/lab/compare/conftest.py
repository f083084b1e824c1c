"""Plans, and plans whose runs are written by hand."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tokenpo.lab.compare.plan import Plan, make_plan
from written_runs import RECIPE, rows, write_run


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """20 steps, evaluated every 5."""
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def plan(recipe: Path, tmp_path: Path) -> Callable[..., Plan]:
    """`plan(methods="grpo,dapo", seeds=8, overrides=())`, in tmp_path/out."""

    def make(methods: str = "grpo,dapo", seeds: int = 8, overrides: Iterable[str] = ()) -> Plan:
        return make_plan(str(recipe), methods, seeds, overrides=[*overrides], out=tmp_path / "out")

    return make


@pytest.fixture
def made(plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """A plan and all of its runs: run i of a seed rises `i + 1` times as fast, up to 1, and seeds differ a little.

    `leave` names runs ("grpo seed 0") that are not written.
    """

    def make(methods: str = "grpo,dapo", seeds: int = 8, leave: Iterable[str] = (), **more: Any) -> Plan:
        made_plan = plan(methods, seeds, **more)
        for i, run in enumerate(made_plan.runs):
            rank = i % len(made_plan.subject.labels) + 1
            slope = rank * (0.03 + 0.001 * run.seed)
            if run.name not in leave:
                every = run.config.evaluate.every
                write_run(run, rows(run.config.train.steps, every, lambda s, slope=slope: min(1.0, slope * s)))
        return made_plan

    return make
