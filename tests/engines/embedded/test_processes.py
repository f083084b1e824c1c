"""Same seed, same bytes, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_resume import logged

ROOT = Path(__file__).parents[3]
SMALL = (
    "train.steps=2", "rollout.prompts=2", "rollout.group_size=4", "rollout.max_new_tokens=24", "evaluate.problems=4",
    "evaluate.samples=0", "evaluate.every=0", "threads=1",
)  # fmt: skip
pytestmark = pytest.mark.slow


def ran(out: Path, *, seeds: str = "0", **settings: object) -> dict[str, object]:
    """What a run of the quickstart of two steps logs."""
    words = [f"--set={setting}" for setting in (*SMALL, *(f"{k}={v}" for k, v in settings.items()))]
    command = [sys.executable, "-P", "-m", "tokenpo", "train", "quickstart", *words, "--out", str(out)]
    environment = {**os.environ, "PYTHONHASHSEED": seeds, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, cwd=out.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "report.html").stat().st_size > 10_000
    return logged(out)


def test_two_processes_and_two_orders_of_hashes_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = ran(tmp_path / "a", seeds="1"), ran(tmp_path / "b", seeds="2")
    assert first == second
    assert ran(tmp_path / "c", seed=1)["weights"] != first["weights"]
