"""Processes that train with TRL, for the scripts of this folder and for commands of the package."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).parent


def run_script(script: str, *arguments: object, processes: int = 1, timeout: float = 550) -> str:
    """A script of this folder in `processes` processes that talk by gloo; its output. Ends after `timeout` seconds."""
    launch = []
    if processes > 1:
        launch += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", "0"]
        launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    return run_python(*launch, str(HERE / script), *map(str, arguments), timeout=timeout).stdout


def run_python(*words: str, timeout: float = 550, **more: object) -> subprocess.CompletedProcess[str]:
    """An interpreter with these words behind it, which has to succeed, on the CPU, with this source and the tests."""
    paths = [str(HERE.parents[1] / "src"), str(HERE.parent)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "CI": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, **more)
    assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def leave() -> NoReturn:
    """The last line of a script: ends the process without taking the interpreter down.

    While torch's threads live, a rank of several is sometimes aborted as its interpreter ends ("terminate called
    without an active exception"), after all its work is done.
    """
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
