"""TRL on frozen rollouts beside the embedded engine: value and gradient of every optimiser step are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trl_support import beside, frozen

pytestmark = pytest.mark.usefixtures("trl_here")

# What TRL takes of a rollout batch: rows of a micro-batch and rank, micro-batches of a step, parts, repetitions.
ALIGNED = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
STALE = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 3}
TWICE = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "num_iterations": 2,
}
FOLDED = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 2,
    "num_iterations": 2,
}
# Three rows of each rank in a micro-batch: 12 rows of two ranks are three groups, and the second lies on both.
SPLIT = {
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 2,
    "num_iterations": 2,
}
SPLIT_WHOLE = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
# One group of each rank in a step.
GROUPED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 8}
GROUPS = {"settings": {"minibatch_by": "groups"}}
# Without the model's head: TRL's own pass, and for the entropy drift the one with logits.
OWN = {"settings": {"fused_objective": False}}
DRIFT = {"options": {"decreasing": "analytic"}}

MANY = (
    "grpo", "dapo", "dr_grpo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo", "gspo", "clip_cov", "kl_cov", "lopti",
    "ha_dw", "aer", "skywork_entropy", "dppo_tv", "forking_tokens", "stapo",
)  # fmt: skip
SOME = ("grpo", "dapo", "clip_cov", "ha_dw")


def _cases(schedules: dict[str, dict], methods: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        beside.case(method, key, schedule, ["sums", "lengths"] if method in SOME else ["sums"])
        for key, schedule in schedules.items()
        for method in methods
    ]


ONE = [
    *_cases({"twice": TWICE}, MANY),
    *_cases({"aligned": ALIGNED, "stale": STALE, "folded": FOLDED}, SOME),
    beside.case("grpo", "unscored", STALE, ["seldom"]),
    *({**beside.case(name, "groups", GROUPED, ["sums"]), **GROUPS} for name in ("grpo", "kl_cov")),
    *({**beside.case(name, "own", TWICE, ["sums"]), **OWN} for name in (*SOME, "gspo", "kl_cov", "aer")),
    {**beside.case("tepo", "drift", TWICE, ["sums"]), **DRIFT},
    {**beside.case("tepo", "own-drift", TWICE, ["sums"]), **DRIFT, **OWN},
    {**beside.case("grpo", "own-unscored", STALE, ["seldom"]), **OWN},
]
TWO = [
    *_cases({"split": SPLIT}, ("grpo", "tepo", "gtpo", "hapo", "gspo", "kl_cov", "lopti")),
    *_cases({"split-whole": SPLIT_WHOLE}, ("dapo", "grpo_s", "tr_grpo", "clip_cov", "ha_dw")),
    beside.case("grpo", "unscored", SPLIT, ["seldom"]),
    {**beside.case("grpo", "groups", GROUPED, ["sums"]), **GROUPS},
    *({**beside.case(name, "own", SPLIT, ["sums"]), **OWN} for name in ("gspo", "kl_cov")),
    {**beside.case("grpo", "own-unscored", SPLIT, ["seldom"]), **OWN},
]


@pytest.fixture(scope="module")
def one(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[beside.Step]]:
    return beside.ran(model_dir, tmp_path_factory.mktemp("one"), ONE, 1)


@pytest.fixture(scope="module")
def two(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[beside.Step]]:
    return beside.ran(model_dir, tmp_path_factory.mktemp("two"), TWO, 2)


def _agree(model: Path, steps: list[beside.Step]) -> None:
    found = beside.compared(model, steps)
    for number, step in enumerate(found):
        # Terms up to a hundred times as large cancel in some.
        assert step.loss == pytest.approx(step.expected, rel=2e-5, abs=1e-6), f"loss of step {number}"
        assert step.apart <= 1e-5 * step.norm, f"gradient of step {number}"
    assert any(step.norm > 1e-3 for step in found), "no step has a gradient to compare"
    if steps[0].case.get("settings") == GROUPS["settings"]:
        each = [{row // frozen.GROUP for row in step.rows} for step in steps]
        assert [len(groups) * frozen.GROUP for groups in each] == [len(step.rows) for step in steps]
        assert sorted(group for groups in each for group in groups) == list(
            range(steps[0].case["rows"] // frozen.GROUP)
        )
    # Several updates on a rollout batch move the policy far enough for clips and ratios to act.
    assert any(step.moved > 0.3 for step in found) == (steps[0].case["updates"] > 1)


@pytest.mark.parametrize("name", [case["name"] for case in ONE])
def test_one_process(name: str, one: Callable[[str], list[beside.Step]], model_dir: Path) -> None:
    _agree(model_dir, one(name))


@pytest.mark.parametrize("name", [case["name"] for case in TWO])
def test_two_processes(name: str, two: Callable[[str], list[beside.Step]], model_dir: Path) -> None:
    _agree(model_dir, two(name))
