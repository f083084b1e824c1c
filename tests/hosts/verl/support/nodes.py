"""Ray nodes on this machine, to train on and to break; a process, so that they end with it.

    nodes.py COUNT GPUS

Prints the address of a cluster with COUNT nodes of GPUS workers each, and keeps it until its input ends.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hosts.verl.support import run

WORKER = b"ray::WorkerDict"  # verl's, as Ray names its process


@contextmanager
def cluster(directory: Path, count: int, gpus: int) -> Iterator[tuple[str, int]]:
    """The cluster's address and the process that holds it; its processes work in `directory`."""
    with (directory / "nodes.txt").open("w") as log:
        started = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(count), str(gpus)],
            cwd=directory,
            text=True,
            env=run.environment() | {"TOKENPO_TEST_SEEN": str(directory / run.SEEN)},
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert started.stdin is not None and started.stdout is not None
        try:
            address = started.stdout.readline().strip()
            assert address, (directory / "nodes.txt").read_text()[-3000:]
            yield address, started.pid
        finally:
            started.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(30)
            run.kill(run.session(started.pid))


def workers(holder: int) -> list[int]:
    """verl's workers on the nodes that `holder` holds, in the order they were started."""
    names = {number: _name(number) for number in run.session(holder)}
    return [number for number, name in names.items() if name.startswith(WORKER)]


def _name(process: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def main(count: int, gpus: int) -> None:
    from ray.cluster_utils import Cluster

    held = Cluster()
    for _ in range(count):
        held.add_node(num_cpus=12, num_gpus=gpus, object_store_memory=200_000_000, include_dashboard=False)
    print(held.address, flush=True)
    sys.stdin.read()
    held.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
