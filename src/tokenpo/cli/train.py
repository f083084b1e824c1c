"""`tokenpo train`, `launch`, `recipes` and `report`: train a recipe by any engine, and write the page of a run."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from ..recipe.hosts import HOSTS, VERL, Host
from .options import RECIPE, add_command, add_engine, add_flag, add_run, argument, need, need_engine, path, place
from .streams import print_list

REPORTS = """examples:
  tokenpo report runs/quickstart-hapo-seed1
  tokenpo report runs/quickstart-hapo-seed1 --beside runs/quickstart-grpo-seed1
What the page shows: docs/report.md
"""


def add(commands: Any) -> None:
    parser = add_command(commands, train, "train a model by a recipe, and write a report")
    argument(parser, "recipe", "RECIPE", RECIPE, nargs="?")
    add_run(parser)
    argument(parser, "--resume", "RUN", "continue the run in this directory")
    add_engine(parser, "engine that trains")
    add_flag(parser, "--accept-changes", "resume with other settings; they are noted in changes.jsonl")
    add_flag(parser, "--no-report", "write no report.html at the end")
    parser = add_command(commands, launch, "train a recipe with TRL or verl, or print the command that does")
    argument(parser, "recipe", "RECIPE", RECIPE)
    names = [host.name for host in HOSTS.values() if host.commanded]
    parser.add_argument("--engine", choices=names, required=True, help="engine that trains")
    add_flag(parser, "--print", "print the command instead of starting it, for the scripts of a cluster")
    add_run(parser)
    parser = add_command(commands, recipes, "list the recipes of the package, or print one with every setting")
    argument(parser, "recipe", "RECIPE", RECIPE, nargs="?")
    about = "write report.html of a run: its curves, and every traced token coloured"
    parser = add_command(commands, report, about, REPORTS)
    argument(parser, "directory", "RUN", "the run directory")
    argument(parser, "--beside", "OTHER", "another run, whose tokens are shown beside, on the same scales", type=path)
    out = "page to write; default: RUN/report.html, or RUN/beside-NAME.html with --beside"
    place(parser, "--out", "FILE", out, folder=True)


def train(options: argparse.Namespace) -> int:
    """Trains and prints the result; 130 if the run was interrupted and can be resumed."""
    if options.recipe is None and options.resume is None:
        raise TokenPOError("train needs a recipe (tokenpo train quickstart) or a run to resume (--resume RUN)")
    host = HOSTS[options.engine]
    if options.accept_changes and (options.resume is None or not host.changeable):
        raise TokenPOError("--accept-changes goes with --resume RUN, of the embedded engine: add that, or leave it out")
    need_engine()
    # The recipe is checked here, before transformers is loaded.
    config = _config(options, host)
    records = (_elsewhere if host.commanded else _here)(options, host, config)
    if records is None:
        return 130
    if not options.no_report:
        from ..evidence.report.page import write_report

        print(f"report: {write_report(records)}")
    return 0


def _config(options: argparse.Namespace, host: Host) -> Any:
    from ..engines.launch import require_processes
    from ..recipe.config import load_config
    from ..recipe.files import find_recipe
    from ..runs.directory import require_host

    require_processes(host, options.processes)
    if options.resume is not None:
        require_host(options.resume, host)
    # Without a recipe the settings are those of the run to resume, with the changes of the command line.
    file = find_recipe(options.recipe) if options.recipe else (options.resume or Path()) / "config.json"
    if options.recipe is None and not file.is_file():
        raise TokenPOError(f"{options.resume} holds no config.json: give the directory of a run, as train printed it")
    config = load_config(file, method=options.method, overrides=options.set, out=options.out)
    _require_verl(config, host)
    return config


def _require_verl(config: Any, host: Host) -> None:
    """Refuses a recipe for verl with a verifier of verl's, if the engine is another and verl is not installed."""
    from importlib.util import find_spec

    needs_it = str(config.task.options.get("verifier", "")).startswith(f"{VERL.package}.")
    if host is not VERL and config.verl and needs_it and find_spec(VERL.package) is None:
        raise TokenPOError(
            f"the recipe {config.name} is for verl, which also brings its verifier {config.task.options['verifier']}: "
            "train it with --engine verl, after pip install 'tokenpo[verl]'"
        )


