"""Bytes per token that a loss and its gradient take beyond its inputs. --tokens 32000 --responses 64 --methods grpo

The log-probabilities are given, so no model takes part. A short batch comes first, which loads what is loaded once.
"""

import argparse
import dataclasses
import multiprocessing
import resource

import torch

import tokenpo
from tokenpo.core.learner import Learner
from tokenpo.core.types import Policy


def evaluate(name: str, rows: int, tokens: int) -> None:
    objective, logprob = tokenpo.method(name), -torch.rand(rows, tokens)
    batch = tokenpo.Rollouts(
        mask=torch.ones(rows, tokens, dtype=torch.bool),
        reward=torch.arange(rows) % 2 * 1.0,
        group=torch.arange(rows) // 2,
        old_logprob=logprob,
    )
    if "old_entropy" in objective.needs:
        batch = dataclasses.replace(batch, old_entropy=torch.rand(rows, tokens))
    entropy = torch.rand(rows, tokens) if "entropy" in objective.needs else None
    step = Learner(objective, length=tokens).begin(batch)
    for update in step.updates():
        _, loss = update.evaluate(Policy(logprob.clone().requires_grad_(), entropy=entropy), update.rows)
        loss.value.backward()


def most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(name: str, rows: int, tokens: int) -> None:
    torch.set_num_threads(1)
    evaluate(name, rows, 64)
    before = most()
    evaluate(name, rows, tokens)
    more = most() - before
    print(f"{name:10} {rows} x {tokens:,} tokens: {more / 2**20:.0f} MiB, {more / (rows * tokens):.0f} bytes per token")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=32_000)
    parser.add_argument("--responses", type=int, default=64)
    parser.add_argument("--methods", nargs="+", default=["grpo", "gspo", "tepo", "kl_cov"])
    options = parser.parse_args()
    for name in options.methods:
        process = multiprocessing.get_context("spawn").Process(
            target=measured, args=(name, options.responses, options.tokens)
        )
        process.start()
        process.join()


if __name__ == "__main__":
    main()
