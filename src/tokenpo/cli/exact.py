"""`tokenpo exact` and `gradients`: methods against the gradient of the reward, in small worlds and at a checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError, choose
from .options import ONE_METHOD, add_command, add_set, argument, need, need_engine, objectives, place
from .streams import progress

if TYPE_CHECKING:
    from torch import Tensor

    from ..engines.embedded.directions import AtCheckpoint
    from ..lab.exact.study import Row
    from ..lab.exact.world import World
    from ..lab.gradients import Judged

EXAMPLES = """examples:
  tokenpo exact tepo hapo                                  three measures in twelve worlds
  tokenpo exact mine.py:late --page late.html              a method of your own, drawn
  tokenpo exact gtpo --world fork_sure_filler,wandering_fork --measure init/useful,drift/away
  tokenpo exact lopti --set network=true                   states share parameters
  tokenpo exact --json exact.json --page exact.html        all methods; goes on where it was interrupted

What is exact, the measures and the worlds: docs/exact.md
"""
AT_CHECKPOINT = """examples:
  tokenpo gradients runs/quickstart-tepo-seed0 grpo hapo mine.py:late
  tokenpo gradients runs/quickstart-tepo-seed0 --step 20 --after 16 --json step20.json

What is measured: docs/exact.md#at-two-checkpoints
"""
AFTER = 8  # default number of minibatches of --after


def add(commands: Any) -> None:
    parser = add_command(commands, exact, "methods in small worlds whose true gradient is known", EXAMPLES)
    argument(parser, "methods", "METHOD", f"{ONE_METHOD}; default: all", nargs="*", default=[])
    argument(parser, "--world", "LIST", "worlds; 'large' is the six large ones; default: the twelve")
    argument(parser, "--measure", "LIST", "measures to print, as the page names them; default: three")
    numbers = "all numbers; methods already in FILE are reused"
    place(parser, "--json", "FILE", numbers)
    add_set(parser, "another setting: group, batch, network, sampler", "KEY=VALUE")
    place(parser, "--page", "FILE", "a page of all numbers, drawn")
    about = "methods at a checkpoint of a run, against the gradient of the reward from very many rollouts"
    parser = add_command(commands, gradients, about, AT_CHECKPOINT)
    argument(parser, "directory", "RUN", "directory of a run of the embedded engine")
    argument(parser, "methods", "METHOD", f"{ONE_METHOD}; default: all", nargs="*", default=[])
    argument(parser, "--step", "N", "of the checkpoint; default: the newest")
    after = f"minibatches of the run after which the methods are measured again; 0: never; default: {AFTER}"
    argument(parser, "--after", "K", after, type=_count, default=AFTER)
    argument(parser, "--batches", "N", "minibatches of each method; default: 32", type=_count, default=32)
    rollouts = "for the gradient of the reward; default: 8192"
    argument(parser, "--rollouts", "N", rollouts, type=_count, default=8192)
    place(parser, "--json", "FILE", numbers)


def _worlds(text: str | None) -> list[World]:
    """The worlds of `--world`: names between commas, "large" for all large ones; the twelve by default."""
    from ..lab.exact.worlds import LARGE, TURNS, WORLDS

    words = (text or ",".join(WORLDS)).split(",")
    names = [name for word in words for name in (LARGE if word == "large" else [word])]
    return [choose("world", name, WORLDS | LARGE | TURNS)() for name in names]


def _measures(text: str | None) -> Sequence[str]:
    """The keys of `--measure`, between commas; `table.SHOWN` by default."""
    from ..lab.exact import table

    measures = text.split(",") if text else table.SHOWN
    for key in measures:
        choose("measure", key, table.CATALOGUE)
    return measures


def exact(options: argparse.Namespace) -> int:
    need("pydantic", "rich", "jinja2")
    import torch

    from ..core.types import TAUGHT
    from ..lab.exact import study, table
    from ..lab.exact.contestant import Contestant
    from ..lab.exact.setting import Setting

    torch.set_num_threads(1)  # a world is small: more threads only wait for each other
    measures = _measures(options.measure)
    worlds = _worlds(options.world)
    names = [world.name for world in worlds]
    chosen, fresh = objectives(options.methods, "exact")
    if not options.methods:
        chosen = {x: o for x, o in chosen.items() if o.needs.isdisjoint(TAUGHT) and not (o.coalitions or o.drafts)}
    # The user's own methods come first: a mistake in them is found before the others have taken minutes.
    contestants = [Contestant(label, chosen[label]) for label in sorted(chosen, key=lambda label: label not in fresh)]
    setting = Setting.of(options.set)
    known = study.load(options.json) if options.json and options.json.exists() else {}
    study.require_setting(known, setting, options.json)
    known |= {label: row.with_cells_of(known.get(label)) for label, row in study.shipped(setting).items()}

    places = {contestant.label: len(worlds) * i for i, contestant in enumerate(contestants)}

    def done(rows: Mapping[str, Row], label: str, count: int) -> None:
        tell(places.get(label, 0) + count, label)
        if count < len(worlds):
            return
        print(f"{label}: done in {count} worlds", file=sys.stderr, flush=True)
        if options.json:
            try:
                study.save(rows.values(), options.json)
            except TokenPOError as error:  # the table is still printed, and the disk may have room at the end
                print(f"tokenpo: {error}", file=sys.stderr)

    with progress(len(worlds) * len(contestants), "") as tell:
        rows = study.all_rows(contestants, worlds, known, fresh, setting, done)
    labels = {*chosen, study.BASE, study.PERFECT}
    shown = [row for row in rows if row.label in labels and set(names) <= set(row.cells)]
    table.show(shown, names, measures, sys.stdout)
    if options.json:
        print(f"numbers: {study.save(rows, options.json)}")
    if options.page:
        from ..lab.exact.page import render
        from ..page.frame import write

        print(f"page: {write(render(shown, worlds), options.page)}")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no count")
    return int(text)


def gradients(options: argparse.Namespace) -> int:
    need_engine()
    from ..core.types import TAUGHT
    from ..engines.embedded.directions import UNSHARED, AtCheckpoint
    from ..lab import gradients as judge
    from ..page.table import print_parts

    chosen, fresh = objectives(options.methods, "gradients")
    if not options.methods:
        lacking = UNSHARED | TAUGHT | {"value"}
        chosen = {label: o for label, o in chosen.items() if o.needs.isdisjoint(lacking) and not o.drafts}
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
    shown = {label: row for label, row in rows.items() if label in chosen}
    print_parts([judge.verdict(shown), judge.table(shown, title), judge.MEANING, judge.context(about)], sys.stdout)
    if options.json:
        print(f"numbers: {judge.save(about, rows, options.json)}")
    return 0


def _judge(at: AtCheckpoint, new: dict[str, Any], rows: dict[str, Judged], after: int) -> dict[str, Any]:
    """Adds the new methods to the rows; returns the numbers of the checkpoint itself."""
    from ..lab import gradients as judge

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    say("sampling for the gradient of the reward, and what all methods share")
    truth, numbers = _truth(at, "")
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
        numbers |= {**later, "kl": moved.kl, "far": moved.far}
    return {key: float(f"{x:.4g}") for key, x in numbers.items()}


def _truth(at: AtCheckpoint, where: str) -> tuple[Tensor, dict[str, float]]:
    """The replicates [R, D] of the gradient of the reward; its reliability and the mean reward, keys after `where`."""
    import torch

    from ..lab.gradients import reliability

    gradients, rewards = zip(*at.gradients(), strict=True)
    truth = torch.stack(gradients)
    return truth, {f"{where}reliability": reliability(truth), f"{where}reward": sum(rewards) / len(rewards)}
