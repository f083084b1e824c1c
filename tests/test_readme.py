"""README against the package."""

import re
from pathlib import Path

import pytest

from tokenpo.cli.main import main

ROOT = Path(__file__).parents[1]
TEXT = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_commands_are_there(capsys: pytest.CaptureFixture) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"make (\w+)", TEXT)) <= set(targets)
    words = set(re.findall(r"`tokenpo (\w+)", TEXT))
    assert words
    for word in words:
        with pytest.raises(SystemExit, match="0"):
            main([word, "--help"])


def test_it_is_one_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 50 and sum(line.startswith("![") for line in lines) == 2
