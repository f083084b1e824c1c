"""Samples with a whole vLLM as docs/vllm.md says, and writes down what came back.

    sampled_run.py OUT MODEL...

The first rollout batch is drawn without numbers, since nothing is remembered yet; the second mixes requests that carry
the numbers of the first, requests with those of other steps, and requests without any, at several base temperatures, in
fewer seats than there are requests. Makes OUT/NAME.json for each model's directory NAME.
"""

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import tokenpo
from tokenpo.core.head.softmax import entropy_of, softmax_parts
from tokenpo.hosts.vllm import PROCESSOR, extra_args
from vllm_support import flat, heat

BASES = (1.0, 0.7, 1.2, 0.9, 1.1)
LENGTH = 24
REQUESTS = 280


def requests(first: int, count: int) -> list[list[int]]:
    """Prompts [count] of token numbers, no two alike."""
    g = torch.Generator().manual_seed(first)
    return [torch.randint(3, 259, (4 + number % 5,), generator=g).tolist() for number in range(count)]


def drawn(
    llm: Any, prompts: Sequence[list[int]], numbers: Sequence[Mapping[str, float] | None], bases: Sequence[float]
) -> list[dict[str, Any]]:
    """What vLLM answers to each request, beside what it was asked."""
    from vllm import SamplingParams

    params = [
        SamplingParams(
            temperature=base,
            max_tokens=LENGTH // 2 + number % (LENGTH // 2 + 1),
            logprobs=0,
            seed=number,
            ignore_eos=True,
            extra_args=None if told is None else dict(told),
        )
        for number, (told, base) in enumerate(zip(numbers, bases, strict=True))
    ]
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
    rows = []
    for prompt, told, base, answer in zip(prompts, numbers, bases, answers, strict=True):
        ids = list(answer.outputs[0].token_ids)
        said = [entry[token].logprob for entry, token in zip(answer.outputs[0].logprobs, ids, strict=True)]
        rows.append({"prompt": prompt, "ids": ids, "logprobs": said, "numbers": told, "base": base})
    return rows


def remembered(path: str, objective: tokenpo.Objective, rows: Sequence[Mapping[str, Any]], base: float) -> Any:
    """The objective's state after these answers, entropies by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    entropy, mask = torch.zeros(len(rows), LENGTH), torch.zeros(len(rows), LENGTH, dtype=torch.bool)
    with torch.no_grad():
        for row, answer in enumerate(rows):
            ids = answer["prompt"] + answer["ids"]
            logits = model(torch.tensor([ids])).logits[0, len(answer["prompt"]) - 1 : -1]
            entropy[row, : len(logits)] = entropy_of(softmax_parts(logits.float(), 1.0 / base))
            mask[row, : len(logits)] = True
    facts = tokenpo.Rollouts(
        mask=mask,
        reward=torch.arange(len(rows)) % 2.0,
        group=torch.arange(len(rows)) // 4,
        old_logprob=torch.zeros_like(entropy),
        old_entropy=entropy,
    )
    return objective.after(objective.start(), facts)


def main(out: Path, path: str) -> None:
    from vllm import LLM

    llm = LLM(
        model=path, dtype="float32", max_model_len=64, max_num_seqs=16, enforce_eager=True, seed=0,
        skip_tokenizer_init=True, gpu_memory_utilization=0.3, logits_processors=[PROCESSOR],
        logprobs_mode="processed_logprobs",
    )  # fmt: skip
    objective = tokenpo.method("hapo", tau=0.5)
    bare = extra_args(objective, objective.start())
    first = drawn(llm, requests(1, 16), [bare] * 16, [1.0] * 16)
    own = extra_args(objective, remembered(path, objective, first, 1.0))
    kinds: list[Mapping[str, float] | None] = [own, None, own, flat(heat(2)), own, None, flat(heat(3, released=True))]
    told = list(itertools.islice(itertools.cycle(kinds), REQUESTS))
    bases = list(itertools.islice(itertools.cycle(BASES), REQUESTS))
    mixed = drawn(llm, requests(2, REQUESTS), told, bases)
    (out / f"{Path(path).name}.json").write_text(json.dumps({"bare": bare, "own": own, "first": first, "mixed": mixed}))


if __name__ == "__main__":
    for each in sys.argv[2:]:
        main(Path(sys.argv[1]), each)
