"""The command `tokenpo`. What a command needs is imported when it runs, so that --help answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from . import check, compare, evaluate, explain, launch, report
from .needs import need, need_engine
from .paths import path
from .streams import outliving

EXAMPLES = """examples:
  tokenpo train quickstart                                 a recipe of the package
  tokenpo train quickstart --method hapo --set seed=1      another method, another seed
  tokenpo train quickstart --method mine.py:late           a method of your own (docs/own_method.md)
  tokenpo recipes quickstart                               every setting, and what it means
  tokenpo train my.toml --set train.lr=3e-4 --set method.low=0.1
  tokenpo train --resume runs/quickstart-tepo-seed0        continue after Ctrl-C
  tokenpo compare quickstart --methods grpo,tepo --seeds 10
  tokenpo explain rollouts.jsonl --methods grpo,tepo       what each would do to every token
  tokenpo eval runs/quickstart-tepo-seed0 --task dial_sum --samples-per-prompt 8 --k 1,8
"""
METHOD = "a name that `tokenpo methods` lists, or a builder of your own: file.py:function"
RECIPE = "path of a TOML file, or the name of a recipe in the package"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 when all is well, 2 on a mistake of the user, 130 when interrupted."""
    with outliving():
        return _answer(arguments)


def _answer(arguments: Sequence[str] | None) -> int:
    try:
        options = parser().parse_args(arguments)
        status = options.run(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("tokenpo: interrupted", file=sys.stderr)
        return 130
    except TokenPOError as error:
        # One line, whatever was quoted in it; the stream shows the other control characters.
        print("tokenpo: " + str(error).replace("\r", "\\r").replace("\n", "\\n"), file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tokenpo",
        description="Token-level policy optimisation for reinforcement learning with verifiable rewards.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version")
    top.set_defaults(run=_version_or_help)
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    _add_train(commands)
    evaluate.add(commands)

    commands.add_parser("methods", help="table of the methods: paper, provenance, needs").set_defaults(run=_methods)

    show = commands.add_parser("show", help="the formula of a method, its options and its choices")
    show.add_argument("method", metavar="METHOD", help=f"{METHOD}; METHOD:KEY=VALUE,... with options")
    show.add_argument(
        "--coefficients", action="store_true", help="draw its effective coefficient over ratio and advantage instead"
    )
    show.add_argument(
        "--out", metavar="FILE", type=path, help="the picture, .png or .svg; default: METHOD-coefficients.png"
    )
    show.set_defaults(run=_show)

    check.add(commands)

    recipes = commands.add_parser("recipes", help="list the recipes of the package, or print one with every setting")
    recipes.add_argument("recipe", nargs="?", metavar="RECIPE", help=RECIPE)
    recipes.set_defaults(run=_recipes)

    report.add(commands)
    compare.add(commands, RECIPE)
    explain.add(commands)
    launch.add(commands, RECIPE)
    return top


def _add_train(commands: Any) -> None:
    train = commands.add_parser("train", help="train a model as a recipe says, and write a report")
    train.add_argument("recipe", nargs="?", metavar="RECIPE", help=RECIPE)
    train.add_argument(
        "--method", metavar="NAME", help=f"a method other than the recipe's, with its own defaults: {METHOD}"
    )
    train.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting; may be repeated"
    )
    train.add_argument(
        "--out", metavar="DIR", help="the run directory; default: output.dir, or runs/RECIPE-METHOD-seedN"
    )
    train.add_argument("--resume", metavar="RUN", type=path, help="continue the run in this directory")
    train.add_argument(
        "--engine",
        choices=("embedded", *launch.ENGINES),
        default="embedded",
        help="engine that trains; default: embedded",
    )
    train.add_argument("--processes", type=int, default=1, metavar="N", help=launch.PROCESSES)
    train.add_argument(
        "--accept-changes", action="store_true", help="resume with other settings; they are noted in changes.jsonl"
    )
    train.add_argument("--no-report", action="store_true", help="write no report.html at the end")
    train.set_defaults(run=_train)


def _version_or_help(options: argparse.Namespace) -> int:
    if options.version:
        from importlib.metadata import version

        print(f"tokenpo {version('tokenpo')}")
    else:
        parser().print_help()
    return 0


