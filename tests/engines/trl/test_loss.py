"""The loss in the model's head beside the same by TRL's own pass, at the same weights; where the head is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from random_models import random_phi
from trl_support import beside, run_script

pytestmark = pytest.mark.usefixtures("trl_here")

TWICE = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_iterations": 2}
SINGLE = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "steps_per_generation": 8}
ALONE = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1, "steps_per_generation": 8}
# Groups of four split over two ranks with three rows each.
SPLIT = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 1, "steps_per_generation": 2}

METHODS = (
    "grpo", "dr_grpo", "dapo", "gspo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo", "clip_cov", "kl_cov", "aer",
    "skywork_entropy", "lopti", "ha_dw",
)  # fmt: skip


def _case(name: str, schedule: dict[str, int] = TWICE, rewards: str = "sums", **more: Any) -> dict[str, Any]:
    method, _, _ = name.partition("-")
    return {**beside.case(method, "", schedule, [rewards]), "name": name, "family": "tied", **more}


ONE = [
    *map(_case, METHODS),
    _case("tepo-analytic", options={"decreasing": "analytic"}),
    _case("grpo-warm", settings={"temperature": 1.3}),
    _case("tepo-warm", options={"decreasing": "analytic"}, settings={"temperature": 1.3}),
    _case("grpo-untied", family="untied"),
    _case("clip_cov-untied", family="untied"),
    _case("tepo-lora", lora=True),
    _case("gspo-lora-untied", family="untied", lora=True),
    _case("grpo-unscored", SINGLE, "seldom"),
    _case("grpo-bf16", bf16=True),
]
TWO = [
    _case("grpo", SPLIT),
    _case("kl_cov", SPLIT),
    _case("gtpo-untied", SPLIT, family="untied"),
    _case("tepo-lora", SPLIT, lora=True),
    _case("grpo-unscored", SINGLE, "seldom"),
    # With checkpoints DDP waits for the gradient of every parameter, without a token too.
    _case("grpo-checkpointed-unscored", ALONE, "seldom", family="untied", checkpointing=True),
]


def _ran(cases: list[dict[str, Any]], models: dict[str, Path], out: Path, processes: int) -> Callable:
    plans = [beside.planned(case, processes) | {"model": str(models[case["family"]])} for case in cases]
    (out / "cases.json").write_text(json.dumps(plans))
    run_script("both_run.py", out / "cases.json", out, processes=processes)
    return lambda name: [json.loads((out / f"{name}-rank{rank}.json").read_text()) for rank in range(processes)]


@pytest.fixture(scope="module")
def models(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"tied": model_dir, "untied": random_phi(tmp_path_factory.mktemp("phi"))}


@pytest.fixture(scope="module")
def one(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable:
    return _ran(ONE, models, tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="module")
def two(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable:
    return _ran(TWO, models, tmp_path_factory.mktemp("two"), 2)


def _agree(name: str, ranks: list[list[dict[str, Any]]]) -> None:
    half = name.endswith("bf16")
    for records in ranks:
        for number, seen in enumerate(records):
            if name.startswith("kl_cov") and seen.get("ratio_is_one") == 1:
                continue  # |log ratio| has a kink at 0, where the other way's own rounding decides its slope
            ours, theirs = seen["loss"]
            assert ours == pytest.approx(theirs, rel=1e-2 if half else 1e-5, abs=1e-2 if half else 1e-6), number
            for what in {"gradient", "pull", "entropy", "terms"} & set(seen):
                apart, norm = seen[what]
                assert apart <= (3e-2 if half else 1e-5) * norm + 1e-7, f"{what} of micro-batch {number}: {apart}"
        assert any(seen["gradient"][1] > 1e-3 for seen in records), "no gradient to compare"
        assert any(seen.get("ratio_is_one", 1) < 0.5 for seen in records), "the policy never moved"
        # Old and new policy come from one computation: at the same weights they are the same numbers.
        assert records[0].get("ratio_is_one", 1) == 1
    if name.endswith("unscored"):
        assert any(seen["tokens"] == 0 for records in ranks for seen in records)


@pytest.mark.parametrize("name", [case["name"] for case in ONE])
def test_one_process(name: str, one: Callable) -> None:
    _agree(name, one(name))


@pytest.mark.parametrize("name", [case["name"] for case in TWO])
def test_two_processes(name: str, two: Callable) -> None:
    _agree(name, two(name))
