"""Claims on exact worlds: every verdict from numbers that can be followed by hand, and a page that is current."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

from tokenpo.lab.exact.study import Number

ROOT = Path(__file__).parents[1]
NEVER = Number(math.inf)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("exact_claims")


@pytest.mark.parametrize(
    ("change", "margin", "own", "other", "verdict"),
    [
        ("more", 0.1, Number(0.3, 0.03), Number(0.1, 0.04), "holds"),  # 0.2 ± 0.05
        ("more", 0.1, Number(0.3, 0.06), Number(0.1, 0.08), "undecided"),  # 0.2 ± 0.1: not beyond 0
        ("more", 0.1, Number(0.1, 0.03), Number(0.3, 0.04), "opposite"),
        ("less", 0.1, Number(0.1, 0.03), Number(0.3, 0.04), "holds"),
        ("more", 0.1, Number(0.02, 0.03), None, "smaller"),  # at most 0.08
        ("more", 0.1, Number(0.05, 0.03), None, "undecided"),  # up to 0.11
        ("ratio", 0.5, Number(4, 0.1), Number(10, 0.1), "holds"),
        ("ratio", 0.5, Number(7, 0.1), Number(10, 0.1), "smaller"),
        ("ratio", 0.5, Number(12, 0.1), Number(10, 0.1), "opposite"),
        ("ratio", 0.5, Number(5, 0.5), Number(10, 1), "undecided"),
        ("ratio", 0.5, NEVER, Number(10, 1), "opposite"),
        ("ratio", 0.5, Number(10, 1), NEVER, "holds"),
        ("more", 0.1, NEVER, Number(10, 1), "not reached"),
        ("more", 0.1, Number(math.nan), Number(1), "not reached"),
    ],
)
def test_verdict(
    claims: ModuleType, change: str, margin: float, own: Number, other: Number | None, verdict: str
) -> None:
    assert claims.judge(change, margin, own, other) == verdict


def test_the_page_is_current(claims: ModuleType) -> None:
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page(), "python tools/exact_claims.py"
