"""The bed, a finished study, whose verdicts other pages quote."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[2] / "studies"
sys.path[:0] = [str(STUDIES), str(STUDIES / "2026-11-23-bed")]

import bed  # noqa: E402
import ledger  # noqa: E402


@functools.cache
def the_bed() -> bed.Bed:
    """Its plan and its numbers."""
    return bed.Bed.read(bed.HERE / "bed.toml", bed.HERE / "bed.jsonl")


@functools.cache
def judged() -> list[ledger.Judged]:
    """Its verdicts."""
    return the_bed().judged()


def rows_about(method: str) -> str:
    """The rows of docs/bed.md that name a method, as a table; nothing for those that were not run."""
    rows = [item for item in judged() if method in (item.test.claim.method, item.test.claim.other)]
    return ledger.rows(rows) if rows else ""
