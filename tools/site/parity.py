"""Writes docs/parity.md: how far every engine's loss path is from the objective, method by method.

    python tools/site/parity.py                  compute all of it and write the page: a minute on an idle core
    python tools/site/parity.py --method NAME    compute these rows only (may be repeated), keep the others
    python tools/site/parity.py --check          write nothing; exit 1 where a number is larger than the page says, or a
                                            method or sentence is not what the page says

It takes an environment with TRL and verl, as `make test-engines` sets it up.
"""

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layout import method_link, table

from tokenpo.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "parity.md"
COMMAND = "python tools/site/parity.py"
GENERATED = f"<!-- Written by `{COMMAND}` with the engines' environment: do not edit. -->"
REFUSED, OPEN = "rejected", "open"
# Column -> (its field in what was measured, the smallest bound that is told).
COLUMNS = {
    "embedded": ("embedded", 1e-5),
    "TRL": ("trl", 1e-5),
    "verl, 1 rank": ("verl_1", 1e-12),
    "verl, 2 ranks": ("verl_2", 1e-12),
}

TEXT = """\
{generated}

# Parity

Every engine computes the same loss and gradient, up to rounding. We ran every method in every engine on one frozen
rollout batch of a random model of a few thousand parameters. A cell has two bounds, rounded up to a power of ten: the
difference of the **loss**, relative to the loss, and of the **gradient**, relative to its norm. Nothing is sampled
here, and nothing ran on a GPU.

- *embedded*: the engine of `tokenpo train`, in micro-batches of three rows and with the fused objective where the
  model allows it, compared with the objective called as in [your own loop](own_loop.md) on a plain
  forward pass with all logits. float32, gradient to the weights.
- *TRL*: `TokenPOTrainer._compute_loss` in a run of TRL's trainer, one process, two minibatches of two micro-batches,
  twice, against the embedded engine on the same rows at the weights that TRL had before each step; the largest of the
  steps, the loss relative to the largest of them. float32, gradient to the weights.
- *verl*: `objective_loss` behind phase one on verl's nested layout, against the objective, in micro-batches of 16 rows
  on one rank and of 3 on two, there with rows that verl adds itself. float64, gradient to the log-probabilities and
  entropies of the tokens, where verl's engine takes over. Each optimiser pass by itself; what a method remembers is as
  at the start.

Bounds end at {single} in float32 and {double} in float64: smaller differences depend on the machine. `{command}` writes
this page, and with `--check` computes it again. *Rejected* methods raise an error that names the missing input and a
remedy; `tests/test_parity.py` compares them with the hosts' own checks.

{table}

{open}{options}
"""

NOTES = {
    "hapo": "its adaptive temperature, `tau`, is 0: nothing is sampled here",
    "clip_cov": "`fraction` is 0.2, or hardly a token of so few would be chosen",
    "kl_cov": "`fraction` is 0.3, likewise",
    "dppo_tv": "in TRL with a `rollout_func` that returns log-probabilities; rejected without one and without vLLM",
    "dppo_kl": "the same",
    "opsm": "`delta` is 0.02, so that it masks",
    "rollout_is": "`low` is 1 and `high` 9, or the policies of this page would leave no token; in TRL as dppo_tv",
    "prime_rl": "`low` and `high` are 0.5, likewise",
    "m2po_rollout": "`threshold` is 0.3, likewise",
    "flash_reinforce": "`delta` is 1, likewise",
    "gtpo_conflict": "`most` is 9 nats, likewise",
    "target_po": "`eta` is 0.02, or the target of such long responses would be the policy",
    "opd": "in TRL a trainer with a `teacher_model`: `tests/hosts/trl/test_teacher.py`",
    "gkd": "whole distributions are not among what is frozen here; in TRL it is tested against TRL's own distillation",
    "rlsd": "in TRL as opd",
    "sdar": "the same",
    "sdpo": "the same",
}


def bound(value: float, floor: float) -> float:
    """The power of ten that a difference is held under, at least `floor`.

    Raises:
        SystemExit: it is not finite, or too large to be rounding.
    """
    if not value < 1e-3:
        raise SystemExit(f"a difference of {value:.3g} is no rounding: this engine does not compute the objective")
    return max(floor, 10.0 ** math.ceil(math.log10(value)) if value else 0.0)


def told(value: float) -> str:
    return f"1e{round(math.log10(value))}"


def cells(found: Any) -> dict[str, str]:
    """Column -> cell of one method."""
    row = {}
    for column, (field, floor) in COLUMNS.items():
        gap = getattr(found, field)
        row[column] = REFUSED if gap is None else f"{told(bound(gap.loss, floor))}, {told(bound(gap.gradient, floor))}"
    return row


def page(rows: Mapping[str, Mapping[str, str]]) -> str:
    """The text, from the cells of each method."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in METHODS:
        alike.setdefault(tuple(rows[name][column] for column in COLUMNS), []).append(method_link(name))
    body = [(" ".join(names), *found) for found, names in alike.items()]
    return TEXT.format(
        generated=GENERATED,
        command=COMMAND,
        single=told(COLUMNS["TRL"][1]),
        double=told(COLUMNS["verl, 1 rank"][1]),
        table=table(("methods", *COLUMNS), body),
        open=f"- *{OPEN}*: not computed yet; `{COMMAND}` does it.\n" if any(OPEN in row for row in body) else "",
        options="\n".join(f"- `{name}`: {note}." for name, note in NOTES.items()),
    )


def written(text: str) -> dict[str, dict[str, str]]:
    """Cells of a page, by method."""
    found = re.findall(r"^\| (\[`.*?) \| (.*) \|$", text, re.MULTILINE)
    cells_of = {name: cells.split(" | ") for names, cells in found for name in re.findall(r"\[`(\w+)`\]", names)}
    order = [*METHODS, *cells_of]
    return {name: dict(zip(COLUMNS, cells_of[name], strict=True)) for name in sorted(cells_of, key=order.index)}


def exceeded(old: str, new: str) -> bool:
    """Whether a cell is no longer true."""
    if REFUSED in (old, new) or OPEN in (old, new):
        return old != new
    return any(float(now) > 1.5 * float(then) for then, now in zip(old.split(", "), new.split(", "), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", action="append", choices=list(METHODS), metavar="NAME")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not true")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that TRL's runs may take")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests"))
    from parity_support import measured

    names = options.method or list(METHODS)
    found = measured(names, timeout=options.timeout)
    new = {name: cells(found[name]) for name in names}
    rows = written(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    if options.check:
        stale = [
            name
            for name in names
            if name not in rows or any(exceeded(rows[name][column], new[name][column]) for column in COLUMNS)
        ]
        print("\n".join(f"not what docs/parity.md says: {name}: {new[name]}" for name in stale))
        return int(bool(stale))
    rows |= new
    if missing := [name for name in METHODS if name not in rows]:
        raise SystemExit(f"docs/parity.md has no row for {', '.join(missing)} yet: run {COMMAND} without --method")
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
