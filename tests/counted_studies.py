"""Studies of exact worlds in which no method is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenpo.lab.exact import study
from tokenpo.lab.exact.contestant import Contestant

EXACT = Path(__file__).parents[1] / "docs" / "exact.json"


def counted(patch: pytest.MonkeyPatch, numbers: Path) -> list[str]:
    """Labels in the order in which they are studied; every result is DAPO's in these numbers."""
    labels: list[str] = []
    cell = study.load(numbers)["dapo"].cells["two_modes"]

    def quick(contestant: Contestant, *given: object) -> study.Cell:
        labels.append(contestant.label)
        return study.Cell(dict(cell.numbers), cell.useful, cell.curve)

    patch.setattr(study, "study", quick)
    return labels
