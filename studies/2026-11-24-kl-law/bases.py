"""Makes what the study trains: base models for the dial and for search, two of each, and the search task's data.

    python studies/2026-11-24-kl-law/bases.py [OUT [NAME ...]]      five to twenty minutes of a core for each of three

A model made again on another machine may be another model. So those that runs were made of stand in base_models/, which
is OUT by default, and what stands there is not made again.

The first dial model is the one that ships; the second is warmed up in the same way from other initial weights. Both
search models see search alone.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import torch

from tokenpo.models import LanguageModel, save
from tokenpo.tasks.dial_sum import DialSum

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools")]
import search  # noqa: E402
from tiny_model import EOS, PAD, WarmUp, fresh, tokenizer, warm_up  # noqa: E402

MADE = {
    "dial-second": WarmUp(seed=12),
    "search-first": WarmUp(seed=11, steps=2400),
    "search-second": WarmUp(seed=12, steps=2000),
}


def model(bases: Path, task: str, base: str) -> str:
    """What `model.path` is for a task of the study and its "first" or "second" base."""
    kind = "search" if task in ("search", "claimed") else "dial"
    return "tiny" if (kind, base) == ("dial", "first") else str(bases / f"{kind}-{base}")


def examples(
    kind: str, settings: WarmUp, step: int, *, dial_leap: float = 0.6, search_leap: float = 0.2, give_up: float = 0.2
) -> list[tuple[str, str]]:
    """Prompts and worked responses of a step: without leaps at first, as a leap is made of facts.

    Args:
        dial_leap, search_leap: shares of leaps in the end.
        give_up: of search, the share of failed attempts that are the last.
    """
    easy, draw = min(1.0, 2 * step / settings.steps), random.Random(step + 1_000_000 * settings.seed)
    if kind == "search":
        prompts = [search.problem(draw, (3, 4)) for _ in range(settings.batch)]
        return [(prompt, search.solution(prompt, draw, give_up, search_leap * easy)) for prompt in prompts]
    task = DialSum(operands=(2, 12), leap=dial_leap * easy, seed=1000 + settings.seed)
    problems = task.problems("train", step * settings.batch, settings.batch)
    return [(str(problem.prompt), task.solution(problem)) for problem in problems]


def make(out: Path, name: str) -> None:
    """Writes OUT/NAME, unless it is there."""
    settings, began = MADE[name], time.process_time()
    if (out / name).is_dir():
        return

    def watch(step: int, loss: float) -> None:
        if (step + 1) % 100 == 0:
            spent = time.process_time() - began
            print(f"{name}: step {step + 1} of {settings.steps}, loss {loss:.3f}, {spent:.0f} s", flush=True)

    fresh_one = fresh(settings.seed)
    warm_up(fresh_one, lambda step: examples(name.partition("-")[0], settings, step), settings, watch)
    save(LanguageModel(fresh_one, tokenizer(), (EOS,), PAD), out / name)


def main() -> None:
    torch.set_num_threads(1)
    out = Path(sys.argv[1]) if sys.argv[1:] else HERE / "base_models"
    out.mkdir(parents=True, exist_ok=True)
    search.write(out)
    for name in sys.argv[2:] or MADE:
        make(out, name)


if __name__ == "__main__":
    main()
