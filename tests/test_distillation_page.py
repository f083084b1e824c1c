"""docs/distillation.md says what every form of the package does, and what the numbers say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tokenpo.lab.distillation import judge, taught

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools" / "site")
    return importlib.import_module("distillation")


def test_every_form_has_its_line(tool: ModuleType) -> None:
    said = [name for group in tool.SAID.values() for name in group]
    assert sorted(said) == sorted(tool.FORMS)
    assert {form for _, _, form, _ in tool.FRAMEWORKS} <= set(tool.FORMS)
    text = tool.PAGE.read_text(encoding="utf-8")
    assert [name for name in said if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("name", ["credit x", "credit −k3", "top-k forward, at least 0"])
def test_where_training_ends(tool: ModuleType, name: str) -> None:
    """In one of the page's worlds: at the teacher, away from it, and somewhere between."""
    left = judge(taught(0), tool.FORMS[name]).left
    least, most = {"credit x": (0.0, 0.01), "credit −k3": (2.0, 9.0)}.get(name, (0.05, 0.5))
    assert least < left < most


@pytest.mark.slow
def test_page_and_picture_are_current(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["distillation.py", "--check"])
    assert tool.main() == 0
