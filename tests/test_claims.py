"""The ledger of claims: each verdict from numbers that can be followed by hand, and a page of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
EVEN = [0.0] * 10


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("ledger")


def tasks(**values: list[float]) -> dict:
    return {"task": {"threshold": 0.9, "values": {"steps": values}, "never": {}}}


def claim(ledger: ModuleType, above: bool, factor: float = 1.0):
    return ledger.Claim("A paper", "a claim", "a", "b", "steps", above, factor)


def test_ten_equal_signs_decide_one_claim(ledger: ModuleType) -> None:
    """p = 2 / 2^10 with ten differences of one sign, whatever their size."""
    (found,) = ledger.judge([claim(ledger, False)], tasks(a=[10.0] * 10, b=[12.0] * 10))
    assert found.mean == -2 and found.adjusted == 2 / 2**10
    assert found.verdict == "**holds here**"


def test_the_opposite_is_said(ledger: ModuleType) -> None:
    (found,) = ledger.judge([claim(ledger, True)], tasks(a=[10.0] * 10, b=[12.0] * 10))
    assert found.verdict == "**the opposite here**"


def test_half_is_judged_against_half(ledger: ModuleType) -> None:
    """10 against 12 is fewer, but far more than half: 10 - 0.5 * 12 = 4 in every seed."""
    (found,) = ledger.judge([claim(ledger, False, 0.5)], tasks(a=[10.0] * 10, b=[12.0] * 10))
    assert found.differences == (4.0,) * 10
    assert found.verdict == "**the opposite here**"


def test_equal_runs_are_inconclusive_without_a_number_of_seeds(ledger: ModuleType) -> None:
    (found,) = ledger.judge([claim(ledger, True)], tasks(a=EVEN, b=EVEN))
    assert found.verdict == "inconclusive"


def test_claims_of_all_tasks_are_one_family(ledger: ModuleType) -> None:
    """26 tests make 2 / 2^10 more than 0.05; 25 do not."""
    both = tasks(a=[1.0] * 10, b=EVEN)
    most = ledger.judge([claim(ledger, True)] * 25, both)
    assert [found.verdict for found in most] == ["**holds here**"] * 25
    over = ledger.judge([claim(ledger, True)] * 26, both)
    assert {found.verdict.partition(" ")[0] for found in over} == {"inconclusive"}


def test_the_families_can_be_decided_with_ten_seeds(ledger: ModuleType) -> None:
    assert 2 * max(len(ledger.CLAIMS), len(ledger.ABLATIONS)) * 2 / 2**10 <= 0.05


def test_what_was_not_measured_is_left_out(ledger: ModuleType) -> None:
    assert ledger.judge([claim(ledger, True)], tasks(a=EVEN)) == []


def test_the_page_tells_every_claim_and_every_mean(ledger: ModuleType) -> None:
    """From made-up numbers: each claim has a row a task, a method that never got there is marked."""
    claims = importlib.import_module("claims")
    every = {label: [float(i % 3) for i in range(10)] for label in claims.METHODS + claims.ABLATIONS}
    names = (*claims.METRICS, *(f"pass@{k}" for k in claims.K))
    found = {"threshold": 0.9, "values": dict.fromkeys(names, every), "never": {"train-steps": {"grpo": [1, 4]}}}
    text = ledger.page({"quickstart": found, "long_chains": found}, claims.commands())
    for claim in (*ledger.CLAIMS, *ledger.ABLATIONS):
        for task in ("quickstart", "long_chains"):
            assert f"| {claim.paper} | {claim.words} | {task} |" in text
    assert "≥ 0.9 (2 never)" in text
    assert "tokenpo compare quickstart --methods grpo,dapo,tepo" in text


def test_the_page_is_what_the_numbers_say(ledger: ModuleType) -> None:
    assert importlib.import_module("claims").main(["page", "--check"]) == 0
