"""Live trackers: trackio and wandb, behind one option (output.track).

They get the lines of metrics.jsonl, which is the record. So a tracker that fails is reported once and dropped while the
run goes on. A resumed run continues the same tracker run and first sends the missing lines.
"""

import json
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...base.errors import Unsupported
from ...base.files import json_object, write_whole
from ...base.jsonl import whole_lines, with_step
from ..recipe.config import Config

# One open run of one tracker: functions that send a step and its values by name, close the run, and add a file.
Tracker = tuple[Callable[[int, Mapping[str, float]], object], Callable[[], object], Callable[..., object]]


def require_trackers(names: Sequence[str]) -> None:
    """Raises Unsupported, with the install command, if a tracker is not installed."""
    for name in names:
        spec = find_spec(name)
        # A folder of that name in the working directory (wandb makes one) is a namespace package without origin.
        if spec is None or spec.origin is None:
            raise Unsupported(f"output.track names {name}, which is not installed: pip install 'tokenpo[{name}]'")


def _trackio(directory: Path, run: str, config: Config) -> Tracker:
    """Trackio's local project, or the place that its environment variables name."""
    import trackio  # pyright: ignore[reportMissingImports]

    name = f"{directory.name}-{run}"  # trackio identifies a run by its name only
    settings = config.model_dump(mode="json")
    project = config.output.project or "tokenpo"
    tracked = trackio.init(project=project, name=name, config=settings, resume="allow", embed=False)
    return lambda step, values: tracked.log(dict(values), step=step), tracked.finish, tracked.log_artifact


def _wandb(directory: Path, run: str, config: Config) -> Tracker:
    """Weights & Biases; WANDB_MODE=offline keeps the run in RUN/wandb until `wandb sync`."""
    import wandb  # pyright: ignore[reportMissingImports]

    project = config.output.project or os.environ.get("WANDB_PROJECT") or "tokenpo"
    tracked = wandb.init(
        project=project, name=directory.name, id=run, resume="allow", dir=str(directory),
        config=config.model_dump(mode="json"),
        settings=wandb.Settings(console="off"),  # else it captures the terminal
    )  # fmt: skip
    # Without commit, wandb shows a step only after the next one.
    return lambda step, values: tracked.log(dict(values), step=step, commit=True), tracked.finish, tracked.log_artifact


# By name, which is also that of the extra that installs it.
TRACKERS = {"trackio": _trackio, "wandb": _wandb}


class Trackers:
    """The trackers of one run.

    RUN/trackers.json has the run's id in the trackers, and the last step sent to each.

    Args:
        config: the trackers of output.track are opened, and get the lines of metrics.jsonl that they lack.
        say: reports a tracker that failed.

    Raises:
        Unsupported: a tracker cannot begin.
    """

    def __init__(self, directory: Path, config: Config, say: Callable[[str], None]) -> None:
        self._file, self._say = directory / "trackers.json", say
        known = json_object(self._file)
        self.run: str = known.get("run") or uuid.uuid4().hex[:12]
        self._sent: dict[str, int] = known.get("sent", {})
        self._open: dict[str, Tracker] = {}
        for name in config.output.track:
            try:
                self._open[name] = TRACKERS[name](directory, self.run, config)
            except Exception as error:
                self.close()
                offline = ", set WANDB_MODE=offline" if name == "wandb" else ""
                raise Unsupported(f"{name} could not begin ({_words(error)}): mend that{offline}") from error
        if self._open:
            metrics = directory / "metrics.jsonl"
            for line in whole_lines(metrics, with_step, []) if metrics.exists() else ():
                self.send(line.value)
            self._save()

    def send(self, metrics: Mapping[str, Any]) -> None:
        """Sends a line of metrics.jsonl to every tracker that lacks its step; undefined values are left out."""
        step = int(metrics["step"])
        values = {
            name: float(value)
            for name, value in metrics.items()
            if name != "step" and value is not None and math.isfinite(value)
        }
        waiting = [name for name in self._open if self._sent.get(name, -1) < step]
        for name in waiting:
            try:
                self._open[name][0](step, values)
                self._sent[name] = step
            except Exception as error:
                # Not closed, because a tracker that cannot send may hang when it is closed.
                del self._open[name]
                self._say(
                    f"warning: {name} failed at step {step} ({_words(error)}) and is off for the rest of this run; "
                    "metrics.jsonl has everything, and a resumed run sends what is missing"
                )
        if waiting:
            self._save()

    def close(self) -> None:
        for name, (_, close, _) in self._open.items():
            try:
                close()
            except Exception as error:
                self._say(f"warning: {name} failed as it was closed ({_words(error)}); metrics.jsonl has everything")
        self._open = {}

    def _save(self) -> None:
        write_whole(self._file, json.dumps({"run": self.run, "sent": self._sent}) + "\n")


def send_report(directory: Path, config: Config, page: Path, say: Callable[[str], None]) -> None:
    """Adds the report of a finished run to its wandb and trackio runs, as an artifact; `say` gets what failed."""
    run = json_object(directory / "trackers.json").get("run", "")
    for name in config.output.track:
        try:
            _, close, keep = TRACKERS[name](directory, run, config)
            keep(str(page), name=f"report-{run}", type="report")
            close()
        except Exception as error:
            say(f"warning: {name} did not take the report ({_words(error)}); it is {page}")


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
