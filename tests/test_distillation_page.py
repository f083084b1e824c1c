"""docs/distillation.md says what every form of the package does, and what the numbers say."""

from __future__ import annotations

import distillation as tool
import pytest
from distillation_worlds import judge, taught


def test_every_form_has_its_line() -> None:
    said = [name for group in tool.SAID.values() for name in group]
    assert sorted(said) == sorted(tool.FORMS)
    assert {form for _, _, form, _ in tool.FRAMEWORKS} <= set(tool.FORMS)
    text = tool.PAGE.read_text(encoding="utf-8")
    assert [name for name in said if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("name", ["credit x", "credit −k3", "top-k forward, at least 0"])
def test_where_training_ends(name: str) -> None:
    """In one of the page's worlds: at the teacher, away from it, and somewhere between."""
    left = judge(taught(0), tool.FORMS[name]).left
    least, most = {"credit x": (0.0, 0.01), "credit −k3": (2.0, 9.0)}.get(name, (0.05, 0.5))
    assert least < left < most


@pytest.mark.slow
def test_page_and_picture_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["distillation.py", "--check"])
    assert tool.main() == 0
