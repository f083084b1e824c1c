"""The same model in llama.cpp: greedy answers and log-probabilities of a GGUF file compared with its model directory.

    pip install xllamacpp
    tokenpo export MODEL m.gguf --as f32
    python benchmarks/llama_cpp.py MODEL m.gguf [more.gguf ...]

Asks 50 held-out problems of the task `sums`, which llama.cpp gets as token ids and answers at temperature 0. The
directory is run by transformers in float32 on llama.cpp's tokens. Differences are of log-probabilities, in nats.
"""

import sys
from typing import Any

import torch
import xllamacpp  # pyright: ignore[reportMissingImports]

from tokenpo.train.models import load
from tokenpo.train.tasks import make_task

PROMPTS, LENGTH = 50, 16


def answers(file: str, prompts: list[list[int]]) -> list[tuple[list[int], list[float]]]:
    """Greedy tokens of llama.cpp, and their log-probabilities."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = file, 512, 1, -1
    params.cpuparams.n_threads = torch.get_num_threads()
    server, found = xllamacpp.Server(params), []
    for ids in prompts:
        made: Any = server.handle_completions(
            {"prompt": ids, "temperature": 0.0, "max_tokens": LENGTH, "logprobs": 1, "cache_prompt": False}
        )
        each = made["choices"][0]["logprobs"]["content"]
        found.append(([x["id"] for x in each], [x["logprob"] for x in each]))
    return found


def main(directory: str, *files: str) -> None:
    lm = load(directory)
    problems = make_task("sums", {}, seed=0).problems("test", 0, PROMPTS)
    prompts = [lm.encode(problem.prompt) for problem in problems]
    print(f"{'file':<24} {'tokens':>7} {'answers':>8} {'mean':>9} {'largest':>9} {'ratio outside 1 +- 0.2':>23}")
    for file in files:
        same, differences = 0, []
        for ids, (tokens, theirs) in zip(prompts, answers(file, prompts), strict=True):
            with torch.no_grad():
                logits = lm.model(torch.tensor([ids + tokens])).logits[0, len(ids) - 1 : -1].float()
            ours = logits.log_softmax(-1)
            same += ours.argmax(-1).tolist() == tokens
            differences.append(ours.gather(1, torch.tensor(tokens)[:, None])[:, 0] - torch.tensor(theirs))
        gap = torch.cat(differences).double()
        outside = ((gap.exp() - 1).abs() > 0.2).double().mean()
        print(
            f"{file.rsplit('/', 1)[-1]:<24} {len(gap):>7} {same:>5}/{PROMPTS} {gap.abs().mean():>9.2g}"
            f" {gap.abs().max():>9.2g} {outside:>22.1%}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
