"""`tokenpo launch` and `tokenpo train --engine`: recipes trained by TRL or verl, in processes of their own.

Only the adapters know the engines; none is imported here: a recipe is checked, a command is put together and started.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError, Unsupported
from .needs import need_engine

if TYPE_CHECKING:
    from ..recipe.config import Config

ENGINES = ("trl", "verl")
MAIN = "tokenpo.engines.trl.main"
PROCESSES = "processes of the engine trl, one per GPU; default: 1"


def add(commands: Any, recipe: str) -> None:
    """The parser of `tokenpo launch`."""
    made = commands.add_parser("launch", help="train a recipe with TRL or verl, or print the command that does")
    made.add_argument("recipe", metavar="RECIPE", help=recipe)
    made.add_argument("--engine", choices=ENGINES, required=True, help="engine that trains")
    made.add_argument(
        "--print", action="store_true", help="print the command instead of starting it, for the scripts of a cluster"
    )
    made.add_argument("--processes", type=int, default=1, metavar="N", help=PROCESSES)
    made.add_argument("--method", metavar="NAME", help="a method other than the recipe's, with its own defaults")
    made.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting; may be repeated"
    )
    made.add_argument(
        "--out", metavar="DIR", help="the run directory; default: output.dir, or runs/RECIPE-METHOD-seedN"
    )
    made.set_defaults(run=launch)


def launch(options: argparse.Namespace) -> int:
    """The command."""
    require_processes(options.engine, options.processes)
    need_engine()
    from ..recipe.config import load_config
    from ..recipe.shipped import find_recipe

    config = load_config(find_recipe(options.recipe), method=options.method, overrides=options.set, out=options.out)
    if options.print:
        print(shlex.join(_printed(options, config)))
    else:
        train(config, options.engine, None, options.processes)
    return 0


def _printed(options: argparse.Namespace, config: Config) -> list[str]:
    """The command for a script of the user's: it names the recipe as the user did."""
    if options.engine == "verl":
        return _verl_module().command(config)
    _check_trl(config, options.processes)
    given = [options.recipe]
    given += ["--method", options.method] if options.method else []
    given += [part for text in options.set for part in ("--set", text)]
    given += ["--out", options.out] if options.out else []
    return trl_command(given, options.processes, config)


def train(config: Config, engine: str, resume: Path | None, processes: int) -> Path:
    """Trains in processes of its own; the directory that holds the run's records.

    Raises:
        TokenPOError: the engine is missing, or the run failed; it has said why.
    """
    from ..models.directory import check_directory, is_local, locate

    _require(engine)
    model = locate(config.model.path)
    if is_local(model):  # they have loaders of their own
        check_directory(Path(model).expanduser())
    if engine == "verl":
        if resume:
            raise TokenPOError(
                "--resume goes on with a run of this package's own engine or TRL's: for one of verl's give its recipe "
                f"with --set verl.trainer.resume_mode=auto --out {resume}"
            )
        directory, command = _verl_run(config)
        return _run(engine, directory, command)
    _check_trl(config, processes)
    with _directory(config, resume) as directory:
        command = trl_command([str(directory / "config.json"), *(["--resume"] if resume else [])], processes, config)
        return _run(engine, directory, command)


def _run(engine: str, directory: Path, command: Sequence[str]) -> Path:
    print(f"run {directory}: {shlex.join(command)}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code:
        raise TokenPOError(f"the {engine} engine ended with exit code {code}; what it said stands above")
    return directory


def trl_command(arguments: Sequence[str], processes: int, config: Config) -> list[str]:
    """What starts TRL: accelerate's launcher; torch's for several processes on a CPU, which accelerate leaves to MPI.

    Args:
        arguments: of `tokenpo.engines.trl.main`.
    """
    cpu = config.model.device == "cpu"
    if cpu and processes > 1:
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", MAIN]
        return [sys.executable, *start, *arguments]
    start = ["-m", "accelerate.commands.launch", "--num_processes", str(processes), "--num_machines", "1"]
    # Quiet: the program has said what was wrong, and the launcher's traceback would bury it.
    start += ["--mixed_precision", "no", "--dynamo_backend", "no", "--quiet"]
    start += ["--cpu"] if cpu else ["--multi_gpu"] if processes > 1 else []
    return [sys.executable, *start, "-m", MAIN, *arguments]


def require_processes(engine: str, processes: int) -> None:
    """Refuses a number of processes that an engine cannot be started in.

    Raises:
        Unsupported: several, of an engine that this command starts in one.
        TokenPOError: fewer than one.
    """
    if processes < 1:
        raise TokenPOError(f"--processes is {processes}, expected at least 1")
    remedies = {
        "embedded": "leave it out, or add --engine trl",
        "verl": "leave it out, and write trainer.n_gpus_per_node and nnodes into the recipe's section [verl.trainer]",
    }
    if engine in remedies and processes > 1:
        name = "the embedded engine" if engine == "embedded" else "the verl engine"
        raise Unsupported(f"--processes {processes} means nothing to {name}: {remedies[engine]}")


def _check_trl(config: Config, processes: int) -> None:
    """Refuses here what each process of TRL would refuse, before a directory is made."""
    from ..engines.trl.recipe import accepted, schedule

    schedule(config, accepted(config), processes, longest_prompt=0)


@contextlib.contextmanager
def _directory(config: Config, resume: Path | None) -> Iterator[Path]:
    """The run directory, held for this process, with its config.json, which every process reads."""
    from ..base.files import write_whole
    from ..recipe import inputs
    from ..runs.directory import binding, held, never_began, new_directory, resumed_config

    if resume is None:
        directory = new_directory(config)
    else:
        directory = resume
        if directory.is_dir() and never_began(directory):
            raise TokenPOError(
                f"the run in {resume} never began: start it with tokenpo train {directory / 'config.json'} --engine trl"
            )
        config, _ = resumed_config(directory, config, accept=None)
    settings = config.model_dump()
    settings["output"]["dir"] = str(directory)
    with held(directory):
        write_whole(directory / "config.json", json.dumps(settings, indent=2) + "\n")
        if resume is None:
            inputs.write(directory, config, binding(config))
        yield directory


def _verl_run(config: Config) -> tuple[Path, list[str]]:
    """The run directory with the problems in it, and verl's command."""
    from ..runs.directory import new_directory

    verl = _verl_module()
    verl.command(config)  # what verl can't honour is refused before a directory is made
    directory = config.directory() if verl.resumes(config) else new_directory(config)
    config = config.model_copy(update={"output": config.output.model_copy(update={"dir": str(directory)})})
    verl.prepare(config)
    return directory, verl.command(config)


def _verl_module() -> Any:
    try:
        return importlib.import_module("tokenpo.engines.verl.command")
    except ImportError as error:
        raise Unsupported(f"the verl engine cannot be had ({error}): pip install 'tokenpo[verl]'") from error


def _require(engine: str) -> None:
    from importlib.util import find_spec

    if find_spec(engine) is None:
        raise Unsupported(f"--engine {engine} needs {engine}: pip install 'tokenpo[{engine}]'")
