"""TRL on frozen rollouts beside the embedded engine: value and gradient of every optimiser step are the same.

The reference takes nothing of the adapter: the rollouts and rewards are functions of their place, the weights are those
that TRL had before the step, and of TRL's own run only the rows of each step are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

import tokenpo
from trl_support import frozen, run_script
from trl_support.reference import Reference, same

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

MANY: dict[str, dict] = {
    "grpo": {}, "dapo": {}, "dr_grpo": {}, "tepo": {}, "gtpo": {}, "grpo_s": {}, "tr_grpo": {}, "hapo": {"tau": 0},
    "gspo": {}, "clip_cov": {"fraction": 0.2}, "kl_cov": {"fraction": 0.3}, "lopti": {}, "ha_dw": {}, "aer": {},
    "skywork_entropy": {}, "dppo_tv": {}, "forking_tokens": {}, "stapo": {},
}  # fmt: skip


def _cases(schedules: dict[str, dict], methods: dict[str, dict]) -> list[dict[str, Any]]:
    return [
        {"name": f"{method}-{key}", "method": method, "options": options, "schedule": schedule,
         "rewards": ["sums", "lengths"] if method in SOME else ["sums"]}
        for key, schedule in schedules.items()
        for method, options in methods.items()
    ]  # fmt: skip


def _of(*methods: str) -> dict[str, dict]:
    return {method: MANY[method] for method in methods}


SOME = _of("grpo", "dapo", "clip_cov", "ha_dw")
ONE = [
    *_cases({"twice": TWICE}, MANY),
    *_cases({"aligned": ALIGNED, "stale": STALE, "folded": FOLDED}, SOME),
    {"name": "grpo-unscored", "method": "grpo", "options": {}, "rewards": ["seldom"], "schedule": STALE},
]
TWO = [
    *_cases({"split": SPLIT}, _of("grpo", "tepo", "gtpo", "hapo", "gspo", "kl_cov", "lopti")),
    *_cases({"split-whole": SPLIT_WHOLE}, _of("dapo", "grpo_s", "tr_grpo", "clip_cov", "ha_dw")),
    {"name": "grpo-unscored", "method": "grpo", "options": {}, "rewards": ["seldom"], "schedule": SPLIT},
]  # fmt: skip


def _steps(case: dict[str, Any], processes: int) -> dict[str, Any]:
    """The case, of two rollout batches where the method carries something from one to the next."""
    plan = case["schedule"]
    parts = plan.get("steps_per_generation", plan["gradient_accumulation_steps"])
    updates = parts * plan.get("num_iterations", 1) // plan["gradient_accumulation_steps"]
    rows = plan["per_device_train_batch_size"] * parts * processes
    assert rows % frozen.GROUP == 0
    batches = 2 if tokenpo.method(case["method"], **case["options"]).memories or updates == 1 else 1
    return {**case, "rows": rows, "updates": updates, "schedule": {**plan, "max_steps": batches * updates}}


@dataclass(frozen=True)
class Step:
    """What TRL did in one optimiser step."""

    case: dict[str, Any]
    number: int
    rows: list[int]
    loss: float
    tensors: dict[str, torch.Tensor]


def _read(directory: Path, case: dict[str, Any], processes: int) -> list[Step]:
    ranks = [json.loads((directory / case["name"] / f"rank{r}.json").read_text()) for r in range(processes)]
    assert all(rank["updates"] == case["updates"] for rank in ranks)
    steps = []
    for number in range(case["schedule"]["max_steps"]):
        seen = [micro for rank in ranks for micro in rank["seen"] if micro["step"] == number]
        assert len(seen) == processes * case["schedule"]["gradient_accumulation_steps"]
        rows = sorted(row for micro in seen for row in micro["rows"])
        loss = sum(micro["loss"] for micro in seen) / processes
        tensors = load_file(directory / case["name"] / f"step{number}.safetensors")
        steps.append(Step(case, number, rows, loss, tensors))
    return steps


@pytest.fixture(scope="module")
def one(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Step]]:
    return _ran(model_dir, tmp_path_factory.mktemp("one"), ONE, 1)


@pytest.fixture(scope="module")
def two(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Step]]:
    return _ran(model_dir, tmp_path_factory.mktemp("two"), TWO, 2)


def _ran(model: Path, out: Path, cases: list[dict], processes: int) -> Callable[[str], list[Step]]:
    planned = [_steps(case, processes) for case in cases]
    (out / "cases.json").write_text(json.dumps(planned))
    run_script("frozen_run.py", model, out / "cases.json", out, processes=processes)
    return lambda name: _read(out, next(case for case in planned if case["name"] == name), processes)


def _facts(case: dict[str, Any], batch: int) -> dict[str, torch.Tensor]:
    """The rollout batch, as far as it does not depend on weights."""
    ids = [frozen.completion(batch, row) for row in range(case["rows"])]
    rewards = [frozen.total(row, case["rewards"]) for row in ids]
    mask = pad_sequence(
        [torch.ones(len(row)).bool() & (r is not None) for row, r in zip(ids, rewards, strict=True)], True
    )
    facts = {
        "mask": mask,
        "reward": torch.tensor([r or 0.0 for r in rewards]),
        "group": torch.arange(case["rows"]) // frozen.GROUP,
        "token_ids": pad_sequence([torch.tensor(row) for row in ids], True),
        "temperature": torch.ones(mask.shape),
    }
    if "rollout_logprob" in tokenpo.method(case["method"]).needs:
        said = [torch.tensor(frozen.reported(batch, row)) for row in range(case["rows"])]
        facts["rollout_logprob"] = pad_sequence(said, True)
    return facts


def _agree(model: Path, steps: list[Step]) -> float:
    """Every step of a case; the largest |log-ratio| that they saw."""
    case, furthest, compared = steps[0].case, 0.0, False
    objective = tokenpo.method(case["method"], **case["options"])
    reference = Reference(model, objective, seed=3, longest=frozen.LONGEST)
    state, groups = objective.start(), case["rows"] // frozen.GROUP
    for step in steps:
        batch, place = divmod(step.number, case["updates"])
        if place == 0:
            prompts = [reference.lm.encode(text) for text in frozen.prompts()[batch * groups : (batch + 1) * groups]]
            rollouts = reference.scored(_facts(case, batch), prompts, step.tensors)
            credit = objective.prepare(rollouts, state)
            state = objective.after(state, rollouts)
        share = place / case["updates"]
        loss, grads = reference.gradient(step.tensors, step.rows, step.number, share, rollouts, prompts, credit)
        assert step.loss == pytest.approx(loss, rel=1e-5, abs=1e-6), f"loss of step {step.number}"
        compared |= same(step.tensors, grads, f"gradient of step {step.number}")
        furthest = max(furthest, reference.moved(rollouts, prompts))
    assert compared, "no step has a gradient to compare"
    return furthest


@pytest.mark.parametrize("name", [case["name"] for case in ONE])
def test_one_process(name: str, one: Callable[[str], list[Step]], model_dir: Path) -> None:
    steps = one(name)
    furthest = _agree(model_dir, steps)
    # Several updates on a rollout batch move the policy far enough for clips and ratios to act.
    assert (furthest > 0.3) == (steps[0].case["updates"] > 1)


@pytest.mark.parametrize("name", [case["name"] for case in TWO])
def test_two_processes(name: str, two: Callable[[str], list[Step]], model_dir: Path) -> None:
    steps = two(name)
    furthest = _agree(model_dir, steps)
    assert (furthest > 0.3) == (steps[0].case["updates"] > 1)
