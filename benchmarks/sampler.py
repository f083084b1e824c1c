"""Tokens per CPU-second of tokenpo's sampler and of Hugging Face's generate, alternating in one process.

    python benchmarks/sampler.py [--model DIR] [--prompts 32] [--group 8] [--new-tokens 64] [--repeats 9]

Both sample from the same model at temperature 1 on one thread. Ours also records the log-probability and the entropy
of every token; generate records nothing. Without --model, a random Qwen3 of 0.6 M parameters with 22 tokens.
Quote the ratio: absolute numbers depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tokenpo.lm import LanguageModel, Sampling, load, sample, score


def random_model() -> LanguageModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=22,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LanguageModel(Qwen3ForCausalLM(config).eval(), SimpleNamespace(), (1,), 0)


def hugging_face(lm: LanguageModel, prompts: list[list[int]], group: int, new_tokens: int) -> int:
    """Number of tokens that generate sampled."""
    ids = torch.tensor(prompts)
    out = lm.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        num_return_sequences=group,
        max_new_tokens=new_tokens,
        eos_token_id=list(lm.eos_ids),
        pad_token_id=lm.pad_id,
    )[:, ids.shape[1] :]
    ended = torch.isin(out, torch.tensor(lm.eos_ids)).int()
    return int((ended.cumsum(1) - ended == 0).sum())


def timed(run: Callable[[], int]) -> tuple[float, int]:
    start = time.process_time()
    tokens = run()
    return time.process_time() - start, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model directory")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=17)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(options.model) if options.model else random_model()
    g = torch.Generator().manual_seed(1)
    vocabulary = lm.model.get_input_embeddings().weight.shape[0]
    prompts = torch.randint(3, vocabulary, (options.prompts, options.prompt_tokens), generator=g).tolist()

    runs: dict[str, Callable[[int], int]] = {
        "tokenpo": lambda i: int(sample(lm, prompts, options.group, Sampling(options.new_tokens, seed=i)).mask.sum()),
        "generate": lambda i: hugging_face(lm, prompts, options.group, options.new_tokens),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(options.repeats + 1):
        for name, run in runs.items():
            seconds, tokens = timed(lambda run=run, i=i: run(i))
            if i:
                rates[name].append(tokens / seconds)
    for name, values in rates.items():
        print(f"{name:9} {statistics.median(values):10.0f} tokens per CPU-second")
    ratios = sorted(ours / theirs for ours, theirs in zip(rates["tokenpo"], rates["generate"], strict=True))
    print(f"ratio     {statistics.median(ratios):10.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f})")

    s = sample(lm, prompts, options.group, Sampling(options.new_tokens))
    with torch.no_grad():
        seconds, _ = timed(lambda: score(lm, prompts, s.prompt, s.token_ids, s.mask).logprob.numel())
    print(f"score     {int(s.mask.sum()) / seconds:10.0f} response tokens per CPU-second (forward, no gradient)")


if __name__ == "__main__":
    main()
