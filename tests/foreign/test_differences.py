"""The page of differences shows what TRL and verl give: every number of theirs is computed again."""

from pathlib import Path

import pytest

import conformance
from foreign_support.trl_trainer import GRPOConfig
from foreign_support.verl_losses import core

TOOLS = Path(__file__).parents[2] / "tools" / "site"


def test_the_page_is_what_the_frameworks_give(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    assert GRPOConfig and core  # both are installed, or this file was skipped
    monkeypatch.syspath_prepend(TOOLS)
    import differences

    assert differences.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("host", ["trl", "verl"])
def test_every_difference_is_known_and_every_known_one_shows(host: str) -> None:
    assert conformance.unknown(host) == []
