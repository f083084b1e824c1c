"""A study that is short, and its files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpo.cli.main import main
from tokenpo.lab.exact import measures, study, training

MINE = """
import tokenpo

def still():
    return tokenpo.method("dapo", high=0.0)
"""


@pytest.fixture(scope="module")
def short() -> Iterator[None]:
    """Fewer replicates and shorter runs: what a study holds is tested here, not how exact it is."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (measures, "REPLICATES", 2), (measures, "POPULATION", 4), (training, "MOST", 8), (training, "NOISY", 2),
            (training, "SEEDS", 1), (study, "EXPECTED", 1), (study, "shipped", lambda setting: {}),
        ):  # fmt: skip
            patch.setattr(module, name, value)
        _forget()
        yield
    _forget()


def _forget() -> None:
    for kept in (measures._population, measures._facts):
        kept.cache_clear()


@pytest.fixture(scope="module")
def made(short: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a method of one's own was studied in one world."""
    folder = tmp_path_factory.mktemp("exact")
    (folder / "mine.py").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["exact", "mine.py:still", "--world", "two_modes", "--json", "all.json", "--page", "x.html"]) == 0
    return folder
