"""`tokenpo gradients`: methods at a checkpoint of a run, against the gradient of the reward from very many rollouts."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from .options import METHOD, add_command, need_engine, objectives, path

if TYPE_CHECKING:
    from ..engines.embedded.directions import Bed
    from ..evidence.exact.at_checkpoint import Judged

EXAMPLES = """examples:
  tokenpo gradients runs/quickstart-tepo-seed0 grpo hapo mine.py:late
  tokenpo gradients runs/quickstart-tepo-seed0 --step 20 --after 16 --json bed.json

What is measured: docs/exact.md#at-a-checkpoint-of-a-run
"""
AFTER = 8  # minibatches


def add(commands: Any) -> None:
    """The parser of `tokenpo gradients`."""
    about = "methods at a checkpoint of a run, against the gradient of the reward from very many rollouts"
    parser = add_command(commands, "gradients", about, EXAMPLES)
    parser.add_argument("directory", type=path, metavar="RUN", help="directory of a run of the embedded engine")
    parser.add_argument(
        "methods", nargs="*", metavar="METHOD", help=f"{METHOD}; METHOD:KEY=VALUE,... with options; default: all"
    )
    parser.add_argument("--step", type=int, metavar="N", help="of the checkpoint; default: the newest")
    parser.add_argument(
        "--after", type=_count, default=AFTER, metavar="K",
        help=f"minibatches of the run after which they are looked at again; 0: not; default: {AFTER}",
    )  # fmt: skip
    parser.add_argument(
        "--batches", type=_count, default=32, metavar="N", help="minibatches of each method; default: 32"
    )
    parser.add_argument(
        "--rollouts", type=_count, default=8192, metavar="N", help="for the gradient of the reward; default: 8192"
    )
    parser.add_argument(
        "--json", type=path, metavar="FILE", help="all numbers; a method that stands in the file is not run again"
    )
    parser.set_defaults(run=gradients)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no count")
    return int(text)


def gradients(options: argparse.Namespace) -> int:
    """Samples, judges every method twice, prints the table, writes the numbers.

    Raises:
        UnknownName: no such method.
        TokenPOError: no such run or checkpoint, too few rollouts, or a file of another bed.
    """
    need_engine()
    from ..engines.embedded.directions import Bed
    from ..evidence.exact import at_checkpoint as judge
    from ..evidence.page.terminal import print_parts

    chosen, fresh = objectives(options.methods, "gradients")
    if not options.methods:
        chosen = {label: objective for label, objective in chosen.items() if objective.continuations is None}
    chosen = objectives([judge.BASE], "gradients")[0] | chosen
    needs = frozenset().union(*(objective.needs for objective in chosen.values()))
    with closing(Bed(options.directory, needs, options.step, options.batches, options.rollouts)) as bed:
        about = {"run": str(bed.objective), **bed.about(), "after": options.after}
        rows: dict[str, Judged] = {}
        if options.json and options.json.exists():
            held, rows = judge.load(options.json)
            judge.require_same(options.json, held, about)
            about = held
        new = {
            label: objective for label, objective in chosen.items()
            if label in fresh or label not in rows or rows[label].objective != str(objective)
        }  # fmt: skip
        if new:
            about |= _judge(bed, new, rows, options.after)
    judge.compare(rows)
    title = f"{options.directory} after step {about['step']}: mean reward {about['reward']:.3g}"
    print_parts([judge.table(rows, title), judge.MEANING, judge.told(about)], sys.stdout)
    if options.json:
        print(f"numbers: {judge.save(about, rows, options.json)}")
    return 0


def _judge(bed: Bed, new: dict[str, Any], rows: dict[str, Judged], after: int) -> dict[str, Any]:
    """Adds the new methods to the rows; what was found of the bed itself."""
    import torch

    from ..evidence.exact import at_checkpoint as judge

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    say("sampling for the gradient of the reward, and what all methods share")
    truth, shared, sizes = torch.stack([*bed.gradients()]), bed.rollouts(), {}
    for label, single in zip(new, bed.directions([*new.values()], shared, moved=False), strict=True):
        sizes[label] = single.norm(dim=-1)
        rows[label] = judge.judged(str(new[label]), judge.on_policy(truth, single))
        say(f"{label}: on policy")
    found = {"reliability": judge.reliability(truth)}
    if after:
        bed.move(after)
        moved = bed.distance(shared)
        truth = torch.stack([*bed.gradients()])
        for label, single in zip(new, bed.directions([*new.values()], shared, moved=True), strict=True):
            rows[label].add("after/useful", judge.off_policy(truth, sizes[label], single))
            say(f"{label}: after {after} minibatches")
        found |= {"after/reliability": judge.reliability(truth), "kl": moved.kl, "far": moved.far}
    return {key: float(f"{x:.4g}") for key, x in found.items()}
