"""Sampling with recorded steps, without them, and by transformers' generate; and where a recorded step's time goes.

Random Qwen3 models in bf16 with sdpa, prompts of 64 tokens in groups of eight, 128 new tokens and an EOS that hardly
ever comes. Ours also records the log-probability and the entropy of every token. Rates are medians of three runs, or of
those begun within three seconds, after two whole runs: in its first, `generate` takes three times as long, as every
length loads kernels of its own. Memory is the most that the allocator reserved, without the weights.
"""

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
from tokenpo.train.models import LanguageModel, Sampling, load, sample
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.models.graphed import Graphs
from tokenpo.train.models.packed import attention
from tokenpo.train.models.token_draw import draw

Numbers = dict[str, float | str]
Case = Callable[[], Numbers]
WAYS = "graphs", "generate", "plain"
ENOUGH_SECONDS = 3.0


def cases(small: bool, device: str) -> dict[str, Case]:
    if device == "cpu":
        torch.set_num_threads(1)
    made = functools.lru_cache(2)(random_model)
    dtype = torch.float32 if small else torch.bfloat16
    lengths = (8, 24) if small else (64, 128)
    name, rows, few = ("tiny", 16, 8) if small else ("0.5B", 64, 48)
    warming = functools.partial(
        run_after_run, functools.partial(made, name, device, dtype), rows, lengths[0], few, device
    )
    # Before any other case has loaded generate's kernels.
    found: dict[str, Case] = {
        f"{name} {rows} rows, generate, {few} tokens, run after run": warming,
        "tokens": functools.partial(agreement, 16 if small else 256, 20 if small else 128, device),
    }
    large = (16, 2000, 4, 2, 16, 64) if small else (512, 151936, 14, 2, 64, 192)
    shapes = [("tiny", 16)] if small else [(model, rows) for rows in (256, 512, 64) for model in ("0.5B", "0.1B")]
    for model, rows in shapes:
        place = Place(functools.partial(made, model, device, dtype), rows, *lengths, device)
        for way in WAYS:
            found[f"{model} {rows} rows, {way}"] = functools.partial(place.rate, way)
        found.setdefault("parts of a step", functools.partial(parts, *large, dtype, device))
    if not small:
        place = Place(functools.partial(made, "0.5B", device, dtype), 256, *lengths, device)
        found["0.5B 256 rows, generate compiled"] = functools.partial(place.rate, "generate compiled")
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
    if not graphs:
        lm.abilities["graphed"] = None
    elif lm.abilities.get("graphed") is None:
        lm.abilities.pop("graphed", None)
        if device == "cpu":
            lm.abilities["graphed"] = Graphs(lambda step, moved: step)
    found = sample(lm, prompts, GROUP, Sampling(new_tokens, seed=seed))
    if graphs and lm.abilities.get("graphed") is None:
        raise RuntimeError("the sampler gave up its recorded steps: see the warning above")
    return found


def run_after_run(model: Callable[[], LanguageModel], rows: int, length: int, tokens: int, device: str) -> Numbers:
    """Steps a second of five runs of generate in one process, none before them."""
    lm, g = model(), torch.Generator().manual_seed(1)
    prompts = torch.randint(3, lm.rows, (rows // GROUP, length), generator=g).tolist()
    found: Numbers = {}
    for ordinal in ("first", "second", "third", "fourth", "fifth"):
        seconds, _ = timed(lambda: hugging_face(lm, prompts, tokens), device)
        found[f"{ordinal} steps/s"] = round(tokens / seconds, 1)
    return found


class Place:
    """A model and a number of rows, and the rates seen so far."""

    def __init__(
        self, model: Callable[[], LanguageModel], rows: int, length: int, new_tokens: int, device: str
    ) -> None:
        self.model, self.rows, self.length, self.new_tokens, self.device = model, rows, length, new_tokens, device
        self.seen: dict[str, float] = {}

    def rate(self, way: str) -> Numbers:
        """Tokens per second, the seconds of the first run, and the memory that a run takes."""
        lm, g = self.model(), torch.Generator().manual_seed(1)
        prompts = torch.randint(3, lm.rows, (self.rows // GROUP, self.length), generator=g).tolist()

        def run(tokens: int, seed: int) -> int:
            if way.startswith("generate"):
                # With a static cache transformers compiles the step.
                static = {"cache_implementation": "static"} if way.endswith("compiled") else {}
                return hugging_face(lm, prompts, tokens, **static)
            return int(samples_of(lm, way == "graphs", prompts, tokens, self.device, seed).mask.sum())

        before = reserved(self.device)
        first, _ = timed(lambda: run(self.new_tokens, 0), self.device)
        run(self.new_tokens, 0)
        rates: list[float] = []
        start = clock(self.device)
        while len(rates) < 3 and (not rates or clock(self.device) - start < ENOUGH_SECONDS):
            seconds, tokens = timed(lambda: run(self.new_tokens, len(rates) + 1), self.device)
            rates.append(tokens / seconds)
        self.seen[way] = statistics.median(rates)
        found: Numbers = {"tokens/s": round(self.seen[way], 1), "runs": len(rates), "first s": round(first, 3)}
        found["GB"] = round((reserved(self.device, peak=True) - before) / 1e9, 2)
        lm.abilities["graphed"] = None
        if way != "graphs" and "graphs" in self.seen:
            found[f"graphs / {way}"] = round(self.seen["graphs"] / self.seen[way], 2)
        return found


def reserved(device: str, *, peak: bool = False) -> int:
    """Bytes that the allocator holds now, from which peaks are counted afresh, or held at most since."""
    if device == "cpu":
        return 0
    if peak:
        return torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_reserved()


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
