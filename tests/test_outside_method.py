"""A method from outside the package: its file (`own_method`), one line of the table, its test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import tokenpo
from own_method import FILE
from tokenpo.methods import METHODS, Paper, paper


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = tmp_path / "late.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location("late", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "late", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, "late", module.late)
    return module


def test_it_obeys_the_laws(late: ModuleType) -> None:
    tokenpo.check_method(tokenpo.method("late", high=0.3))


def test_by_hand(late: ModuleType) -> None:
    """Rewards 1 and 0: A = ±1/2. Ratios 1, 2 | 1/2: the 2 is clipped at 1.2, the 1/2 at 0.8.

    Weights 1/2, 1 | 1: 1/2 · 1 · 1/2 + 1 · 1.2 · 1/2 - 1 · 0.8 · 1/2 = 0.45 over three tokens: loss -0.15.
    Only the first token has a gradient: -(1/2 · 1 · 1/2) / 3 = -1/12.
    """
    mask = torch.tensor([[True, True], [True, False]])
    old = torch.full((2, 2), 0.25, dtype=torch.float64).log()
    logprob = (old + torch.tensor([[1.0, 2.0], [0.5, 1.0]], dtype=torch.float64).log()).requires_grad_()
    rollouts = tokenpo.Rollouts(mask, torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([0, 1]), old)
    objective = tokenpo.method("late")
    batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), tokenpo.Policy(logprob))
    loss = objective.loss(batch, tokenpo.Totals.of(rollouts))
    loss.value.backward()
    assert loss.value.item() == pytest.approx(-0.15, rel=1e-14)
    assert logprob.grad.flatten().tolist() == pytest.approx([-1 / 12, 0, 0, 0], rel=1e-14)


# What follows by itself from the line in the table.
def test_it_is_a_method_like_any_other(late: ModuleType) -> None:
    assert tokenpo.method("late", low=0.1).surrogate.bounds.low == 0.1
    assert paper("late") == Paper("An example", "0000.00000", "reconstructed")
    assert paper("late").reference == "arXiv:0000.00000"
    assert "weights     Position()" in str(tokenpo.method("late"))
    with pytest.raises(tokenpo.UnknownName, match=r"^method late has no option 'hihg'; did you mean 'high'\?$"):
        tokenpo.method("late", hihg=0.3)
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'lat': did you mean 'late'\?$"):
        tokenpo.method("lat")


def test_a_builder_without_a_paper_still_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(*, low: float = 0.2) -> tokenpo.Objective:
        return tokenpo.method("grpo", low=low)

    monkeypatch.setitem(METHODS, "bare", bare)
    assert tokenpo.method("bare", low=0.1) == tokenpo.method("grpo", low=0.1)
    with pytest.raises(tokenpo.UnknownName, match="method bare has no option 'lwo'"):
        tokenpo.method("bare", lwo=0.1)
    with pytest.raises(tokenpo.TokenPOError, match=r"method bare names no paper: put @Paper\(...\) above its builder"):
        paper("bare")
