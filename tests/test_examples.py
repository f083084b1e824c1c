"""The examples run as they stand: scripts print what is beside them, notebooks run cell by cell."""

import io
import json
import runpy
from contextlib import redirect_stdout
from pathlib import Path

import notebooks
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = sorted(path.stem for path in EXAMPLES.glob("*.txt"))


@pytest.mark.parametrize("name", PRINTED)
def test_a_script_prints_what_is_beside_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name])
    with redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert said.getvalue() == (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", notebooks.quick(), ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_make(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells[:3])
    made = notebooks.executed(text, path.name)
    assert made == text, "python tools/site/notebooks.py"


def test_every_example_stands_on_the_page() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb"), *EXAMPLES.glob("*.txt")]:
        assert f"({path.name})" in page, path.name
    scripts = "benchmark_file compare_seeds entropy_collapse new_method"
    assert scripts.split() == PRINTED
