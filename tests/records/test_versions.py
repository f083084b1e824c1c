"""The commit of the software: of a clone that it runs from, and of nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tokenpo.records.log import commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit of src/ours/it.py."""
    package = tmp_path / "clone" / "src" / "ours"
    package.mkdir(parents=True)
    (package / "it.py").write_text("x = 1\n")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", "-C", str(tmp_path / "clone"), *words], check=True)
    return package


def test_a_clone_has_its_commit_and_says_that_it_was_changed(clone: Path) -> None:
    head = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert commit(clone) == head.stdout.strip()
    commit.cache_clear()
    (clone / "it.py").write_text("x = 2\n")
    assert commit(clone) == head.stdout.strip() + " and changes"


def test_a_repository_around_an_installed_package_is_not_its_own(clone: Path, tmp_path: Path) -> None:
    installed = clone.parents[1] / ".venv" / "site-packages" / "ours"
    shutil.copytree(clone, installed)
    assert commit(installed) is None
    assert commit(shutil.copytree(clone, tmp_path / "elsewhere" / "src" / "ours")) is None
