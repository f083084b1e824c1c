"""Tokens per second of tokenpo's sampler and of Hugging Face's generate, alternating in one process.

    python benchmarks/sampler.py [--models tiny 28M] [--rows 128 256] [--new-tokens 64] [--repeats 9]
    python benchmarks/sampler.py --rows 32 64 128 256 512 --new-tokens 32 64 128 256    # how it grows
    python benchmarks/sampler.py --models DIR --dtype bfloat16 --device cuda

Both sample from the same model at temperature 1, on one thread or on the GPU. Ours also records the log-probability and
the entropy of every token; generate records nothing. "tiny" is a random Qwen3 of 0.6 M parameters with 22 tokens, "28M"
one with 8192; anything else is a model directory. Rows are prompts in groups of eight, new tokens the most of a
response. Medians over the repeats of tokens per CPU-second (on a GPU, per second) and of the ratio, with its range.
Quote the ratio: absolute numbers depend on the machine and on what else it does.
"""

import argparse
import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from timing import clock
from tokenpo.train.models import LanguageModel, Sampling, load, sample, score

GROUP = 8
# Vocabulary, width, inner width, layers, heads, heads of keys.
RANDOM = {"tiny": (22, 128, 384, 3, 4, 2), "28M": (8192, 512, 1408, 8, 8, 4)}
# Made on their device, which is faster; their weights depend on it.
LARGE = {"0.1B": (32768, 768, 2048, 12, 12, 4), "0.5B": (151936, 896, 4864, 24, 14, 2)}


def random_model(name: str, device: str, dtype: torch.dtype = torch.float32) -> LanguageModel:
    torch.manual_seed(0)
    vocabulary, width, inner, layers, heads, shared = (RANDOM | LARGE)[name]
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=shared, head_dim=width // heads, max_position_embeddings=1024,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    with torch.device(device if name in LARGE else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return LanguageModel(model.eval().to(device), SimpleNamespace(), (1,), 0)


def hugging_face(lm: LanguageModel, prompts: list[list[int]], new_tokens: int, **options: Any) -> int:
    """Number of tokens that generate sampled, with other options of its own."""
    ids = torch.tensor(prompts, device=lm.device)
    out = lm.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        num_return_sequences=GROUP,
        max_new_tokens=new_tokens,
        eos_token_id=list(lm.eos_ids),
        pad_token_id=lm.pad_id,
        **options,
    )[:, ids.shape[1] :]
    ended = torch.isin(out, torch.tensor(lm.eos_ids, device=out.device)).int()
    return int((ended.cumsum(1) - ended == 0).sum())


def timed(run: Callable[[], int], device: str) -> tuple[float, int]:
    start = clock(device)
    tokens = run()
    return clock(device) - start, tokens


def compare(lm: LanguageModel, name: str, rows: int, new_tokens: int, repeats: int, device: str) -> str:
    """One line: both rates, their ratio, and how fast responses are scored."""
    g = torch.Generator().manual_seed(1)
    vocabulary = lm.model.get_input_embeddings().weight.shape[0]
    prompts = torch.randint(3, vocabulary, (rows // GROUP, 17), generator=g).tolist()
    runs: dict[str, Callable[[int], int]] = {
        "tokenpo": lambda i: int(sample(lm, prompts, GROUP, Sampling(new_tokens, seed=i)).mask.sum()),
        "generate": lambda i: hugging_face(lm, prompts, new_tokens),
    }
    rates: dict[str, list[float]] = {who: [] for who in runs}
    for i in range(repeats + 1):
        for who, run in runs.items():
            seconds, tokens = timed(lambda run=run, i=i: run(i), device)
            if i:
                rates[who].append(tokens / seconds)
    ours, theirs = (statistics.median(values) for values in rates.values())
    ratios = sorted(a / b for a, b in zip(rates["tokenpo"], rates["generate"], strict=True))
    s = sample(lm, prompts, GROUP, Sampling(new_tokens))
    with torch.no_grad():
        seconds, _ = timed(lambda: score(lm, prompts, s.prompt, s.token_ids, s.mask).logprob.numel(), device)
    return (
        f"{name:<8}{rows:>6}{new_tokens:>8}{ours:>12.0f}{theirs:>12.0f}{statistics.median(ratios):>8.2f}"
        f"   {ratios[0]:.2f} to {ratios[-1]:.2f}{int(s.mask.sum()) / seconds:>12.0f}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", "--model", nargs="+", default=list(RANDOM), help="tiny, 28M, or a model directory")
    parser.add_argument("--rows", type=int, nargs="+", default=[128, 256], help="responses sampled at once")
    parser.add_argument("--new-tokens", type=int, nargs="+", default=[64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", default="float32", help="of the weights of a model directory")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    names = f"{'model':<8}{'rows':>6}{'tokens':>8}{'tokenpo/s':>12}{'generate/s':>12}{'ratio':>8}"
    print(f"{names}   {'range':<12}{'scored/s':>12}")
    for name in options.models:
        kind = {"dtype": options.dtype, "device": options.device}
        lm = random_model(name, options.device) if name in RANDOM else load(name, **kind)
        for rows in options.rows:
            for new_tokens in options.new_tokens:
                line = compare(lm, name.rsplit("/", 1)[-1], rows, new_tokens, options.repeats, options.device)
                print(line, flush=True)


if __name__ == "__main__":
    main()
