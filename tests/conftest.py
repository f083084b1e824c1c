"""Puts what tests share and the scripts that they test on the path; one thread keeps runs repeatable."""

import os
import signal
import stat
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path += [str(Path(__file__).parents[1] / name) for name in ("benchmarks", "tools", "tools/site")]
torch.set_num_threads(1)
# readline puts the width of a terminal into the environment of the processes that pytest starts, where there is none.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
# A shell starts what it runs in the background with Ctrl-C ignored, which tests of interrupts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _synced(handle: int, sync=os.fsync) -> None:
    """In fsync's place, which would wait for the disk thousands of times: no test cuts the power."""
    if stat.S_IFMT(os.fstat(handle).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        sync(handle)


os.fsync = _synced


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What tests share is no place of doctests: some of it needs an engine, some a process of its own."""
    shared = collection_path.suffix == ".py" and not collection_path.name.startswith(("test_", "conftest"))
    return True if shared else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first: at the end a worker would wait for it alone."""
    items.sort(key=lambda item: not item.name.startswith("test_everything_runs_beside_the_processor"))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
