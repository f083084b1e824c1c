"""`tokenpo compare`: train a recipe with several methods and seeds, and test the differences over seeds."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError
from ..base.files import make_directory
from .options import METHODS, RECIPE, add_command, need_engine

if TYPE_CHECKING:  # --help needs none of them
    from ..lab.compare.plan import Plan
    from ..lab.compare.result import Comparison, Measure
    from ..train.recipe.config import Config

SEEDS = 10

EXAMPLES = """examples:
  tokenpo compare quickstart --methods grpo,dapo,tepo --seeds 10
  tokenpo compare quickstart --methods hapo,hapo:tau=0,hapo:beta=0,plain@hapo:tau=0,beta=0,alpha=0
  tokenpo compare my.toml --methods grpo,tr_grpo --metrics accuracy,cv:grad_norm --dry-run
  tokenpo compare quickstart --methods grpo,dapo --margin accuracy=0.02,area=0.01
  tokenpo compare --runs dapo='runs/d-*' hapo='runs/h-*'
What the numbers mean: docs/comparison.md
"""


def add(commands: Any) -> None:
    about = "train a recipe with several methods and seeds, and test the differences over seeds"
    parser = add_command(commands, compare, about, EXAMPLES)
    parser.take("recipe", "RECIPE", RECIPE, nargs="?")
    parser.take("--methods", "LIST", METHODS)
    runs = "compare runs that exist, of any host: a label, and a pattern that matches their directories"
    parser.take("--runs", "LABEL=PATTERN", runs, nargs="+")
    parser.take("--seeds", "N", "how many, counted up from the recipe's; default: 10")
    change = "change a setting of all runs; may be repeated"
    parser.take("--set", "SECTION.KEY=VALUE", change, action="append", default=[])
    out = "directory of the runs, finished ones are kept, and of the results; default: runs/compare-RECIPE"
    parser.take("--out", "DIR", out)
    parser.take("--jobs", "N", "runs at a time; default: one per core, or one on a GPU")
    baseline = "method that the others are compared with, or all: every pair; default: the first"
    parser.take("--baseline", "LABEL", baseline)
    parser.take("--metrics", "LIST", "numbers to compare; default: accuracy,area,entropy,seconds")
    margin = "smallest differences that matter, METRIC=M,METRIC=M; one shown to be smaller is called alike"
    parser.take("--margin", "LIST", margin)
    parser.flag("--dry-run", "print every run and its state, and train nothing")


def compare(options: argparse.Namespace) -> int:
    """Trains the missing runs, prints the table and writes compare.html and compare.json; 130 when interrupted.

    If runs failed, TokenPOError is raised after everything is written.
    """
    need_engine()
    if options.runs is not None:
        return _existing(options)
    from ..lab.compare.plan import make_plan, pairs

    if options.recipe is None or options.methods is None:
        raise TokenPOError("compare needs a recipe and --methods, or runs that exist: --runs A='runs/a-*' B='runs/b-*'")
    seeds = SEEDS if options.seeds is None else options.seeds
    plan = make_plan(options.recipe, options.methods, seeds, overrides=options.set, out=options.out)
    chosen, margins = _chosen(options, plan.runs[0].config)
    baseline = options.baseline or plan.subject.labels[0]
    family = len(pairs(plan.subject.labels, baseline))
    # The options are checked above, before anything is made.
    from ..lab.compare.plan import execute
    from ..lab.compare.result import failed_in_words, finished, gather
    from ..lab.compare.verdict import least_seeds, too_few

    seeds = len(plan.subject.seeds)
    if seeds < least_seeds(family):
        print(f"note: {too_few(seeds, family)}", flush=True)
    if options.dry_run:
        return _dry_run(plan)
    jobs = max(1, options.jobs or _jobs(plan))
    ended = execute(plan.runs, jobs, plan.subject.place)
    if ended.interrupted:
        print(f"stopped; what is made lies in {plan.subject.place}, and the same command goes on with it")
        return 130
    runs = finished(plan)
    comparison = gather(plan.subject, runs, chosen, baseline, ended.failures, margins)
    _show(comparison, plan.subject.place)
    if ended.failures:
        raise TokenPOError(f"{failed_in_words(ended.failures)}; the same command tries them again")
    return 0


def _dry_run(plan: Plan) -> int:
    from ..lab.compare.plan import State, state

    states = [state(run) for run in plan.runs]
    for run, its_state in zip(plan.runs, states, strict=True):
        print(f"{its_state.value:<22}{shlex.join(['tokenpo', 'train', *run.arguments])}")
    for note in plan.subject.notes:
        print(f"note: {note}")
    print(f"{len(states)} runs, {states.count(State.DONE)} done, in {plan.subject.place}")
    return 0


def _existing(options: argparse.Namespace) -> int:
    from ..lab.compare.plan import read_existing
    from ..lab.compare.result import gather

    training = {"recipe": "RECIPE"} | {name: f"--{name}" for name in ("methods", "seeds", "set", "jobs")}
    training |= {"dry_run": "--dry-run"}
    if names := [shown for name, shown in training.items() if getattr(options, name)]:
        raise TokenPOError(f"--runs compares what exists, and {', '.join(names)} says what to train: leave one out")
    chosen, margins = _chosen(options, None)
    where_logged = options.metrics is None and options.margin is None
    subject, runs = read_existing(options.runs)
    baseline = options.baseline or subject.labels[0]
    comparison = gather(subject, runs, chosen, baseline, (), margins, where_logged=where_logged)
    _show(comparison, make_directory(options.out or Path("runs", "compare")))
    return 0


def _chosen(options: argparse.Namespace, config: Config | None) -> tuple[list[Measure], dict[str, float]]:
    """The measures of --metrics, and the margins of --margin by measure."""
    from ..lab.compare.result import DEFAULT, margins, measures

    names = DEFAULT if options.metrics is None else options.metrics.split(",")
    chosen = measures([name.strip() for name in names], config)
    return chosen, margins(options.margin or "", chosen)


def _show(comparison: Comparison, out: Path) -> None:
    from ..lab.compare.page import render, show
    from ..lab.compare.result import to_json
    from ..lab.page.frame import write

    show(comparison, sys.stdout)
    print(f"page: {write(render(comparison), out / 'compare.html')}")
    print(f"numbers: {write(to_json(comparison), out / 'compare.json')}")


def _jobs(plan: Plan) -> int:
    """As many runs as the cores allow with the recipe's threads; one on a GPU."""
    from ..train.models.model import resolve_device

    if resolve_device(plan.runs[0].config.model.device).startswith("cuda"):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // (plan.runs[0].config.threads or 1), len(plan.runs)))
