"""What becomes of the fields of TRL's settings: all are told, and those that reach the loss give the numbers of TRL's
own loss, on the same rows, at the same weights and advantages, over several iterations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foreign_support import need

need("trl", "trl is not installed: the fields of its settings were not compared")

from trl import GRPOConfig  # noqa: E402 # pyright: ignore[reportMissingImports]

from tokenpo.engines.trl.settings import SETTINGS as TABLE  # noqa: E402
from tokenpo.engines.trl.settings import TRANSLATED  # noqa: E402
from trl_support import run_script  # noqa: E402

# Two micro-batches of an update, four updates on the same rollout batch.
SCHEDULE = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_iterations": 4, "max_steps": 4}
WHOLE = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_iterations": 4, "max_steps": 4}
# Two updates to a pass over the rollout batch, two passes; a second rollout batch.
STALE = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2,
    "max_steps": 8,
}  # fmt: skip
ROWS = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "generation_batch_size": 16,
    "num_iterations": 2, "max_steps": 4,
}  # fmt: skip
GRPO = {"loss_type": "grpo"}
RESPONSE = {**GRPO, "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}
DAPO = {"high": 0.2, "dual": None}
CLIPPED = {f"clip_ratio/{name}" for name in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")}
# Two thirds of the ids end a response, so that a third of the responses is truncated.
ENDS = [3, 174]


def _case(name: str, theirs: dict[str, Any], method: str = "grpo", **settings: Any) -> dict[str, Any]:
    """Keywords are our settings, but for `options`, `schedule`, `rewards`, `ends` and `served`."""
    case = {key: settings.pop(key) for key in ("options", "rewards", "schedule", "ends", "served") if key in settings}
    usual = {"options": {}, "rewards": ["sums"], "schedule": SCHEDULE}
    return {**usual, **case, "name": name, "method": method, "theirs": theirs, "settings": settings}


def _served(mode: str, **bounds: Any) -> dict[str, Any]:
    settings = {f"vllm_importance_sampling_{name}": value for name, value in {"mode": mode, **bounds}.items()}
    return _case(f"vllm-{mode}-{len(bounds)}", GRPO, served=True, **settings)


LOSSES = [
    _case(
        f"{row.method}-{number}", dict(row.theirs), row.method, options=dict(row.options),
        schedule=WHOLE if row.theirs.get("loss_type") == "bnpo" else SCHEDULE,
    )
    for number, row in enumerate(TRANSLATED) if not row.apart or row.theirs.get("loss_type") == "bnpo"
]  # fmt: skip
SETTINGS = [
    _case("beta", GRPO, beta=0.3),
    _case("beta-plain", GRPO, beta=0.3, use_bias_correction_kl=False),
    _case("beta-response", RESPONSE, "gspo", beta=0.3),
    _case("beta-response-plain", RESPONSE, "gspo", beta=0.3, use_bias_correction_kl=False),
    _case("beta-own-pass", GRPO, beta=0.3, fused_objective=False),
    _case(
        "moving-reference", GRPO, beta=0.3, sync_ref_model=True, ref_model_sync_steps=1, ref_model_mixup_alpha=0.5,
        schedule=STALE,
    ),
    _case("temperature", GRPO, temperature=1.3),
    _case("two-rewards", GRPO, rewards=["sums", "lengths"]),
    _case("stale", GRPO, schedule=STALE),
    _case("rows", GRPO, schedule=ROWS),
    _case("truncated", {}, "dapo", options=DAPO, mask_truncated_completions=True, ends=ENDS),
    _case("all-truncated", {}, "dapo", options=DAPO, mask_truncated_completions=True, ends=[0, 1]),
    _served("token_truncate", clip_max=1.5),
    _served("token_mask", clip_min=0.5, clip_max=None),
    _served("sequence_truncate", cap=2.0),
    _served("sequence_mask"),
    _served("sequence_mask", clip_min=0.1, clip_max=1.5),
    _case("off-policy-mask", GRPO, schedule=STALE, off_policy_mask_threshold=1e-3),
    _case("off-policy-mask-vllm", GRPO, schedule=STALE, served=True, off_policy_mask_threshold=1e-3),
    _case("vespo-vllm", {"loss_type": "vespo"}, "vespo", served=True, vllm_importance_sampling_mode="token_mask"),
    _case("vllm-off", GRPO, served=True, vllm_importance_sampling_correction=False),
]  # fmt: skip
CASES = [*LOSSES, *SETTINGS]
# Three rows of each rank in a micro-batch: of three groups the second lies on both.
SPLIT = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "num_iterations": 4, "max_steps": 4}
TWO = [
    _case("dapo", {}, "dapo", options=DAPO, schedule=SPLIT),
    _case("beta", GRPO, beta=0.3, schedule=SPLIT),
    _case("truncated", {}, "dapo", options=DAPO, mask_truncated_completions=True, ends=ENDS, schedule=SPLIT),
    {**_served("sequence_mask", clip_max=1.5), "schedule": SPLIT},
]

Ran = Callable[[str], list[list[dict[str, Any]]]]


def _fated(fate: str) -> set[str]:
    return {name for one in TABLE if one.fate == fate for name in one.names}


def test_every_field_is_told_once() -> None:
    told = [name for one in TABLE for name in one.names]
    assert sorted(told) == sorted(field.name for field in dataclasses.fields(GRPOConfig))


def test_every_field_that_reaches_the_loss_is_in_a_case() -> None:
    """`built` sets the group, the longest response and the weights of the rewards."""
    always = {"num_generations", "max_completion_length", "reward_weights"}
    seen = {name for case in SETTINGS for name in (*case["settings"], *case["schedule"])}
    assert _fated("honoured") <= seen | always


def test_what_is_translated_is_refused_by_its_own_name() -> None:
    alone = {"multi_objective_aggregation", "entropy_coef", "entropy_coef_min"}
    alone |= {"restore_callback_states_from_checkpoint"}
    assert {name for row in TRANSLATED for name in row.theirs} == _fated("refused") - alone


def _ran(cases: list[dict[str, Any]], model: Path, out: Path, processes: int) -> Ran:
    (out / "cases.json").write_text(json.dumps(cases))
    run_script("own_run.py", model, out / "cases.json", out, processes=processes)
    return lambda name: [json.loads((out / f"{name}-rank{rank}.json").read_text()) for rank in range(processes)]


@pytest.fixture(scope="module")
def one(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return _ran(CASES, model_dir, tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="module")
def two(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return _ran(TWO, model_dir, tmp_path_factory.mktemp("two"), 2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_loss_and_gradient_are_trls(case: dict[str, Any], one: Ran) -> None:
    _agree(case, *one(case["name"]))


@pytest.mark.parametrize("case", TWO, ids=lambda case: case["name"])
def test_loss_and_gradient_are_trls_in_two_processes(case: dict[str, Any], two: Ran) -> None:
    ranks = two(case["name"])
    for records in ranks:
        _agree(case, records)
    assert ranks[0] != ranks[1]


def _agree(case: dict[str, Any], records: list[dict[str, Any]]) -> None:
    schedule, settings = case["schedule"], case["settings"]
    assert len(records) == schedule["max_steps"] * schedule["gradient_accumulation_steps"]
    for number, seen in enumerate(records):
        ours, theirs = seen["loss"]
        # Two passes over the same weights in float32, and terms that cancel.
        assert ours == pytest.approx(theirs, rel=2e-5, abs=1e-6), f"loss of micro-batch {number}"
        apart, norm = seen["gradient"]
        assert apart <= 1e-5 * norm + 1e-7, f"gradient of micro-batch {number}: {apart} of {norm}"
        # Of no token TRL shows 0, and ours NaN. Of a response's ratio TRL shows shares of responses, ours of tokens.
        alike = set() if case["name"] == "all-truncated" else {"entropy", "kl"}
        alike |= CLIPPED if alike and "importance_sampling_level" not in case["theirs"] else set()
        assert {"entropy"} | ({"kl"} if "beta" in settings else set()) <= set(seen["metrics"])
        for name in alike & set(seen["metrics"]):
            expected, found = seen["metrics"][name]
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-5, nan_ok=True), f"{name} of micro-batch {number}"
        # Deviations of at least 1/3, to which TRL adds 1e-4 and ours 1e-6.
        assert seen["credit"] <= 3e-4 * seen["advantage"] + 1e-6, f"credit of micro-batch {number}"
    if case["name"] == "all-truncated":
        assert not any(seen["gradient"][1] for seen in records)
        return
    assert any(seen["gradient"][1] > 1e-2 for seen in records), "no gradient to compare"
    assert any(seen.get("moved", 0) > 0.3 for seen in records), "the policy never moved"
    if "beta" in settings:
        assert any(seen["away"] > 0.3 for seen in records), "the policy never left the reference"
    if "ends" in case:
        assert any(seen["empty"] for seen in records), "nothing was truncated"
    if case.get("served") and settings.get("vllm_importance_sampling_correction", True):
        bounds = {seen["bounded"] for seen in records}
        assert bounds != {0}, "no bound of the correction was met"
