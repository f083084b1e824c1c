"""The distributions: the wheel holds every file of the package, and alone it does what the documents say."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import tokenpo

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tokenpo"
FILES = {str(path.relative_to(ROOT / "src")) for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
INSTALLED = """
import sys
from pathlib import Path
assert Path(tokenpo.__file__).is_relative_to(sys.prefix), tokenpo.__file__
"""
SMALL = ("train.steps=2", "rollout.prompts=4", "evaluate.problems=4", "evaluate.samples=2")
TRAIN = ["train", "quickstart", *(word for setting in SMALL for word in ("--set", setting))]
EVERYTHING = [
    ["methods"],
    ["show", "tepo"],
    ["recipes", "quickstart"],
    TRAIN,
    ["report", "runs/quickstart-dapo-seed0"],
    ["exact", "grpo", "--world", "two_modes", "--json", "x.json"],
]


def said(command: list[str | Path], where: Path, **environment: str) -> str:
    """What a command prints in a folder, with nothing of this checkout on its path; it must succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean |= {"OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=where, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, in which `dist` is what the command of `make dist` made."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(PACKAGE, tree / "src" / "tokenpo", ignore=shutil.ignore_patterns("__pycache__"))
    (command,) = re.findall(r"^dist:.*\n\t\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    said([sys.executable, *command.split()], tree)
    return tree


def test_both_hold_every_file_of_the_package(built: Path) -> None:
    (source,), (wheel,) = (built / "dist").glob("*.tar.gz"), (built / "dist").glob("*.whl")
    info = f"tokenpo-{tokenpo.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        metadata = message_from_string(archive.read(f"{info}/METADATA").decode())
    assert {name for name in packed if not name.startswith(info)} == FILES
    with tarfile.open(source) as archive:
        names = {file.name.partition("/src/")[2] for file in archive if file.isfile() and "/src/tokenpo/" in file.name}
    assert names == FILES
    assert metadata["Version"] == tokenpo.__version__
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_alone_does_what_readme_says(built: Path, tmp_path: Path) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    home = tmp_path / "environment"
    said([sys.executable, "-m", "venv", "--without-pip", home], tmp_path)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    said([*pip, wheel], tmp_path)
    # torch and the rest are those of this environment. A path in a .pth file brings packages, but not the .pth files
    # beside them, so that an editable tokenpo of this environment stays out.
    base = {"base": str(home), "platbase": str(home)}
    here = Path(sysconfig.get_path("purelib", "venv", base))
    (here / "borrowed.pth").write_text("\n".join({sysconfig.get_path(kind) for kind in ("purelib", "platlib")}))

    page = (ROOT / "docs" / "own_loop.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "loop.py").write_text("\n".join([*blocks, INSTALLED]), encoding="utf-8")
    assert "mean reward" in said([python, "loop.py"], tmp_path)
    printed = {arguments[0]: said([home / "bin" / "tokenpo", *arguments], tmp_path) for arguments in EVERYTHING}
    assert all(name in printed["methods"] for name in tokenpo.methods.METHODS)
    assert tokenpo.__version__ in said([home / "bin" / "tokenpo", "--version"], tmp_path)
    run = Path("runs", "quickstart-dapo-seed0")
    assert (tmp_path / run / "report.html").stat().st_size > 10_000
    assert (tmp_path / "x.json").is_file()

    source = tmp_path / "source"
    source.mkdir()
    said([sys.executable, "-P", "-m", "tokenpo", *TRAIN], source, PYTHONPATH=str(ROOT / "src"))
    for name in ("samples.jsonl", "trace.jsonl", "model/model.safetensors"):
        assert (tmp_path / run / name).read_bytes() == (source / run / name).read_bytes(), name
