"""What adapting the temperature costs a vLLM: tokens per second with and without numbers in the requests.

    python benchmarks/vllm_processor.py [--vocabulary 259 32768] [--rows 32] [--new-tokens 64] [--rounds 9]

Runs in the environment of `make test-vllm`, on one thread, with a random Qwen3 of three layers. Both kinds of requests
go to the same engine, which has the processor, in turns, now one first and now the other: every request carries the
numbers, or none does. Printed are the medians of tokens per second of CPU time, and of the ratio of the two of a round
with its range. The smaller the model, the larger the share: the processor's work grows with rows and vocabulary alone.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tokenpo.hosts.vllm import PROCESSOR

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
}
NUMBERS = {
    "tokenpo_tau": 0.05, "tokenpo_quantile": 0.8, "tokenpo_released_sign": 0.0, "tokenpo_pivot": 0.5,
    "tokenpo_spread": 0.5, "tokenpo_top": 1.0, "tokenpo_bottom": -2.0,
}  # fmt: skip


def engine(directory: str, vocabulary: int, rows: int, longest: int) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from vllm import LLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=longest, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(directory)
    return LLM(
        model=directory, dtype="float32", max_model_len=longest, max_num_seqs=rows, enforce_eager=True, seed=0,
        skip_tokenizer_init=True, gpu_memory_utilization=0.3, logits_processors=[PROCESSOR],
        logprobs_mode="processed_logprobs",
    )  # fmt: skip


def speed(llm: Any, rows: int, new_tokens: int, numbers: Mapping[str, float] | None) -> float:
    """Tokens per second of CPU time."""
    from vllm import SamplingParams

    params = SamplingParams(
        temperature=1.0,
        max_tokens=new_tokens,
        logprobs=0,
        ignore_eos=True,
        extra_args=None if numbers is None else dict(numbers),
    )
    prompts = [{"prompt_token_ids": [3 + row, 4, 5, 6]} for row in range(rows)]
    start = time.process_time()
    llm.generate(prompts, params, use_tqdm=False)
    return rows * new_tokens / (time.process_time() - start)


def compared(vocabulary: int, rows: int, new_tokens: int, rounds: int) -> str:
    """One engine, which is gone when this returns: vLLM's groups of processes belong to one at a time."""
    kinds = {"constant": None, "adapted": NUMBERS}
    with tempfile.TemporaryDirectory() as directory:
        llm = engine(directory, vocabulary, rows, 8 + new_tokens)
    seen: dict[str, list[float]] = {name: [] for name in kinds}
    for round_ in range(rounds + 1):
        for name in list(kinds)[:: -1 if round_ % 2 else 1]:
            found = speed(llm, rows, new_tokens, kinds[name])
            if round_:  # the first warms up
                seen[name].append(found)
    ratios = [a / b for a, b in zip(seen["adapted"], seen["constant"], strict=True)]
    constant, adapted = (statistics.median(seen[name]) for name in kinds)
    return (
        f"vocabulary {vocabulary}, {rows} requests of {new_tokens} tokens: {constant:.0f} tokens/s constant, "
        f"{adapted:.0f} adapted, ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[259, 32768])
    for name, usual in {"rows": 32, "new-tokens": 64, "rounds": 9}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(arguments)
    os.environ.update(ENVIRONMENT)
    for vocabulary in given.vocabulary:
        print(compared(vocabulary, given.rows, given.new_tokens, given.rounds), flush=True)


if __name__ == "__main__":
    main()
