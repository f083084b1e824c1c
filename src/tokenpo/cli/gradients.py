"""`tokenpo gradients`: methods at a checkpoint of a run, against the gradient of the reward from very many rollouts."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from .options import ONE_METHOD, add_command, argument, need_engine, objectives, place

if TYPE_CHECKING:
    from torch import Tensor

    from ..engines.embedded.directions import AtCheckpoint
    from ..lab.gradients import Judged

EXAMPLES = """examples:
  tokenpo gradients runs/quickstart-tepo-seed0 grpo hapo mine.py:late
  tokenpo gradients runs/quickstart-tepo-seed0 --step 20 --after 16 --json step20.json

What is measured: docs/exact.md#at-a-checkpoint-of-a-run
"""
AFTER = 8  # minibatches


def add(commands: Any) -> None:
    about = "methods at a checkpoint of a run, against the gradient of the reward from very many rollouts"
    parser = add_command(commands, gradients, about, EXAMPLES)
    argument(parser, "directory", "RUN", "directory of a run of the embedded engine")
    argument(parser, "methods", "METHOD", f"{ONE_METHOD}; default: all", nargs="*", default=[])
    argument(parser, "--step", "N", "of the checkpoint; default: the newest")
    after = f"minibatches of the run after which they are looked at again; 0: not; default: {AFTER}"
    argument(parser, "--after", "K", after, type=_count, default=AFTER)
    argument(parser, "--batches", "N", "minibatches of each method; default: 32", type=_count, default=32)
    rollouts = "for the gradient of the reward; default: 8192"
    argument(parser, "--rollouts", "N", rollouts, type=_count, default=8192)
    place(parser, "--json", "FILE", "all numbers; a method that stands in the file is not run again")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no count")
    return int(text)


def gradients(options: argparse.Namespace) -> int:
    """Samples, judges every method twice, prints the table, writes the numbers.

    Raises:
        UnknownName: no such method.
        TokenPOError: no such run or checkpoint, too few rollouts, or a file of another checkpoint.
    """
    need_engine()
    from ..engines.embedded.directions import AtCheckpoint
    from ..lab import gradients as judge
    from ..page.table import print_parts

    chosen, fresh = objectives(options.methods, "gradients")
    if not options.methods:  # all methods share their rollouts, which nobody continues
        chosen = {label: objective for label, objective in chosen.items() if objective.continuations is None}
    chosen = objectives([judge.BASE], "gradients")[0] | chosen
    needs = frozenset().union(*(objective.needs for objective in chosen.values()))
    with closing(AtCheckpoint(options.directory, needs, options.step, options.batches, options.rollouts)) as at:
        about = {"run": str(at.objective), **at.about(), "after": options.after}
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
            about |= _judge(at, new, rows, options.after)
    judge.compare(rows)
    title = f"{options.directory} after step {about['step']}: mean reward {about['reward']:.3g}"
    print_parts([judge.table(rows, title), judge.MEANING, judge.context(about)], sys.stdout, least=132)
    if options.json:
        print(f"numbers: {judge.save(about, rows, options.json)}")
    return 0


def _judge(at: AtCheckpoint, new: dict[str, Any], rows: dict[str, Judged], after: int) -> dict[str, Any]:
    """Adds the new methods to the rows; what was found of the checkpoint itself."""
    from ..lab import gradients as judge

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    say("sampling for the gradient of the reward, and what all methods share")
    truth, found = _truth(at, "")
    shared, sizes = at.rollouts(), {}
    for label, single in zip(new, at.directions([*new.values()], shared, moved=False), strict=True):
        sizes[label] = single.norm(dim=-1)
        rows[label] = judge.Judged(str(new[label]))
        rows[label].add(judge.on_policy(truth, single))
        say(f"{label}: on policy")
    if after:
        at.move(after)
        moved = at.distance(shared)
        truth, later = _truth(at, "after/")
        for label, single in zip(new, at.directions([*new.values()], shared, moved=True), strict=True):
            rows[label].add(judge.off_policy(truth, sizes[label], single), "after/")
            say(f"{label}: after {after} minibatches")
        found |= {**later, "kl": moved.kl, "far": moved.far}
    return {key: float(f"{x:.4g}") for key, x in found.items()}


def _truth(at: AtCheckpoint, where: str) -> tuple[Tensor, dict[str, float]]:
    """The replicates [R, D] of the gradient of the reward; how much of it is signal, and the mean reward."""
    import torch

    from ..lab.gradients import reliability

    gradients, rewards = zip(*at.gradients(), strict=True)
    truth = torch.stack(gradients)
    return truth, {f"{where}reliability": reliability(truth), f"{where}reward": sum(rewards) / len(rewards)}
