"""The softmax's Triton kernel on a card: its numbers against float64, then its speed beside what torch has.

Speed is in GB/s of two reads and one write of the logits, whatever a candidate does; a copy counts its one read and one
write. Medians of rounds in which all candidates take turns.
"""

import contextlib
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from timing import milliseconds, peak_bytes
from tokenpo.core.head import softmax
from tokenpo.core.head.softmax import Sums

Numbers = dict[str, float | str]
NEEDS_CARD: Numbers = {"left out": "needs a card"}
NAMES = ("max", "sum", "sum p d", "sum p^2", "sum p^2 d")
VOCABULARIES = (151_936, 256_000, 32_003)
BLOCKS, WARPS = (4096, 8192, 16384), (8, 16, 32)


def cases(small: bool, device: str) -> dict[str, Callable[[], Numbers]]:
    """What is measured, by name."""
    card = device == "cuda"
    vocabularies, m = (VOCABULARIES, 1001) if not small else ((2003,), 7)
    dtypes = torch.bfloat16, torch.float32
    found: dict[str, Callable[[], Numbers]] = {"trusted": functools.partial(trusted, device) if card else _left_out}
    for v, dtype in itertools.product(vocabularies, dtypes):
        found[f"numbers {_name(dtype)} V={v}"] = functools.partial(numbers, m, v, dtype, device)
    found["numbers float16 V=32003"] = functools.partial(numbers, 3, 32_003, torch.float16, device)
    found["strides"] = functools.partial(strides, device)
    found["beyond 2^31 logits"] = functools.partial(beyond, device) if card and not small else _left_out
    found["memory"] = functools.partial(memory, *((64, 2003) if small else (3500, 151_936)), device)
    for rows in (3500, 8192):
        found[f"speed M={rows}"] = functools.partial(speed, rows, 151_936, device) if card and not small else _left_out
    return found


