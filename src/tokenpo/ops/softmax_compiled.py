"""The sums of a softmax in C (`softmax.c`), compiled by each process for the processor it runs on; nothing is kept.

For a processor what `softmax_triton` is for a GPU. Where there is no compiler this module cannot be imported.

Axes: M rows, V vocabulary.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

_SOURCE = Path(__file__).with_name("softmax.c")
_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
# Terms of a sum in any order, and no signals of what a processor meets on the way; NaN and infinities as they are.
_MATHS = "-fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math -freciprocal-math -fno-strict-aliasing"
# Logits that are worth a thread.
_SHARE = 2**15

# Elsewhere compilers have no OpenMP, whose threads are torch's own.
if platform.system() != "Linux":
    raise ImportError("compiled on Linux only")
_COMPILER = shlex.split(os.environ.get("CC", "")) or ["cc"]
if shutil.which(_COMPILER[0]) is None:
    raise ImportError(f"{_COMPILER[0]} is not there: install a C compiler, or name it in CC")


def sums(logits: Tensor, scale: float | Tensor, out: Tensor, count: int) -> Tensor:
    """As `softmax.sums`, of float32 or bf16 whose rows lie each in one piece.

    Raises:
        OSError: what was compiled cannot be loaded.
        RuntimeError: it cannot be compiled.
    """
    m, v = logits.shape
    found = torch.empty(count, m, 1)
    scales = scale.float().contiguous() if isinstance(scale, Tensor) else torch.full((m, 1), scale)
    threads = max(1, min(torch.get_num_threads(), m * v // _SHARE))
    scratch = torch.empty(threads, v)
    steps = (x.stride(0) * x.itemsize for x in (logits, out))
    places = (x.data_ptr() for x in (scales, found, scratch))
    rows = getattr(_library(), f"{_NAMES[logits.dtype]}_{count}")
    rows(logits.data_ptr(), out.data_ptr(), m, v, *steps, *places, threads)
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = str(Path(folder) / "softmax.so")
        command = [*_COMPILER, "-O3", "-fopenmp", *_processor(), *_MATHS.split(), "-shared", "-fPIC"]
        done = subprocess.run([*command, str(_SOURCE), "-o", made], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()[:400]}")
        library = ctypes.CDLL(made)
    place, number = ctypes.c_void_p, ctypes.c_int64
    for name in _NAMES.values():
        for count in (3, 5):
            rows = getattr(library, f"{name}_{count}")
            rows.argtypes = [place, place, *[number] * 4, *[place] * 3, ctypes.c_int]
            rows.restype = None
    return library


def _processor() -> list[str]:
    """All that the processor can do: with gcc's defaults it would work on half as many numbers at once as it could."""
    if platform.machine() == "x86_64":
        return ["-march=native", "-mprefer-vector-width=512"]
    return ["-mcpu=native"]
