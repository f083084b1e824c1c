"""The ledger of claims: each verdict from numbers that can be followed by hand, and a page of them."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
EVEN = [0.0] * 10


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("ledger")


def tasks(never: dict[str, list[int]] | None = None, **values: list[float]) -> dict:
    return {"task": {"threshold": 0.9, "values": {"steps": values}, "never": {"steps": never or {}}}}


def claim(ledger: ModuleType, above: bool, factor: float | None = None, margin: float | None = None, paper: str = "P"):
    return ledger.Claim(paper, "a claim", "a", "b", "steps", above, factor, margin)


def judge(ledger: ModuleType, claims, found, looks=(10,), shares=(1.0,)):
    return ledger.judge(claims, found, ledger.Looks(looks, shares))


def test_ten_equal_signs_decide_one_claim(ledger: ModuleType) -> None:
    """p = 2 / 2^10 with ten differences of one sign, whatever their size."""
    (found,) = judge(ledger, [claim(ledger, False)], tasks(a=[10.0] * 10, b=[12.0] * 10))
    assert found.test.differences.mean == -2 and found.adjusted == 2 / 2**10
    assert found.verdict == "**shown**"


def test_the_opposite_has_to_be_shown_too(ledger: ModuleType) -> None:
    (found,) = judge(ledger, [claim(ledger, True)], tasks(a=[10.0] * 10, b=[12.0] * 10))
    assert found.verdict == "**opposite shown**"
    (found,) = judge(ledger, [claim(ledger, True)], tasks(a=[10.0] * 10, b=[12.0] * 5 + [9.0] * 5))
    assert found.kind == "inconclusive"


def test_half_is_judged_by_the_ratio(ledger: ModuleType) -> None:
    """10 against 12 is fewer, but far more than half: log(10 / 6) in every seed; the table shows 10 / 12."""
    (found,) = judge(ledger, [claim(ledger, False, 0.5)], tasks(a=[10.0] * 10, b=[12.0] * 10))
    assert found.test.differences.values == pytest.approx((math.log(10 / 6),) * 10)
    assert found.verdict == "**opposite shown**" and found.cells()[4] == "0.833"


def test_a_run_that_never_arrived_leaves_its_pair_an_order_at_most(ledger: ModuleType) -> None:
    """a arrives at 10 in ten seeds, b at 12 in eight of them and never within 30 in two: ten orders, eight differences.

    Of ten equal orders p = 2/2^10. Where a never arrives either, in two, eight of ten: 2 (45 + 10 + 1) / 2^10.
    """
    values = {"a": [10.0] * 10, "b": [12.0] * 8 + [31.0] * 2}
    (found,) = judge(ledger, [claim(ledger, False)], tasks({"b": [8, 9]}, **values))
    assert found.adjusted == 2 / 2**10 and found.verdict == "**shown**"
    assert found.cells()[4:6] == ("-2 (8 of 10 pairs)", "-2 to -2")
    values["a"] = [10.0] * 8 + [31.0] * 2
    (found,) = judge(ledger, [claim(ledger, False)], tasks({"a": [8, 9], "b": [8, 9]}, **values))
    assert found.adjusted == 112 / 1024 and found.verdict == "inconclusive"


def test_a_bound_says_nothing_of_half_where_it_is_too_near(ledger: ModuleType) -> None:
    """b takes more than 30: a = 10 is less than half of it whatever it takes, a = 20 may be more."""
    for a, known in ((10.0, 10), (20.0, 0)):
        (found,) = judge(ledger, [claim(ledger, False, 0.5)], tasks({"b": [*range(10)]}, a=[a] * 10, b=[31.0] * 10))
        assert (found.test.differences.behind, found.test.differences.ahead) == (known, 0)
        assert found.kind == ("shown" if known else "inconclusive")


def test_equal_runs_are_inconclusive_without_a_number_of_seeds(ledger: ModuleType) -> None:
    (found,) = judge(ledger, [claim(ledger, True)], tasks(a=EVEN, b=EVEN))
    assert found.verdict == "inconclusive"


def test_a_difference_is_shown_to_be_smaller_than_a_margin(ledger: ModuleType) -> None:
    """0.1 and -0.1 in turn all lie within ±0.2, so that each side has 1 of 2^10 patterns."""
    swing = [0.1, -0.1] * 5
    (found,) = judge(ledger, [claim(ledger, True, margin=0.2)], tasks(a=swing, b=EVEN))
    assert (found.equal, found.verdict) == (1 / 2**10, "**shown to be smaller than 0.2**")
    assert judge(ledger, [claim(ledger, True)], tasks(a=swing, b=EVEN))[0].kind == "inconclusive"
    small = judge(ledger, [claim(ledger, True, margin=0.2)], tasks(a=[0.1] * 10, b=EVEN))[0]
    assert small.verdict == "**shown**, smaller than 0.2"


def test_the_claims_of_a_paper_are_one_family_whatever_others_claim(ledger: ModuleType) -> None:
    """26 tests make 2 / 2^10 more than 0.05; 25 do not."""
    both = tasks(a=[1.0] * 10, b=EVEN)
    most = judge(ledger, [claim(ledger, True)] * 25 + [claim(ledger, True, paper="Q")] * 25, both)
    assert [found.verdict for found in most] == ["**shown**"] * 50 and {found.family for found in most} == {25}
    over = judge(ledger, [claim(ledger, True)] * 26, both)
    assert {found.kind for found in over} == {"inconclusive"}


def test_looks_share_the_error(ledger: ModuleType) -> None:
    """Six equal signs: 2/2^6 at the first look, of a share of 0.2: 0.156. Nine at the second: 2/2^9 / 0.8 = 0.0049.
    A tenth seed is no look."""
    values = [1.0] * 9 + [-9.0]
    made = [tasks(a=values[:n], b=EVEN[:n]) for n in (5, 6, 9, 10)]
    found = [judge(ledger, [claim(ledger, True)], of, (6, 9), (0.2, 0.8))[0] for of in made]
    assert found[0].verdict == "look 1 of 2 not reached" and found[0].adjusted == 1
    assert [item.adjusted for item in found[1:]] == pytest.approx([2 / 2**6 / 0.2, 2 / 2**9 / 0.8, 2 / 2**9 / 0.8])
    assert [item.kind for item in found] == ["not reached", "inconclusive", "shown", "shown"]
    assert len(found[2].test.differences.values) == 9


def test_the_families_can_be_decided_with_ten_seeds(ledger: ModuleType) -> None:
    claims = importlib.import_module("claims")
    for of in (claims.CLAIMS, claims.ABLATIONS):
        assert 2 * max(Counter(claim.paper for claim in of).values()) * 2 / 2**10 <= 0.05


def test_what_was_not_measured_is_left_out(ledger: ModuleType) -> None:
    assert judge(ledger, [claim(ledger, True)], tasks(a=EVEN)) == []


def test_the_page_tells_every_claim_and_every_mean(ledger: ModuleType) -> None:
    """From made-up numbers: each claim has a row a task, a method that never got there is marked."""
    claims = importlib.import_module("claims")
    every = {label: [float(1 + i % 3) for i in range(10)] for label in claims.METHODS + claims.VARIANTS}
    names = (*claims.METRICS, *(f"pass@{k}" for k in claims.K))
    found = {"threshold": 0.9, "values": dict.fromkeys(names, every), "never": {"train-steps": {"grpo": [1, 4]}}}
    text = claims.page({"quickstart": found, "long_chains": found})
    for claim in (*claims.CLAIMS, *claims.ABLATIONS):
        for task in ("quickstart", "long_chains"):
            assert f"| {claim.paper} | {claim.words} | {task} |" in text
    assert "≥ 1.9 (2 never)" in text
    assert "tokenpo compare quickstart --methods grpo,dapo,tepo" in text


def test_the_page_is_what_the_numbers_say(ledger: ModuleType) -> None:
    assert importlib.import_module("claims").main(["page", "--check"]) == 0
