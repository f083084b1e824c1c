"""Check a recipe against an engine; start the engines that train in processes of their own. No engine is imported."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import text
from ..base.errors import TokenPOError, Unsupported
from ..base.files import json_object, write_whole
from ..base.interrupt import ENDING
from ..base.jsonl import whole_lines, with_step
from ..core.objective import Objective
from ..models.directory import ask_hub, check_directory, check_tokens, declared_rows, is_local
from ..recipe.config import Config
from ..recipe.hosts import EMBEDDED, TINKER, TRL, VERL, Host
from ..recipe.objective import accepted_here, other_sections
from ..recipe.plan import Plan
from ..runs.directory import STARTED, held, never_began, new_directory, resumed, write_inputs

if TYPE_CHECKING:
    from ..runs.loop import Backend


def accepted(config: Config, host: Host) -> Objective:
    """The recipe's objective; Unsupported if the engine can't honour the recipe. The engine need not be installed."""
    if host is EMBEDDED:
        return accepted_here(config)
    plan = Plan(config)
    if host is TINKER:
        from .tinker.needs import accepted as require
    elif host is TRL:
        from .trl.recipe import require
    else:
        from .verl.command import command as require
    require(plan)
    return plan.objective


def backend(host: Host) -> type[Backend]:
    """The model that `runs.loop` trains, for an engine without processes of its own; Unsupported if it is missing."""
    require_installed(host)
    if host is TINKER:
        from .tinker.loop import Server

        return Server
    from .embedded.loop import Local

    return Local


def train(plan: Plan, host: Host, resume: Path | None, processes: int) -> Path:
    """Trains in processes of the engine's own; the run directory. A TokenPOError if it fails; it has printed why."""
    require_installed(host)
    _warn(plan.config, host)
    if is_local(plan.model):  # these engines have loaders of their own
        path = Path(plan.model).expanduser()
        check_directory(path)
        check_tokens(path, declared_rows(path))
    else:
        ask_hub(str(plan.model))
    if host is VERL:
        if resume:
            raise TokenPOError(
                "--resume goes on with a run of this package's own engine or TRL's: for one of verl's give its recipe "
                f"with --set verl.trainer.resume_mode=auto --out {resume}"
            )
        return _verl_run(plan)
    return _trl_run(plan, resume, _trl_command(plan, processes))


def command(plan: Plan, host: Host, arguments: Sequence[str], processes: int) -> list[str]:
    """The command that trains the recipe named by `arguments`, for a script; writes verl's data files."""
    _warn(plan.config, host)
    if host is VERL:
        from .verl import command as verl

        words = verl.command(plan)
        verl.prepare(plan.config)
        return words
    return [*_trl_command(plan, processes), *arguments]


def require_processes(host: Host, processes: int) -> None:
    """Raises TokenPOError for fewer than one process, Unsupported for several with an engine of one process."""
    if processes < 1:
        raise TokenPOError(f"--processes is {processes}, expected at least 1")
    if host.one_process and processes > 1:
        raise Unsupported(f"--processes {processes} means nothing to {host.words}: {host.one_process}")


def _warn(config: Config, host: Host) -> None:
    for note in other_sections(config, host):
        print(f"warning: {note}", file=sys.stderr)


def _run(host: Host, directory: Path, words: Sequence[str]) -> Path:
    print(f"run {directory}: {shlex.join(words)}", flush=True)
    with _ending_all():
        code = subprocess.run(words, check=False).returncode
    if code:
        raise TokenPOError(f"the {host.name} engine ended with exit code {code}; its messages are above")
    return directory