def _here(options: argparse.Namespace, host: Host, config: Any) -> Path | None:
    """Trains with the package's own loop; the directory of the run's records, None if it was interrupted."""
    from ..engines.launch import backend
    from ..runs.loop import resume, train
    from .view import make_view

    model, view = backend(host), make_view(sys.stdout)
    if options.resume:
        outcome = resume(
            model, options.resume, view, config, accept=options.accept_changes if host.changeable else None
        )
    else:
        outcome = train(model, config, view)
    if not outcome.finished:
        print(f"stopped after step {outcome.steps}; go on with: {host.again(outcome.directory)}")
        return None
    print("\n".join([*verdict(outcome.evaluations), *outcome.left]))
    return outcome.directory


def _elsewhere(options: argparse.Namespace, host: Host, config: Any) -> Path:
    """Trains with another framework, in its own processes; the directory of the run's records."""
    from ..engines.launch import train
    from ..recipe.plan import Plan
    from ..runs.checkpoint import final_model
    from ..runs.directory import evaluations

    directory = train(Plan(config), host, options.resume, options.processes)
    if not host.records:
        return directory
    records = directory / host.records
    print("\n".join([*verdict(evaluations(records)), *final_model(directory)]))
    return records


def verdict(evaluations: Sequence[dict[str, float]]) -> list[str]:
    """Held-out accuracy, and reward if rewards are graded, before and after, with 95 % intervals."""
    from ..runs.metrics import with_rewards

    if len(evaluations) < 2:
        return []
    first, *_, last = with_rewards(evaluations)
    lines = []
    for name, key, low, high in (
        ("greedy accuracy", "eval/accuracy", "eval/low", "eval/high"),
        ("greedy reward", "eval/reward", "eval/reward_low", "eval/reward_high"),
        (f"avg@{int(last.get('eval/k', 0))}", "eval/avg", "eval/avg_low", "eval/avg_high"),
        ("sampled reward", "eval/avg_reward", "eval/avg_reward_low", "eval/avg_reward_high"),
    ):
        if last.get(key) is not None and first.get(key) is not None:
            before, after = (f"{e[key]:.3f}{_ends(e[low], e[high])}" for e in (first, last))
            lines.append(f"held-out {name}: {before} before -> {after} after; 95 % intervals")
    return lines


def _ends(low: float | None, high: float | None) -> str:
    """The interval as text; "" if its ends are undefined, which is NaN in memory and null in a file."""
    return "" if low is None or high is None or low != low else f" ({low:.3f} to {high:.3f})"


def launch(options: argparse.Namespace) -> int:
    """Starts the engine, or prints the command, with the recipe named as the user named it."""
    need_engine()
    from ..engines.launch import command, require_processes, train
    from ..recipe.config import load_config
    from ..recipe.files import find_recipe
    from ..recipe.plan import Plan

    host = HOSTS[options.engine]
    require_processes(host, options.processes)
    plan = Plan(load_config(find_recipe(options.recipe), method=options.method, overrides=options.set, out=options.out))
    if not options.print:
        train(plan, host, None, options.processes)
        return 0
    given = [options.recipe]
    given += ["--method", options.method] if options.method else []
    given += [part for text in options.set for part in ("--set", text)]
    given += ["--out", options.out] if options.out else []
    print(shlex.join(command(plan, host, given, options.processes)))
    return 0


def recipes(options: argparse.Namespace) -> int:
    need_engine()
    from ..recipe.config import load_config
    from ..recipe.files import PAPERS, find_recipe, shipped_recipes, to_toml

    if options.recipe:
        print(to_toml(load_config(find_recipe(options.recipe)), explain=True), end="")
        return 0
    shipped = shipped_recipes()
    firsts = {name: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, file in shipped.items()}
    print_list([(name, first) for name, first in firsts.items() if not name.startswith(PAPERS)])
    print("\nset-ups of papers, for verl on a cluster; none of them was run here:")
    print_list([(name, first) for name, first in firsts.items() if name.startswith(PAPERS)])
    return 0


def report(options: argparse.Namespace) -> int:
    need("jinja2")
    from ..evidence.report.page import write_report

    print(write_report(options.directory, options.out, options.beside))
    return 0
