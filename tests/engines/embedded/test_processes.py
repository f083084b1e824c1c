"""Same seed, same bytes, in processes of their own; and the wheel, installed elsewhere, is the whole package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SMALL = (
    "train.steps=2", "rollout.prompts=2", "rollout.group_size=4", "rollout.max_new_tokens=24", "evaluate.problems=4",
    "evaluate.samples=0", "evaluate.every=0", "threads=1",
)  # fmt: skip
pytestmark = pytest.mark.slow


def ran(out: Path, *, path: Path | None = None, seeds: str = "0", **settings: object) -> dict[str, bytes | list]:
    """A run of the quickstart of two steps; what of it must not depend on the clock."""
    words = [f"--set={setting}" for setting in (*SMALL, *(f"{k}={v}" for k, v in settings.items()))]
    command = [sys.executable, "-P", "-m", "tokenpo", "train", "quickstart", *words, "--out", str(out)]
    environment = {**os.environ, "PYTHONHASHSEED": seeds, "PYTHONPATH": str(path or ROOT / "src")}
    done = subprocess.run(command, env=environment, cwd=out.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "report.html").stat().st_size > 10_000
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    names = ("samples.jsonl", "trace.jsonl", "model/model.safetensors", "checkpoints/step-000002/optimizer.safetensors")
    return {name: (out / name).read_bytes() for name in names} | {
        "metrics": [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in lines]
    }


def test_two_processes_and_two_orders_of_hashes_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = ran(tmp_path / "a", seeds="1"), ran(tmp_path / "b", seeds="2")
    assert first == second
    assert ran(tmp_path / "c", seed=1) != first


def test_the_wheel_runs_the_quickstart_outside_the_checkout(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path / "wheels"), str(copy)], check=True)
    (wheel,) = (tmp_path / "wheels").glob("tokenpo-*.whl")
    there = tmp_path / "installed"
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "tokenpo/py.typed",
        "tokenpo/recipe/recipes/quickstart.toml",
        "tokenpo/models/assets/tiny/model.safetensors",
    } <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "tools"))]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(there)]
    subprocess.run([*install, str(wheel)], check=True)
    where = [sys.executable, "-P", "-c", "import tokenpo; print(tokenpo.__file__)"]
    found = subprocess.run(
        where, env={**os.environ, "PYTHONPATH": str(there)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert found.stdout.startswith(str(there))
    (tmp_path / "elsewhere").mkdir()
    assert ran(tmp_path / "elsewhere" / "run", path=there) == ran(tmp_path / "elsewhere" / "source")
