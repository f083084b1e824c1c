"""The comparison of hosts on hosts that are made here: one that is right, and ones that are wrong in one case."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

import tokenpo
from conformance import CASES, Compared, Step, compared
from tokenpo.core.types import Batch, Credit

MEAN = "a mean over each micro-batch"


def right(step: Step, *, name: str = "dapo", fault: str = "") -> Tensor:
    """A framework's loss, which adds up over micro-batches and ranks; with one fault."""
    objective, facts = tokenpo.method(name), step.rollouts
    mask = step.written if fault == "a tool's tokens count" else facts.mask
    facts = tokenpo.Rollouts(mask, facts.reward, facts.group, facts.old_logprob)
    rows = len(mask) if fault == "empty rows count" else int(mask.any(1).sum())
    credit = Credit(step.advantage)
    if fault == "alone":
        credit = Credit(step.advantage + (facts.group > 3)[:, None])
    pieces = [piece for rank in step.ranks for piece in rank]
    if fault == "a rank is left out":
        pieces = list(step.ranks[0])
    length = mask.shape[1] if fault == "padded width" else step.length
    total = torch.zeros((), dtype=torch.float64)
    for piece in pieces:
        tokens = float(mask[piece].sum()) * len(pieces) if fault == MEAN else float(mask.sum())
        batch = Batch(facts, credit, step.policy.only(objective.needs)).rows(piece)
        total = total + objective.loss(batch, tokenpo.Totals(tokens, float(rows), float(length))).value
    return total


def made(loss: object = right, what: tuple[Compared, ...] = (Compared("dapo", {}, {}),)) -> ModuleType:
    module = ModuleType("tokenpo.hosts.made")
    module.loss, module.COMPARED = loss, what  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["dapo", "grpo", "gspo", "dr_grpo"])
def test_the_right_loss_agrees_in_every_case(name: str, case: str) -> None:
    found = compared(made(), Compared(name, {}, {"name": name}), case)
    assert found.agrees and found.difference < 1e-12 and found.reference != 0


@pytest.mark.parametrize(
    ("name", "fault", "cases"),
    [
        ("dapo", MEAN, {"four micro-batches", "two ranks"}),
        ("dapo", "a rank is left out", {"two ranks"}),
        ("grpo", "empty rows count", {"an empty response"}),
        ("dapo", "a tool's tokens count", {"a tool's tokens inside", "an empty response"}),
        ("dr_grpo", "padded width", {"more padding"}),
        ("grpo", "alone", {"alone with its prompt"}),
    ],
)
def test_a_fault_shows_in_its_case_alone(name: str, fault: str, cases: set[str]) -> None:
    what = Compared(name, {}, {"name": name, "fault": fault}, dict.fromkeys(cases, "known"))
    found = [compared(made(), what, case) for case in CASES]
    assert {one.case for one in found if not one.agrees} == cases
    assert all(one.why == ("" if one.agrees else "known") for one in found)


def test_a_gradient_alone_may_differ() -> None:
    def detached(step: Step) -> Tensor:
        return right(step) + (step.policy.logprob - step.policy.logprob.detach())[:, 0].sum()

    found = compared(made(detached), Compared("dapo", {}, {}), "in one piece")
    assert not found.agrees and found.host == pytest.approx(found.reference, rel=1e-12)