@contextlib.contextmanager
def _ending_all() -> Iterator[None]:
    """Context manager: SIGTERM and SIGINT also end, with their children, the processes that were started in it."""
    import psutil  # accelerate's, which TRL and verl need

    this, told = psutil.Process(), set[psutil.Process]()
    others = set(this.children(recursive=True))

    def end(number: int, frame: object) -> None:
        for process in set(this.children(recursive=True)) - others:
            told.add(process)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        if number == signal.SIGINT or not told:
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    caught = [number for number in ENDING if main and signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in caught}
    try:
        yield
    finally:
        for process in psutil.wait_procs(told, timeout=10)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _beginning(directory: Path, host: Host, fresh: bool) -> Iterator[None]:
    """Context manager: deletes a fresh run's directory if it fails before its first step, to allow the same command."""
    try:
        yield
    except TokenPOError:
        if not fresh:
            raise
        log = directory / host.records / "metrics.jsonl"
        trained = any(line.value["step"] > 0 for line in (whole_lines(log, with_step, []) if log.is_file() else ()))
        if not (trained or any(directory.rglob("checkpoint*/*"))):
            shutil.rmtree(directory)
        raise


def _trl_command(plan: Plan, processes: int) -> list[str]:
    """accelerate's launcher; torch's for several processes on a CPU, where accelerate would need MPI.

    Raises:
        Unsupported: TRL cannot honour the recipe; every process would refuse it.
    """
    from .trl.recipe import require, schedule

    require(plan)
    schedule(plan, processes, longest_prompt=0)
    cpu = plan.config.model.device == "cpu"
    if cpu and processes > 1:
        start = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    else:
        start = ["accelerate.commands.launch", "--num_processes", str(processes), "--num_machines", "1"]
        # Quiet, because the launcher's traceback would hide the program's own message.
        start += ["--mixed_precision", "no", "--dynamo_backend", "no", "--quiet"]
        start += ["--cpu"] if cpu else ["--multi_gpu"] if processes > 1 else []
    return [sys.executable, "-m", *start, "-m", "tokenpo.engines.trl.main"]


def _trl_run(plan: Plan, resume: Path | None, start: list[str]) -> Path:
    """Trains in a locked run directory, with the config.json that every process reads."""
    directory = resume or new_directory(plan.config)
    if resume:
        if directory.is_dir() and never_began(directory):
            raise TokenPOError(
                f"the run in {resume} never began: start it with tokenpo train {directory / 'config.json'} --engine trl"
            )
        plan = resumed(directory, plan.config, accept=None)[0]
    with held(directory), _beginning(directory, TRL, fresh=resume is None):
        write_whole(directory / "config.json", json.dumps(plan.at(directory).config.model_dump(), indent=2) + "\n")
        if resume is None:
            write_inputs(directory, plan)
        return _run(TRL, directory, [*start, str(directory / "config.json"), *(["--resume"] if resume else [])])


def _verl_run(plan: Plan) -> Path:
    from .verl import command as verl

    verl.command(plan)  # refuses before a directory is made
    goes_on = verl.resumes(plan.config)
    directory = plan.config.directory() if goes_on else new_directory(plan.config)
    plan, fresh = plan.at(directory), not (goes_on and directory.exists())
    with _beginning(directory, VERL, fresh):
        if goes_on:  # `compare` reads it before it starts the run again
            directory.mkdir(parents=True, exist_ok=True)
            settings, known = plan.config.model_dump(mode="json"), json_object(directory / STARTED)
            if known and (changed := text.differences(known, settings)):
                difference = f"{directory / STARTED} says otherwise ({'; '.join(changed)}) and is written anew"
                print(f"warning: {difference}: the run goes on with the settings of this command", file=sys.stderr)
            write_whole(directory / STARTED, json.dumps(settings, indent=2) + "\n")
            write_inputs(directory, plan)
        verl.prepare(plan.config)
        return _run(VERL, directory, verl.command(plan))


def require_installed(host: Host) -> None:
    """Raises Unsupported with a remedy if the engine's package is missing."""
    if host.package and importlib.util.find_spec(host.package) is None:
        raise Unsupported(f"--engine {host.name} needs {host.package}: pip install 'tokenpo[{host.package}]'")
