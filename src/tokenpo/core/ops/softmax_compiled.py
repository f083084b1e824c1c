"""The residual of a softmax in C (`softmax.c`), compiled by each process for the CPU it runs on; no file is kept.

What `softmax_triton` is for a GPU, except that statistics and residual are one function here. Where there is no
compiler this module cannot be imported.

Axes: M rows, V vocabulary.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import softmax
from .softmax import RowStats

_SOURCE = Path(__file__).with_name("softmax.c")
_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
DTYPES = frozenset(_NAMES)
# Sums may be taken in any order, hence many terms at once, and no exception is tracked. NaN and infinities stay.
_MATHS = "-fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math -freciprocal-math -ffp-contract=fast"
# Logits that make a further thread worth while.
_SHARE = 2**15

# Seconds after which a compiler is taken to hang.
_PATIENCE = 60
_FOLDER = "tokenpo-kernel-"  # begins the names of the folders in which it works

# Elsewhere compilers come without OpenMP; on Linux its threads (gcc's) are those that torch has.
if platform.system() != "Linux":
    raise ImportError("compiled on Linux only")
try:
    _COMPILER = shlex.split(os.environ.get("CC", "")) or ["cc"]
except ValueError as error:
    raise ImportError(f"CC={os.environ['CC']} is no command: {error}") from error
if shutil.which(_COMPILER[0]) is None:
    raise ImportError(f"{_COMPILER[0]} is not there: install a C compiler, or name it in CC")


def residual(logits: Tensor, target: Tensor, scale: float | Tensor, drift: bool, out: Tensor) -> RowStats:
    """As `softmax.residual`, of float32 or bf16 logits whose rows are contiguous.

    Raises:
        IndexError: a target outside the vocabulary.
        RuntimeError: the C code cannot be compiled.
        OSError: the compiled library cannot be loaded.
        subprocess.TimeoutExpired: the compiler hangs.
    """
    m, v = logits.shape
    threads = _threads(logits)
    # The dtype is given, as torch's default may be another.
    found = logits.new_empty(3 if drift else 2, m, dtype=torch.float32)
    scratch = found.new_empty(threads, v)
    given = target.long().view(m).contiguous(), _column(scale, logits)
    _call("residual", logits, out, *given, found, scratch, threads, drift=drift)
    logprob, entropy, *moved = found.unbind()
    return RowStats(logprob, entropy, moved[0] if drift else found.new_empty(0))


def scaled(w: Tensor, factor: Tensor, out: Tensor) -> Tensor:
    """As `softmax.scaled`, for the same dtypes; float32 is left to torch, which is faster."""
    if w.dtype == torch.float32:
        return softmax.scaled(w, factor, out)
    _call("scaled", w, out, _column(factor, w), _threads(w))
    return out


def compiler() -> str:
    """Name and version of the compiler, as it gives them; its command where it gives none."""
    try:
        done = _run([*_COMPILER, "--version"])
    except (OSError, subprocess.TimeoutExpired):
        return _COMPILER[0]
    return done.stdout.partition("\n")[0].strip() or _COMPILER[0]


def _threads(x: Tensor) -> int:
    return max(1, min(torch.get_num_threads(), x.numel() // _SHARE))


def _column(factor: float | Tensor, x: Tensor) -> Tensor:
    """The factor of each row of x, [M, 1] or [M], contiguous."""
    if isinstance(factor, Tensor):
        return factor.float().expand(len(x), 1).contiguous()
    return x.new_full((len(x),), factor, dtype=torch.float32)


def _call(name: str, x: Tensor, out: Tensor, *rest: Tensor | int, drift: bool = False) -> None:
    # `rest` keeps every tensor whose address is passed alive until the call returns.
    steps = (tensor.stride(0) * tensor.itemsize for tensor in (x, out))
    passed = (y.data_ptr() if isinstance(y, Tensor) else y for y in rest)
    function: Any = getattr(_library(), f"{name}_{_NAMES[x.dtype]}{'_drift' if drift else ''}")
    if function(x.data_ptr(), out.data_ptr(), *x.shape, *steps, *passed):
        raise IndexError(f"a target outside the vocabulary of {x.shape[1]} tokens")
    # As after torch's own in-place operations: autograd must notice that `out` has changed.
    torch.autograd.graph.increment_version(out)


@functools.cache
def _library() -> ctypes.CDLL:
    _sweep()
    with tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as folder, _held(folder):
        made = str(Path(folder) / "softmax.so")
        flags = ["-O3", "-fopenmp", "-fno-strict-aliasing", *_processor(), *_MATHS.split(), "-shared", "-fPIC"]
        command = [*_COMPILER, *flags, str(_SOURCE), "-o", made, "-lm"]
        # The compiler's temporary files go with the folder.
        done = _run(command, TMPDIR=folder)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()[:400]}")
        library = ctypes.CDLL(made)
    address, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    # How many addresses each function takes beside those of the rows it reads and of the rows it writes.
    further = {f"residual_{dtype}{moments}": 4 for dtype in _NAMES.values() for moments in ("", "_drift")}
    for name, count in {**further, "scaled_bfloat16": 1}.items():
        function = getattr(library, name)
        function.argtypes = [address, address, *[size] * 4, *[address] * count, number]
        function.restype = number
    return library


@contextlib.contextmanager
def _held(folder: str) -> Iterator[None]:
    """The folder is locked inside: the lock ends with the process, the folder need not."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _sweep() -> None:
    """Removes the folders of processes that were killed while they compiled."""
    for place in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):  # it has just gone, or is held, or is another user's
            handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(handle)
                # One that has just been made is not held yet.
                if found.st_uid == os.getuid() and abs(time.time() - found.st_mtime) > _PATIENCE:
                    shutil.rmtree(place)
            finally:
                os.close(handle)


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": _PATIENCE}
    return subprocess.run(command, env=os.environ | environment, check=False, **options)


def _processor() -> list[str]:
    """Flags for all instructions of the CPU."""
    if platform.machine() == "x86_64":
        # By default compilers use vectors of half the width there.
        return ["-march=native", "-mprefer-vector-width=512"]
    return ["-mcpu=native"]
