"""Sampling with recorded steps, without them, and by transformers' generate; and where a recorded step's time goes.

Random Qwen3 models in bf16 with sdpa, prompts of 64 tokens in groups of eight, 128 new tokens and an EOS that hardly
ever comes. Ours also records the log-probability and the entropy of every token. Rates are medians of three runs, or of
those that fit in four seconds; memory is the most that the allocator reserved, without the weights.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from sampler import GROUP, hugging_face, random_model, timed
from timing import clock, once
from tokenpo.models import LanguageModel, Sampling, load, sample
from tokenpo.models.directory import ASSETS
from tokenpo.models.graphed import Graphs
from tokenpo.models.packed import attention
from tokenpo.models.token_draw import draw

Numbers = dict[str, float | str]
Case = Callable[[], Numbers]
ENOUGH_SECONDS = 4.0


def cases(small: bool, device: str) -> dict[str, Case]:
    if device == "cpu":
        torch.set_num_threads(1)
    made = functools.lru_cache(1)(random_model)
    dtype = torch.float32 if small else torch.bfloat16
    found: dict[str, Case] = {
        "tokens": functools.partial(agreement, 16 if small else 256, 20 if small else 128, device)
    }
    shapes = {"tiny": (16,)} if small else {"0.5B": (256, 64, 512), "0.1B": (256, 64, 512)}
    lengths = (8, 24) if small else (64, 128)
    for model, sizes in shapes.items():
        for rows in sizes:
            of = functools.partial(made, model, device, dtype)
            found[f"{model} {rows} rows"] = functools.partial(rates, of, rows, *lengths, device)
    large = (16, 1000, 4, 2, 16, 64) if small else (512, 151936, 14, 2, 64, 192)
    found["parts of a step"] = functools.partial(parts, *large, dtype, device)
    if not small:
        of = functools.partial(made, "0.5B", device, dtype)
        found["0.5B 256 rows, generate compiled"] = functools.partial(compiled, of, 256, *lengths, device)
    return found


def agreement(rows: int, new_tokens: int, device: str) -> Numbers:
    """The shipped model in float32 with recorded steps and without; one token in twenty ends a response."""
    lm = dataclasses.replace(load(ASSETS, device=device), eos_ids=(5,))
    g = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, lm.rows, (5 + i % 9,), generator=g).tolist() for i in range(rows // GROUP)]
    ours = [samples_of(lm, graphs, prompts, new_tokens, device) for graphs in (True, False)]
    wide = max(s.token_ids.shape[1] for s in ours)
    a, b = (F.pad(s.token_ids, (0, wide - s.token_ids.shape[1]), value=-1) for s in ours)
    same = (a == b).cumprod(1).bool()
    p, q = (F.pad(s.logprob, (0, wide - s.logprob.shape[1])) for s in ours)
    return {
        "tokens_equal": float((a == b).float().mean()),
        "largest_difference": float((p - q).abs()[same].max()),
        "rows_that_ended": int(ours[1].finished.sum()),
    }


def samples_of(lm: LanguageModel, graphs: bool, prompts: list[list[int]], new_tokens: int, device: str, seed: int = 0):
    """With recorded steps, which must then be in use, or without."""
    switch(lm, graphs, device)
    found = sample(lm, prompts, GROUP, Sampling(new_tokens, seed=seed))
    if graphs and lm.abilities.get("graphed") is None:
        raise RuntimeError("the sampler gave up its recorded steps: see the warning above")
    return found


def switch(lm: LanguageModel, graphs: bool, device: str) -> None:
    if not graphs:
        lm.abilities["graphed"] = None
    elif lm.abilities.get("graphed") is None:
        lm.abilities.pop("graphed", None)
        if device == "cpu":
            lm.abilities["graphed"] = Graphs(lambda step, moved: step)


def rates(of: Callable[[], LanguageModel], rows: int, length: int, new_tokens: int, device: str) -> Numbers:
    lm = of()
    prompts = random_prompts(lm, rows, length)

    def ours(graphs: bool, tokens: int, seed: int) -> int:
        return int(samples_of(lm, graphs, prompts, tokens, device, seed).mask.sum())

    # The first run of recorded steps records; the others need theirs only to load kernels.
    runs: dict[str, tuple[Callable[[int, int], int], int]] = {
        "generate": (lambda tokens, seed: hugging_face(lm, prompts, tokens), 4),
        "plain": (lambda tokens, seed: ours(False, tokens, seed), 4),
        "graphs": (lambda tokens, seed: ours(True, tokens, seed), new_tokens),
    }
    found: Numbers = {"new_tokens": new_tokens}
    for name, (run, first) in runs.items():
        found[f"{name} first s"], found[f"{name} GB"] = 0.0, 0.0
        with Reserved(found, f"{name} GB", device):
            found[f"{name} first s"] = round(timed(lambda run=run, first=first: run(first, 0), device)[0], 3)
            found[f"{name} tokens/s"], found[f"{name} runs"] = median_rate(
                lambda i, run=run: run(new_tokens, i), device
            )
    for name in ("generate", "plain"):
        found[f"graphs / {name}"] = round(float(found["graphs tokens/s"]) / float(found[f"{name} tokens/s"]), 2)
    switch(lm, False, device)
    return found


def random_prompts(lm: LanguageModel, rows: int, length: int) -> list[list[int]]:
    return torch.randint(3, lm.rows, (rows // GROUP, length), generator=torch.Generator().manual_seed(1)).tolist()


def median_rate(run: Callable[[int], int], device: str) -> tuple[float, int]:
    """Tokens per second, and how many runs it is the median of."""
    found: list[float] = []
    start = clock(device)
    while len(found) < 3 and (not found or clock(device) - start < ENOUGH_SECONDS):
        seconds, tokens = timed(lambda: run(len(found) + 1), device)
        found.append(tokens / seconds)
    return round(statistics.median(found), 1), len(found)


class Reserved:
    """Adds the most memory that was reserved in a block of code, beyond what was held before."""

    def __init__(self, found: Numbers, name: str, device: str) -> None:
        self.found, self.name, self.device = found, name, device

    def __enter__(self) -> None:
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_reserved()

    def __exit__(self, *_: Any) -> None:
        if self.device == "cuda":
            self.found[self.name] = round((torch.cuda.max_memory_reserved() - self.before) / 1e9, 2)


def compiled(of: Callable[[], LanguageModel], rows: int, length: int, new_tokens: int, device: str) -> Numbers:
    """generate with a static cache, for which transformers compiles the step."""
    lm = of()
    prompts = random_prompts(lm, rows, length)

    def run(_: int) -> int:
        return hugging_face(lm, prompts, new_tokens, cache_implementation="static")

    first = round(timed(lambda: run(0), device)[0], 1)
    rate, runs = median_rate(run, device)
    return {"generate tokens/s": rate, "runs": runs, "first s": first}


def parts(
    rows: int, vocabulary: int, heads: int, shared: int, size: int, slots: int, dtype: torch.dtype, device: str
) -> Numbers:
    """Microseconds of the draw and of one layer's attention in several ways, each inside a CUDA graph."""
    g = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, device=device, dtype=dtype)

    logits, uniform = normal(rows, vocabulary), torch.rand(rows, generator=g, device=device, dtype=torch.float64)
    q, k, v = normal(rows, heads, 1, size), normal(rows, shared, slots, size), normal(rows, shared, slots, size)
    bias = torch.zeros(rows, 1, 1, slots, device=device, dtype=dtype)
    scale, folded = size**-0.5, q.view(rows, shared, heads // shared, size)

    def forced(backend: SDPBackend) -> Callable[[], Any]:
        def run() -> Any:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(folded, k, v, attn_mask=bias, scale=scale)

        return run

    ways: dict[str, Callable[[], Any]] = {
        "draw": lambda: draw(logits, uniform, 1.0),
        "draw at 0.7": lambda: draw(logits, uniform, 0.7),
        "attention as it is": lambda: attention(q, k, v, bias, scale, 0.0),
        "attention, efficient": forced(SDPBackend.EFFICIENT_ATTENTION),
        "attention, cudnn": forced(SDPBackend.CUDNN_ATTENTION),
        "attention, products": lambda: ((folded * scale) @ k.transpose(2, 3) + bias).softmax(-1) @ v,
        "attention, enable_gqa": lambda: F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=scale, enable_gqa=True
        ),
        "attention, no bias": lambda: F.scaled_dot_product_attention(folded, k, v, scale=scale),
    }
    return {name: microseconds(run, device) for name, run in ways.items()}


def microseconds(run: Callable[[], Any], device: str, count: int = 20) -> float | str:
    try:
        run()
        repeated: Callable[[], Any] = lambda: [run() for _ in range(count)]  # noqa: E731
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                repeated()
            repeated = graph.replay
        return round(1e3 * statistics.median(once(repeated, device) for _ in range(3)) / count, 2)
    except RuntimeError as error:
        return str(error).splitlines()[0][:80]
