"""What the tests of the adapter to TRL share: scripts that run it in processes of their own, and frozen rollouts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
__all__ = ["HERE", "environment", "leave", "run_script"]


def run_script(script: str, *arguments: object, processes: int = 1, timeout: float = 550) -> str:
    """A script of this folder in `processes` processes that talk by gloo; its output. Ends after `timeout` seconds."""
    launch = [sys.executable]
    if processes > 1:
        launch += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", "0"]
        launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    done = subprocess.run(
        [*launch, str(HERE / script), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{script}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def leave() -> None:
    """Last line of a script: a process that ends while the threads of gloo live can be aborted by them."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def environment() -> dict[str, str]:
    """Of a process that trains on a CPU, with this source and the tests, and that tells nobody of it."""
    paths = [str(HERE.parents[1] / "src"), str(HERE.parent)]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "CI": "1", "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