def trusted(device: str) -> Numbers:
    """Whether the package takes the kernel by itself, without a warning, in every dtype."""
    from tokenpo.core.head import softmax_triton

    found: Numbers = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        x = torch.zeros(2, 3, dtype=dtype, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found[_name(dtype)] = "the kernel" if softmax.sums_for(x, x) is softmax_triton.sums else "torch"
    if set(found.values()) != {"the kernel"}:
        raise ArithmeticError(f"torch's passes are taken: {found}")
    return found


def numbers(m: int, v: int, dtype: torch.dtype, device: str) -> Numbers:
    """The kernel's sums and probabilities against torch's passes in float64; on a processor, torch's in the dtype.

    The largest relative error of a sum in units of the largest of its kind, and of a probability in its own.
    """
    z = _logits(m, v, dtype, device)
    worst: dict[str, float] = {}
    for count, scale in ((5, 1.3), (3, torch.linspace(0.5, 1.5, m, device=device).unsqueeze(1))):
        out, exact = torch.empty_like(z), torch.empty_like(z, dtype=torch.float64)
        seen = _sums(z)(z, scale, out, count)
        wanted = softmax.sums(z.double(), scale if isinstance(scale, float) else scale.double(), exact, count)
        if not (seen.isnan() == wanted.isnan()).all() or not (out.isnan() == exact.isnan()).all():
            raise ArithmeticError("NaN in other places than in float64")
        for name, x, y in zip(NAMES, seen.double().nan_to_num(), wanted.nan_to_num(), strict=False):
            worst[name] = max(worst.get(name, 0.0), float((x - y).abs().max() / y.abs().max().clamp(min=1e-3)))
        # A card takes float32 below its normal numbers for zero; float16 keeps fewer digits of what is small.
        least = max(torch.finfo(dtype).tiny, torch.finfo(torch.float32).tiny / torch.finfo(dtype).eps)
        off = (out.double() - exact).abs().nan_to_num() / exact.abs().nan_to_num().clamp(min=least)
        worst["p, eps"] = max(worst.get("p, eps", 0.0), float(off.max()) / torch.finfo(dtype).eps)
    if max(worst[name] for name in NAMES) > 1e-5 or worst["p, eps"] > (1.01 if dtype != torch.float32 else 200):
        raise ArithmeticError(f"too far from float64: {worst}")
    return dict(worst)


def strides(device: str) -> Numbers:
    """Rows that lie apart, in place and out of place; what lies between them stays as it was."""
    wider = torch.randn(33, 5003, generator=torch.Generator().manual_seed(0)).to(device)
    kept, z = wider.clone(), wider[:, 11:4012]
    out = torch.full((33, 4099), 7.0, device=device)
    dense = torch.empty(33, 4001, device=device)
    apart = _sums(z)(z, 1.0, out[:, :4001], 3)
    wanted = softmax.sums(z.contiguous(), 1.0, dense, 3)
    again = _sums(z)(z, 1.0, z, 3)
    size = wanted.abs().amax(1, keepdim=True)
    error = max(float(((x - wanted) / size).abs().max()) for x in (apart, again))
    error = max(error, *(float((x - dense).abs().max()) for x in (out[:, :4001], z)))
    between = (out[:, 4001:] == 7).all() and all(
        (wider[:, x] == kept[:, x]).all() for x in (slice(11), slice(4012, None))
    )
    if not error < 1e-5 or not between:
        raise ArithmeticError(f"strided rows differ by {error:.2g}; memory between them untouched: {bool(between)}")
    return {"largest error": error}


def beyond(device: str) -> Numbers:
    """14,200 rows of 151,936 logits, more than 2^31: every 1000th row and the last ones against a copy of theirs."""
    m, v = 14_200, 151_936
    generator = torch.Generator(device).manual_seed(0)
    z, out = (torch.empty(m, v, dtype=torch.bfloat16, device=device) for _ in range(2))
    for rows in z.split(1000):
        rows.normal_(0.0, 3.0, generator=generator)
    target = torch.randint(v, (m,), generator=generator, device=device)
    at = torch.tensor([*range(0, m, 1000), 14_133, 14_134, 14_135, m - 2, m - 1], device=device)
    logp = torch.log_softmax(z[at].double(), -1)
    p = logp.exp()
    wanted = logp.gather(-1, target[at].unsqueeze(-1)).squeeze(-1), -(p * logp).sum(-1)
    _sums(z)(z, 1.0 / softmax.LN2, out, 5)
    errors = {"p": float((out[at].double() - p).norm() / p.norm())}
    del out
    seen = softmax.residual(z, target, 1.0)
    errors |= {
        name: float(((x[at].double() - y) / y).abs().max())
        for name, x, y in zip(("logprob", "entropy"), seen, wanted, strict=False)
    }
    p[torch.arange(len(at), device=device), target[at]] -= 1
    errors["residual"] = float((z[at].double() - p).norm() / p.norm())
    if not max(errors["logprob"], errors["entropy"]) < 1e-5 or not max(errors.values()) < 2**-8:
        raise ArithmeticError(f"wrong beyond 2^31 logits: {errors}")
    return {"logits / 2^31": m * v / 2**31, **errors}


def memory(m: int, v: int, device: str) -> Numbers:
    """Held at once beyond logits that are overwritten, in logits."""
    z = _logits(m, v, torch.bfloat16, device)
    _sums(z)(z, 1.0, z, 3)
    ways = {"ours": _sums(z), "torch's passes": softmax.sums}
    return {name: peak_bytes(lambda way=way: way(z, 1.0, z, 3), device) / z.nbytes for name, way in ways.items()}


def speed(m: int, v: int, device: str) -> Numbers:
    """GB/s in every shape of block, of torch's ways and of a copy; `chosen` is what the package takes."""
    z = torch.randn(m, v, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(z)
    runs: dict[str, Callable[[], Any]] = {
        "chosen": functools.partial(_sums(z), z, 1.0, out, 3),
        "chosen, moments": functools.partial(_sums(z), z, 1.0, out, 5),
        "torch.softmax": lambda: torch.softmax(z, -1, out=out),
        "torch's passes": functools.partial(softmax.sums, z, 1.0, out, 3),
        "copy": lambda: out.copy_(z),
    }
    for block, warps in itertools.product(BLOCKS, WARPS):
        runs[f"block {block}, {warps} warps"] = functools.partial(_shaped, block, warps, z, out)
    times = milliseconds(runs, 7, device)
    found: Numbers = {}
    for name, ms in times.items():
        passes = 2 if name == "copy" else 3
        found[f"{name}, GB/s"] = round(passes * z.nbytes / ms / 1e6, 1)
    return {"chosen, ms": round(times["chosen"], 3), **found}


def _shaped(block: int, warps: int, z: Tensor, out: Tensor) -> None:
    with _shape(block, warps):
        _sums(z)(z, 1.0, out, 3)


@contextlib.contextmanager
def _shape(block: int, warps: int) -> Iterator[None]:
    """The kernel in another shape."""
    from tokenpo.core.head import softmax_triton as kernel

    before = kernel._BLOCK, kernel._WARPS
    kernel._BLOCK, kernel._WARPS = block, warps
    try:
        yield
    finally:
        kernel._BLOCK, kernel._WARPS = before


def _sums(z: Tensor) -> Sums:
    """What is measured: the kernel on a card, whether or not the package trusts it; torch's passes elsewhere."""
    if z.device.type != "cuda":
        return softmax.sums
    from tokenpo.core.head import softmax_triton

    return softmax_triton.sums


def _logits(m: int, v: int, dtype: torch.dtype, device: str) -> Tensor:
    """Logits of all sizes: nearly sure rows, tokens that are excluded, all but one of a row, and a row with a NaN."""
    z = torch.randn(m, v, generator=torch.Generator(device).manual_seed(0), device=device)
    z *= torch.linspace(0.1, 8, m, device=device).unsqueeze(1)
    z[0, v // 3] += 40
    z[1, : v // 2] = -math.inf
    z[2], z[2, v - 2] = -math.inf, -3.0
    if m > 3:
        z[3, v - 1] = math.nan
    return z.to(dtype)


def _left_out() -> Numbers:
    return dict(NEEDS_CARD)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
