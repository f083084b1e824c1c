"""`tokenpo train`, `recipes` and `report`: train a recipe, and write the page of a run."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from .models import make_repository, upload
from .options import METHOD, RECIPE, add_command, need, need_engine
from .streams import print_list

REPORTS = """examples:
  tokenpo report runs/quickstart-hapo-seed1
What the page shows: docs/report.md
"""


def add(commands: Any) -> None:
    parser = add_command(commands, train, "train a model by a recipe, and write a report")
    parser.take("recipe", "RECIPE", RECIPE, nargs="?")
    parser.take("--method", "NAME", f"another method, with its own defaults: {METHOD}")
    parser.take("--out", "DIR", "the run directory; default: output.dir, or runs/RECIPE-METHOD-seedN", type=str)
    parser.take("--resume", "RUN", "continue the run in this directory")
    parser.take("--set", "SECTION.KEY=VALUE", "change a setting; may be repeated", action="append", default=[])
    parser.flag("--accept-changes", "resume with other settings; they are noted in changes.jsonl")
    parser.flag("--no-report", "write no report.html at the end")
    parser.take("--push", "OWNER/NAME", "upload the model to this repository on the hub, made private if it is new")

    parser = add_command(commands, recipes, "list the recipes of the package, or print one with every setting")
    parser.take("recipe", "RECIPE", RECIPE, nargs="?")

    about = "write report.html of a run: its curves, and every traced token coloured"
    parser = add_command(commands, report, about, REPORTS)
    parser.take("directory", "RUN", "the run directory")
    parser.take("--out", "FILE", "page to write; default: RUN/report.html")


def train(options: argparse.Namespace) -> int:
    """Trains and prints the result; 130 if the run was interrupted and can be resumed."""
    if options.recipe is None and options.resume is None:
        raise TokenPOError("train needs a recipe (tokenpo train quickstart) or a run to resume (--resume RUN)")
    if options.accept_changes and options.resume is None:
        raise TokenPOError("--accept-changes goes with --resume RUN: add that, or leave it out")
    need_engine()
    # The recipe is checked here, before transformers is loaded.
    config = _config(options)
    if options.push:
        make_repository(options.push)  # what the hub rejects, it rejects before the first step
    directory = _trained(options, config)
    if directory is None:
        return 130
    if not options.no_report:
        _reported(directory, config)
    if options.push:
        print(f"uploading; if that fails: tokenpo push {directory} {options.push}", flush=True)
        upload(directory / "model", options.push)
    return 0


def _config(options: argparse.Namespace) -> Any:
    from ..train.recipe.config import load_config
    from ..train.recipe.files import find_recipe

    # Without a recipe the settings are those of the run to resume, with the changes of the command line.
    file = find_recipe(options.recipe) if options.recipe else (options.resume or Path()) / "config.json"
    return load_config(file, method=options.method, overrides=options.set, out=options.out)


def _trained(options: argparse.Namespace, config: Any) -> Path | None:
    """Trains; the run directory, None if the run was interrupted."""
    from ..train.run.loop import resume, train
    from .view import Lines

    view = Lines(sys.stdout)
    if options.resume:
        outcome = resume(options.resume, view, config, accept=options.accept_changes)
    else:
        outcome = train(config, view)
    if not outcome.finished:
        print(f"stopped after step {outcome.steps}; go on with: tokenpo train --resume {outcome.directory}")
        return None
    print("\n".join([*verdict(outcome.evaluations), *outcome.left]))
    return outcome.directory


def verdict(evaluations: Sequence[dict[str, float]]) -> list[str]:
    """Held-out accuracy, and reward if rewards are graded, before and after, with 95 % intervals."""
    from ..records.metrics import with_rewards

    if len(evaluations) < 2:
        return []
    first, *_, last = with_rewards(evaluations)
    lines = []
    for name, key, ends in (
        ("greedy accuracy", "accuracy", ""),
        ("greedy reward", "reward", "reward_"),
        (f"avg@{int(last.get('eval/k', 0))}", "avg", "avg_"),
        ("sampled reward", "avg_reward", "avg_reward_"),
    ):
        before, after = (_estimate(evaluation, f"eval/{key}", f"eval/{ends}") for evaluation in (first, last))
        if before and after:
            lines.append(f"held-out {name}: {before} before -> {after} after; 95 % intervals")
    return lines


def _estimate(evaluation: Mapping[str, Any], key: str, ends: str) -> str:
    """The number and its interval, whose undefined ends are NaN in memory and null in a file; "" for no number."""
    if evaluation.get(key) is None:
        return ""
    low, high = evaluation[f"{ends}low"], evaluation[f"{ends}high"]
    interval = "" if low is None or high is None or low != low else f" ({low:.3f} to {high:.3f})"
    return f"{evaluation[key]:.3f}{interval}"


def _reported(directory: Path, config: Any) -> None:
    """Writes the report of a finished run and sends it to the run's trackers."""
    from ..lab.report.page import write_report
    from ..train.run.trackers import send_report

    page = write_report(directory)
    print(f"report: {page}")
    send_report(directory, config, page, print)


def recipes(options: argparse.Namespace) -> int:
    need_engine()
    from ..train.recipe.config import load_config
    from ..train.recipe.files import find_recipe, shipped_recipes, to_toml

    if options.recipe:
        print(to_toml(load_config(find_recipe(options.recipe))), end="")
    else:
        files = shipped_recipes().items()
        print_list([(name, file.read_text("utf-8").partition("\n")[0].lstrip("# ")) for name, file in files])
    return 0


def report(options: argparse.Namespace) -> int:
    need("jinja2")
    from ..lab.report.page import write_report

    print(write_report(options.directory, options.out))
    return 0
