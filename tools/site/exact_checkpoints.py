"""Writes docs/exact_checkpoints.md from docs/exact_step*.json and docs/exact.json; --check says whether it is current.

python tools/site/exact_checkpoints.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from layout import write

from tokenpo.base.text import number
from tokenpo.lab import gradients
from tokenpo.lab.exact import study
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.lab.gradients import Judged

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "exact_checkpoints.md"
STEPS = (0, 10)
DRAWS, COVER = 4000, 95  # bootstrap samples; of the interval, %
# What is compared: name, measure at the checkpoint, measure in the worlds.
COMPARED = (
    ("on policy", "useful", "init/useful"),
    ("after 8 minibatches, a drift toward", "after/useful", "drift/toward"),
    ("after 8 minibatches, a drift away", "after/useful", "drift/away"),
)
HEAD = """<!-- Written by tools/site/exact_checkpoints.py from docs/exact_step*.json and docs/exact.json. -->

# Methods at two checkpoints of the quickstart

Do [exact worlds](exact.md) say anything about a language model? Here the methods, but for the two that
draw continuations, stand at two checkpoints of a quickstart run (`tokenpo train quickstart --set
output.checkpoint_every=10 --set output.keep=10`, TEPO, seed 0): before its first step and after the tenth. [What is
measured](exact.md#at-a-checkpoint-of-a-run); the commands are `tokenpo gradients runs/quickstart-tepo-seed0 --step 0
--json docs/exact_step0.json`, and the same with 10.

"""
MEANING = """
ρ is Spearman's rank correlation over the methods of what is measured at the checkpoint with the same in the worlds, of
which the mean over the twelve is taken; between brackets the 95 % interval of a bootstrap over methods. "Lowest and
highest" is ρ with single worlds. Many methods are equal on policy, and share ranks; many are kin, for which the
interval is too narrow. From step 0 the run's eight minibatches raise the mean reward, as a drift toward the gradient
does; from step 10 they lower it.

In the tables, useful progress is that along the gradient of the reward per step of its root mean square, single that of
one batch whatever its length, cosine that of the expected update (an estimate can lie beyond 1), SNR the power of the
expected update over its noise; "after" is on the same rollouts once the policy has moved, progress per step on policy;
± one standard error. "–" was not taken.
"""


def page() -> str:
    """The page as text."""
    worlds = {label: row for label, row in study.load(DOCS / "exact.json").items() if label != study.PERFECT}
    found = {step: gradients.load(DOCS / f"exact_step{step}.json") for step in STEPS}
    head = "| at step | here, and in the worlds | methods | ρ | lowest and highest |"
    lines = ["## Do they agree?", "", head, "| --- | --- | --- | --- | --- |"]
    for step, (_, rows) in found.items():
        lines += [_agreement(step, name, rows, at, worlds, inside) for name, at, inside in COMPARED]
    lines += [MEANING]
    for step, (about, rows) in found.items():
        lines += _table(step, about, rows)
    return HEAD + "\n".join(lines).rstrip() + "\n"


def _agreement(
    step: int, name: str, rows: Mapping[str, Judged], at: str, worlds: Mapping[str, study.Row], inside: str
) -> str:
    both = [label for label in rows if label in worlds]
    here = [rows[label].numbers[at].value for label in both]
    there = np.array([[worlds[label].cells[world].numbers[inside].value for world in WORLDS] for label in both])
    rho, low, high = interval(here, there.mean(1).tolist())
    single = {world: spearman(here, there[:, place].tolist()) for place, world in enumerate(WORLDS)}
    least, most = min(single, key=lambda w: single[w]), max(single, key=lambda w: single[w])
    ends = f"{single[least]:.2f} {least}, {single[most]:.2f} {most}"
    return f"| {step} | {name} | {len(both)} | {rho:.2f} ({low:.2f} to {high:.2f}) | {ends} |"


def _table(step: int, about: Mapping, rows: Mapping[str, Judged]) -> Iterator[str]:
    yield f"## After step {step}\n"
    yield f"Mean reward {about['reward']:.3g}. {gradients.context(about)}\n"
    yield f'<details markdown="1"><summary>The {len(rows)} methods</summary>\n'
    shown = [key for key in gradients.TITLES if any(key in row.numbers for row in rows.values())]
    yield "| method | " + " | ".join(gradients.TITLES[key] for key in shown) + " |"
    yield "| --- |" + " ---: |" * len(shown)
    for label in sorted(rows, key=lambda x: -rows[x].numbers["useful"].value):
        yield f"| `{label}` | " + " | ".join(_told(rows[label].numbers.get(key)) for key in shown) + " |"
    yield "\n</details>\n"


def _told(x: study.Number | None) -> str:
    if x is None or math.isnan(x.value):
        return "–"
    value = number(round(x.value, 3) + 0.0)
    return f"{value} ± {number(x.error, 1)}" if x.error > 1e-5 else value


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks.

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 6), spearman([1, 1, 2], [1, 2, 3])
    (0.8, 0.8660254037844387)
    """
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else math.nan


def interval(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """ρ, and the ends of the percentile interval of a bootstrap over pairs."""
    draws, pairs = np.random.default_rng(0), np.array([x, y])
    found = [spearman(*pairs[:, draws.integers(len(x), size=len(x))]) for _ in range(DRAWS)]
    low, high = np.nanpercentile(found, [(100 - COVER) / 2, (100 + COVER) / 2])
    return spearman(x, y), float(low), float(high)


def _ranks(x: Sequence[float]) -> np.ndarray:
    # Files keep four digits: what agrees to them is equal.
    _, place, count = np.unique(np.round(x, 4), return_inverse=True, return_counts=True)
    last = count.cumsum()
    return ((last - count + 1 + last) / 2)[place]


if __name__ == "__main__":
    sys.exit(write(PAGE, page()))
