"""What a path of the user's function names: a module that is missing, one that fails, and the file of either."""

import sys
from pathlib import Path

import pytest

from tokenpo.base.user_code import Loaded


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize("path", ["absent:f", "absent.py:f", "broken.py:f", "broken:f", "broken:g"])
def test_what_cannot_be_loaded_says_why(here: Path, path: str) -> None:
    Path("broken.py").write_text("open('no such file')\n")
    assert Loaded(path, [str(here)]).about.keys() == {"failed"}


@pytest.mark.parametrize("folder", ["", "elsewhere/"])
def test_a_file_imports_its_neighbours_while_it_is_loaded(
    here: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (here / folder).mkdir(exist_ok=True)
    Path(f"{folder}helper_x.py").write_text("value = 7\n")
    Path(f"{folder}later_x.py").touch()
    late = "def late():\n    import later_x\n"
    Path(f"{folder}m_top.py").write_text(f"from helper_x import value\ndef f():\n    return value\n{late}")
    before = list(sys.path)
    try:
        assert Loaded(f"{folder}m_top.py:f")({})["value"] == 7
        failed = Loaded(f"{folder}m_top.py:late")({})
    finally:
        sys.modules.pop("helper_x", None)
    assert sys.path == before
    assert failed["text"] == "No module named 'later_x': install it, or put its folder on PYTHONPATH"


def test_a_function_that_exits_raises() -> None:
    """It would end the run, with status 0."""
    Path("m_exit.py").write_text("import sys\ndef f():\n    sys.exit(0)\n")
    answer = Loaded("m_exit.py:f")({})
    assert (answer["raised"], answer["place"], answer["text"]) == ("SystemExit", "m_exit.py:3", "0")
