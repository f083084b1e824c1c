"""TRL's optimiser steps on frozen rollouts, beside the embedded engine's.

Rollouts and rewards are functions of their place, weights are TRL's before the step: of TRL's own run only the rows of
each step are read.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

import tokenpo

from . import frozen, run_script
from .reference import Reference, apart

# Options without which a method would leave frozen rollouts alone: too few tokens, or nothing that samples.
OPTIONS: dict[str, dict[str, Any]] = {
    "flash_reinforce": {"delta": 1.0}, "gtpo_conflict": {"most": 9.0}, "target_po": {"eta": 0.02},
    "hapo": {"tau": 0}, "clip_cov": {"fraction": 0.2}, "kl_cov": {"fraction": 0.3}, "opsm": {"delta": 0.02},
    "rollout_is": {"low": 1.0, "high": 9.0}, "prime_rl": {"low": 0.5, "high": 0.5}, "m2po_rollout": {"threshold": 0.3},
}  # fmt: skip


def schedule(rows: int, accumulate: int, chunks: int | None = None, iterations: int = 1, **more: int) -> dict[str, int]:
    """TRL's settings: rows of a micro-batch, micro-batches of a step, parts of a rollout batch, repetitions."""
    return {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": accumulate,
        "steps_per_generation": chunks or accumulate,
        "num_iterations": iterations,
        **more,
    }


def case(method: str, key: str, plan: dict[str, int], rewards: list[str]) -> dict[str, Any]:
    """One run of `frozen_run.py`."""
    options, name = OPTIONS.get(method, {}), f"{method}-{key}"
    return {"name": name, "method": method, "options": options, "schedule": plan, "rewards": rewards}


def planned(case: dict[str, Any], processes: int) -> dict[str, Any]:
    """The case, of two rollout batches where the method carries something from one to the next."""
    plan = case["schedule"]
    parts = plan.get("steps_per_generation", plan["gradient_accumulation_steps"])
    updates = parts * plan.get("num_iterations", 1) // plan["gradient_accumulation_steps"]
    rows = plan["per_device_train_batch_size"] * parts * processes
    assert rows % frozen.GROUP == 0
    batches = case.get("batches") or (
        2 if tokenpo.method(case["method"], **case["options"]).memories or updates == 1 else 1
    )
    return {**case, "rows": rows, "updates": updates, "schedule": {**plan, "max_steps": batches * updates}}


@dataclass(frozen=True)
class Step:
    """One optimiser step of TRL's."""

    case: dict[str, Any]
    number: int
    rows: list[int]
    loss: float
    tensors: dict[str, torch.Tensor]


Ran = Callable[[str], list[Step]]


def ran(model: Path, out: Path, cases: list[dict[str, Any]], processes: int, *, timeout: float = 550) -> Ran:
    """TRL on all cases, once; the steps of one by its name."""
    plans = [planned(case, processes) for case in cases]
    (out / "cases.json").write_text(json.dumps(plans))
    run_script("frozen_run.py", model, out / "cases.json", out, processes=processes, timeout=timeout)
    return lambda name: _read(out, next(case for case in plans if case["name"] == name), processes)


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


def facts(case: dict[str, Any], batch: int) -> dict[str, torch.Tensor]:
    """The fields of a rollout batch that depend on no weights."""
    ids = [frozen.completion(batch, row) for row in range(case["rows"])]
    rewards = [frozen.total(row, case["rewards"]) for row in ids]
    mask = pad_sequence(
        [torch.ones(len(row)).bool() & (r is not None) for row, r in zip(ids, rewards, strict=True)], True
    )
    found = {
        "mask": mask,
        "reward": torch.tensor([r or 0.0 for r in rewards]),
        "group": torch.arange(case["rows"]) // frozen.GROUP,
        "token_ids": pad_sequence([torch.tensor(row) for row in ids], True),
        "temperature": torch.ones(mask.shape),
    }
    needs = tokenpo.method(case["method"]).needs
    if "rollout_logprob" in needs:
        reported = [torch.tensor(frozen.reported(batch, row)) for row in range(case["rows"])]
        found["rollout_logprob"] = pad_sequence(reported, True)
    # Of a task without turns: each function's reward, and one turn from one state.
    each = [[frozen.total(row, [name]) for name in case["rewards"]] for row in ids]
    one, last = torch.zeros(mask.shape, dtype=torch.long), mask & (mask.cumsum(1) == mask.sum(1, keepdim=True))
    more = {
        "rewards": torch.tensor([[torch.nan if value is None else value for value in row] for row in each]),
        "turn": one,
        "anchor": one,
        "token_reward": found["reward"][:, None] * last,
    }
    return found | {name: x for name, x in more.items() if name in needs}


@dataclass(frozen=True)
class Compared:
    """One optimiser step of an engine beside the reference.

    Args:
        loss, expected: the engine's and the reference's.
        apart, norm: of the difference between the gradients, and of the reference's.
        moved: the largest |log-ratio| that the step saw.
    """

    loss: float
    expected: float
    apart: float
    norm: float
    moved: float


def compared(model: Path, steps: list[Step]) -> list[Compared]:
    """Every step of a case beside the embedded engine at the same weights."""
    case, found = steps[0].case, []
    objective = tokenpo.method(case["method"], **case["options"])
    reference = Reference(model, objective, seed=3, longest=frozen.LONGEST)
    state, groups = objective.start(), case["rows"] // frozen.GROUP
    for step in steps:
        batch, place = divmod(step.number, case["updates"])
        if place == 0:
            prompts = [reference.lm.encode(text) for text in frozen.prompts()[batch * groups : (batch + 1) * groups]]
            rollouts = reference.scored(facts(case, batch), prompts, step.tensors)
            credit = objective.prepare(rollouts, state)
            state = objective.after(state, rollouts)
        share = place / case["updates"]
        loss, grads = reference.gradient(step.tensors, step.rows, step.number, share, rollouts, prompts, credit)
        difference, norm = apart({name: step.tensors[f"grad/{name}"] for name in grads}, grads)
        found.append(Compared(step.loss, loss, difference, norm, reference.moved(rollouts, prompts)))
    return found
