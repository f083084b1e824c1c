"""The loop of docs/tinker.md runs as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tinker

from tinker_support import MODEL, Cloud, Service
from tokenpo.models.directory import ASSETS

PAGE = Path(__file__).parents[3] / "docs" / "tinker.md"


def test_the_loop_of_the_page_trains(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    cloud = Cloud(ASSETS)
    monkeypatch.setattr(tinker, "ServiceClient", lambda: Service(cloud))
    [code] = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "Qwen/Qwen3-8B" in code
    names: dict = {}
    exec(compile(code.replace("Qwen/Qwen3-8B", MODEL), str(PAGE), "exec", dont_inherit=True), names)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert names["state"]["updates"] == 4 and list(cloud.saved) == [names["saved"]]
