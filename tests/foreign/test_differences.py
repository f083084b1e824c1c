"""The page of differences shows what TRL and verl give: both numbers of every row are computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreign_support.trl_trainer import GRPOConfig
from foreign_support.verl_losses import core

TOOLS = Path(__file__).parents[2] / "tools" / "site"


def test_the_page_is_what_the_frameworks_give(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    assert GRPOConfig and core  # both are installed, or this file was skipped
    monkeypatch.syspath_prepend(TOOLS)
    import differences

    assert differences.main(["--check"]) == 0, capsys.readouterr().out


def test_a_difference_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TOOLS)
    import differences

    gone = differences.Difference("TRL", "grpo", "nothing", "anything", "loss", lambda: (1.0, 1.0))
    monkeypatch.setattr(differences, "DIFFERENCES", (gone,))
    with pytest.raises(SystemExit, match="difference is gone"):
        differences.page()
