"""Supply: the list of hashes pins what is installed, every pin has a hash, and the check of it can fail."""

from __future__ import annotations

import re
from pathlib import Path

import hashes
import pytest

ROOT = Path(__file__).parents[1]


def test_the_list_pins_what_the_constraints_pin() -> None:
    text = hashes.LIST.read_text(encoding="utf-8")
    assert hashes.problems(text) == []
    assert len(hashes.pins(text)) == len(hashes.pins(hashes.PINS.read_text(encoding="utf-8"))) - 1  # torch
    assert text.count("--hash=sha256:") > len(hashes.pins(text))
    # pip takes options in such a file; a list that names an index or a place would change where files come from.
    assert not re.search(r"://|^-|@ ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((r"^numpy==\S+", "numpy==2.4.5"), "not pinned as in constraints.txt: numpy==2.4.5"),
        ((r"^zss==1.2.0 (?:.*\\\n)*.*\n", ""), "not pinned as in constraints.txt: zss==1.2.0"),
        ((r"^six==1.17.0 (?:.*\\\n)*.*\n", "six==1.17.0\n"), "without a hash: six==1.17.0"),
        ((r"(^six==1.17.0 \\\n    --hash=sha256:)[0-9a-f]{64}", r"\g<1>0"), "without a hash: six==1.17.0"),
    ],
)
def test_a_list_that_is_not_right_is_named(change: tuple[str, str], said: str) -> None:
    text = hashes.LIST.read_text(encoding="utf-8")
    broken = re.sub(*change, text, count=1, flags=re.MULTILINE)
    assert broken != text
    assert said in hashes.problems(broken)
