"""Finished studies: each page is what its script makes of its committed numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    "2026-11-22-claims/claims.py page", "2026-11-23-bed/bed.py page", "2026-11-23-composition/composition.py",
    "2026-11-23-continuations/continuations.py", "2026-11-23-exact-claims/exact_claims.py",
    "2026-11-23-lessons/lessons.py",
]  # fmt: skip


def test_every_study_is_here() -> None:
    folders = {path.parent.name for path in (ROOT / "studies").glob("*/*.py")}
    assert folders == {line.partition("/")[0] for line in SCRIPTS}


@pytest.mark.slow
@pytest.mark.parametrize("line", SCRIPTS)
def test_its_page_is_what_its_numbers_say(line: str) -> None:
    command = [sys.executable, *f"studies/{line} --check".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
