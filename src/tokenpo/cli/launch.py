"""`tokenpo launch`: a recipe trained by TRL or verl, or the command that does it."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from ..recipe.hosts import HOSTS
from .options import RECIPE, add_command, add_flag, add_run, argument, need_engine


def add(commands: Any) -> None:
    parser = add_command(commands, launch, "train a recipe with TRL or verl, or print the command that does")
    argument(parser, "recipe", "RECIPE", RECIPE)
    names = [host.name for host in HOSTS.values() if host.commanded]
    parser.add_argument("--engine", choices=names, required=True, help="engine that trains")
    add_flag(parser, "--print", "print the command instead of starting it, for the scripts of a cluster")
    add_run(parser)


def launch(options: argparse.Namespace) -> int:
    """Starts the engine, or prints the command that names the recipe as the user did."""
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
