"""Warms up the tiny model on worked solutions of dial_sum: `python -m tokenpo.engines.embedded.warmup OUT`.

Without options this re-makes the weights that ship in the package, in seven minutes of one core: bit for bit on the
same machine and torch, to the same accuracy elsewhere. With options it makes the starting point of a harder dial:

    python -m tokenpo.engines.embedded.warmup models/dial23 --modulus 23 --leap 0.7
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ...models import LanguageModel, save
from ...models.tiny import EOS, PAD, Example, WarmUp, fresh, tokenizer, warm_up
from ...tasks.dial_sum import DialSum

OPERANDS = (2, 12)
SEED = 1000  # of the problems: another order than any run's, and never a held-out expression


def make(directory: Path, task: DialSum, settings: WarmUp, *, quiet: bool = False) -> None:
    """Writes a warmed-up model as a Hugging Face directory.

    Args:
        task: gives the problems and their worked solutions; step s sees problems s·batch ... (s+1)·batch - 1.
        quiet: no progress lines.
    """
    began = time.process_time()

    def examples(step: int) -> Sequence[Example]:
        # Facts first: without leaps every result is one fact of a table, and leaps are made of facts.
        leap = task.leap * min(1.0, 2 * step / settings.steps)
        teacher = replace(task, leap=leap)
        problems = teacher.problems("train", step * settings.batch, settings.batch)
        return [(str(problem.prompt), teacher.solution(problem)) for problem in problems]

    def watch(step: int, loss: float) -> None:
        if not quiet and (step + 1) % 100 == 0:
            print(f"step {step + 1} of {settings.steps}   loss {loss:.3f}   {time.process_time() - began:.0f} s")

    model = fresh(settings.seed)
    warm_up(model, examples, settings, watch)
    save(LanguageModel(model, tokenizer(), (EOS,), PAD), directory)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tokenpo.engines.embedded.warmup", description="Warms up the tiny model on dial_sum."
    )
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument(
        "--operands", type=int, nargs="+", default=OPERANDS, help="a number, or the fewest and the most"
    )
    parser.add_argument("--modulus", type=int, default=10)
    parser.add_argument("--leap", type=float, default=0.6, help="probability of a leap after an operand")
    parser.add_argument("--steps", type=int, default=WarmUp.steps)
    parser.add_argument("--seed", type=int, default=WarmUp.seed, help="of the initial weights")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # one order of summation: the same bytes every time
    task = DialSum(operands=options.operands, modulus=options.modulus, leap=options.leap, seed=SEED)
    make(options.out, task, WarmUp(steps=options.steps, seed=options.seed))


if __name__ == "__main__":
    main()
