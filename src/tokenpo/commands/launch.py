"""`tokenpo launch` and `tokenpo train --engine`: recipes trained by TRL or verl, in processes of their own.

Only the adapters know the engines; nothing of them is imported here, a command is put together and started.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .needs import need_engine

if TYPE_CHECKING:
    from ..train.config import Config

ENGINES = ("trl", "verl")
MAIN = "tokenpo.adapters.trl.main"


def add(commands: Any, recipe: str) -> None:
    """The parser of `tokenpo launch`."""
    made = commands.add_parser("launch", help="train a recipe with TRL or verl, or print the command that does")
    made.add_argument("recipe", metavar="RECIPE", help=recipe)
    made.add_argument("--engine", choices=ENGINES, required=True)
    made.add_argument("--print", action="store_true", help="only print the command, for a cluster's own scripts")
    made.add_argument("--processes", type=int, metavar="N", help="of TRL, one for each GPU; default 1")
    made.add_argument("--method", metavar="NAME", help="another method than the recipe's, with its own defaults")
    made.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="may be repeated")
    made.add_argument("--out", metavar="DIR", help="the run directory")
    made.set_defaults(run=launch)


def launch(options: argparse.Namespace) -> int:
    """The command."""
    require_processes(options.engine, options.processes)
    need_engine()
    from ..train.config import find_recipe, load_config

    overrides = [*options.set, *([f"output.dir={json.dumps(options.out)}"] if options.out else [])]
    config = load_config(find_recipe(options.recipe), method=options.method, overrides=overrides)
    if options.engine == "verl":
        command = _verl(config)
    else:
        given = [options.recipe]
        given += ["--method", options.method] if options.method else []
        given += [part for text in options.set for part in ("--set", text)]
        given += ["--out", options.out] if options.out else []
        command = trl_command(given, options.processes or 1, config)
    if options.print:
        print(shlex.join(command))
        return 0
    _require(options.engine)
    if options.engine == "verl":
        _verl_module().prepare(config)
    return subprocess.run(command, check=False).returncode


def train(config: Config, engine: str, resume: str | None, processes: int) -> Path:
    """Trains in processes of its own; the directory that holds the run's records.

    Raises:
        TokenPOError: the engine is missing, or the run failed; it has said why.
    """
    from ..errors import TokenPOError

    _require(engine)
    if engine == "verl":
        if resume:
            raise TokenPOError("--resume goes on with a run of this package's own engine or TRL's: use verl's own")
        directory, command = config.directory(), _verl(config)
        _verl_module().prepare(config)
    else:
        directory = _directory(config, resume)
        command = trl_command([str(directory / "config.json"), *(["--resume"] if resume else [])], processes, config)
    print(f"run {directory}: {shlex.join(command)}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code:
        raise TokenPOError(f"the {engine} engine ended with exit code {code}; what it said stands above")
    return directory


def trl_command(arguments: Sequence[str], processes: int, config: Config) -> list[str]:
    """What starts TRL: accelerate's launcher; torch's for several processes on a CPU, which accelerate leaves to MPI.

    Args:
        arguments: of `tokenpo.adapters.trl.main`.
    """
    cpu = config.model.device == "cpu"
    if cpu and processes > 1:
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", MAIN]
        return [sys.executable, *start, *arguments]
    start = ["-m", "accelerate.commands.launch", "--num_processes", str(processes), "--num_machines", "1"]
    start += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    start += ["--cpu"] if cpu else ["--multi_gpu"] if processes > 1 else []
    return [sys.executable, *start, "-m", MAIN, *arguments]


def require_processes(engine: str, processes: int | None) -> None:
    """Raises Unsupported where several processes are asked of an engine that this command starts in one."""
    from ..errors import Unsupported

    remedies = {
        "embedded": "leave it out, or add --engine trl",
        "verl": "leave it out, and write trainer.n_gpus_per_node and nnodes into the recipe's section [verl.trainer]",
    }
    if engine in remedies and processes not in (None, 1):
        name = "the embedded engine" if engine == "embedded" else "the verl engine"
        raise Unsupported(f"--processes {processes} means nothing to {name}: {remedies[engine]}")


def _directory(config: Config, resume: str | None) -> Path:
    """The run directory with its config.json, which every process reads."""
    from ..train.run import new_directory, resumed_config

    if resume is None:
        directory = new_directory(config)
    else:
        directory = Path(resume)
        config, _ = resumed_config(directory, config)
    settings = config.model_dump()
    settings["output"]["dir"] = str(directory)
    (directory / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return directory


def _verl(config: Config) -> list[str]:
    return _verl_module().command(config)


def _verl_module() -> Any:
    from ..errors import Unsupported

    try:
        return importlib.import_module("tokenpo.adapters.verl.command")
    except ImportError as error:
        raise Unsupported(f"the verl engine cannot be had ({error}): pip install 'tokenpo[verl]'") from error


def _require(engine: str) -> None:
    from importlib.util import find_spec

    from ..errors import Unsupported

    if find_spec(engine) is None:
        raise Unsupported(f"--engine {engine} needs {engine}: pip install 'tokenpo[{engine}]'")