def _train(options: argparse.Namespace) -> int:
    if options.recipe is None and options.resume is None:
        raise TokenPOError("train needs a recipe (tokenpo train quickstart) or a run to resume (--resume RUN)")
    if options.accept_changes and (options.resume is None or options.engine != "embedded"):
        raise TokenPOError("--accept-changes goes with --resume RUN, of the embedded engine: add that, or leave it out")
    launch.require_processes(options.engine, options.processes)
    need_engine()
    from ..recipe.config import load_config
    from ..recipe.shipped import find_recipe
    from ..runs.directory import require_engine

    if options.resume is not None:
        require_engine(options.resume, options.engine)
    # Without a recipe the settings are those of the run to resume, with what was changed on the command line.
    file = find_recipe(options.recipe) if options.recipe else (options.resume or Path()) / "config.json"
    if options.recipe is None and not file.is_file():
        raise TokenPOError(f"{options.resume} holds no config.json: give the directory of a run, as train printed it")
    config = load_config(file, method=options.method, overrides=options.set, out=options.out)
    # Mistakes in the recipe are found above, before torch and transformers are loaded.
    if options.engine != "embedded":
        return _train_elsewhere(options, config)
    from ..engines.embedded.loop import resume, train
    from ..engines.embedded.view import make_view

    view = make_view(sys.stdout)
    if options.resume:
        outcome = resume(options.resume, view, config, accept=options.accept_changes)
    else:
        outcome = train(config, view)
    if not outcome.finished:
        print(f"stopped after step {outcome.steps}; go on with: tokenpo train --resume {outcome.directory}")
        return 130
    for line in _verdict(outcome.evaluations):
        print(line)
    print(f"model: {outcome.directory / 'model'}")
    if not options.no_report:
        from ..evidence.report import write_report

        print(f"report: {write_report(outcome.directory)}")
    return 0


def _train_elsewhere(options: argparse.Namespace, config: Any) -> int:
    """With a foreign engine, in processes of its own."""
    directory = launch.train(config, options.engine, options.resume, options.processes)
    records = directory / "trl" / "tokenpo" if options.engine == "trl" else directory
    if options.engine == "trl":
        from ..runs.directory import evaluations

        for line in _verdict(evaluations(records)):
            print(line)
        print(f"model: {directory / 'model'}")
    if not options.no_report:
        from ..evidence.report import write_report

        print(f"report: {write_report(records)}")
    return 0


def _verdict(evaluations: Sequence[dict[str, float]]) -> list[str]:
    """Held-out accuracy, and reward where graded, before and after, with 95 % intervals."""
    from ..runs.held_out import with_rewards

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
    """Undefined ends are NaN, and null in a file."""
    return "" if low is None or high is None or low != low else f" ({low:.3f} to {high:.3f})"


def _methods(options: argparse.Namespace) -> int:
    from .. import methods

    rows = [("METHOD", "PAPER", "PROVENANCE", "NEEDS", "TITLE")]
    for name in methods.METHODS:
        source, objective = methods.paper(name), methods.method(name)
        needs = ", ".join(sorted(objective.needs)) or "-"
        rows.append((name, source.reference, source.provenance, needs, source.title))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[4])
    return 0


def _show(options: argparse.Namespace) -> int:
    import inspect

    from .. import methods
    from ..recipe.method_list import parse_entries

    entries = parse_entries(options.method, "show")
    if len(entries) > 1:
        raise TokenPOError(f"show {options.method!r} names {len(entries)} methods: give one at a time")
    entry, objective = entries[0], _built(entries[0])
    if options.coefficients:
        return _coefficients(options, entry.label, objective)
    if options.out:
        raise TokenPOError("show writes a file only with --coefficients: add it, or leave out --out")
    build = inspect.unwrap(methods.builder(entry.method))
    print((inspect.getdoc(inspect.getmodule(build)) or "").strip())
    print(f"\n{entry.method}{_signature(build)}\n\n{inspect.getdoc(build) or ''}\n\n{objective}")
    return 0


def _built(entry: Any) -> Any:
    """The objective of one entry; options are read as a recipe's are."""
    if not entry.options:
        from ..methods import method

        return method(entry.method)
    need("pydantic")
    from ..recipe.objective import build_entry

    return build_entry(entry)


def _coefficients(options: argparse.Namespace, name: str, objective: Any) -> int:
    need("matplotlib", "jinja2")
    from ..evidence.report.coefficients import text, write_coefficients

    picture = write_coefficients(name, objective, options.out or f"{objective.name}-coefficients.png")
    print("\n".join(text(name, objective)))
    print(f"picture: {picture}")
    return 0


def _signature(build: Any) -> str:
    import inspect

    parameters = inspect.signature(build).parameters.values()
    # Without the annotations, whose place is the docstring.
    return "(" + ", ".join(str(p.replace(annotation=p.empty)) for p in parameters) + ")"


def _recipes(options: argparse.Namespace) -> int:
    need_engine()
    from ..recipe.config import load_config
    from ..recipe.shipped import PAPERS, find_recipe, shipped_recipes
    from ..recipe.toml import to_toml

    if options.recipe:
        print(to_toml(load_config(find_recipe(options.recipe)), explain=True), end="")
        return 0
    shipped = shipped_recipes()
    width = max(map(len, shipped)) + 2
    lines = {name: name.ljust(width) + _first_line(file) for name, file in shipped.items()}
    print(*(line for name, line in lines.items() if not name.startswith(PAPERS)), sep="\n")
    print("\nset-ups of papers, for verl on a cluster; none of them was run here:")
    print(*(line for name, line in lines.items() if name.startswith(PAPERS)), sep="\n")
    return 0


def _first_line(recipe: Path) -> str:
    return recipe.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


if __name__ == "__main__":
    sys.exit(main())
