"""Methods at two checkpoints beside the worlds: a rank correlation by hand, and a page that is current."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("exact_checkpoints")


def test_rank_correlation(checkpoints: ModuleType) -> None:
    """Ranks 1 2 3 4 and 1 2 4 3: 1 − 6 · 2 / (4 · 15) = 0.8. Equal values share ranks: 1.5 1.5 3 against 1 2 3 has
    covariance 1.5 and sums of squares 1.5 and 2."""
    assert doctest.testmod(checkpoints).failed == 0
    x = list(range(50))
    rho, low, high = checkpoints.interval(x, [(k * 7) % 50 for k in x])
    assert low < rho < high and high - low < 0.7


def test_the_page_is_current(checkpoints: ModuleType) -> None:
    assert checkpoints.PAGE.read_text(encoding="utf-8") == checkpoints.page(), "python tools/exact_checkpoints.py"
