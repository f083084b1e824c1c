"""Writes a run directory in one format for every engine, and warns if the run learns nothing."""

import functools
import itertools
import json
import logging
import math
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..base.files import aside, write_whole
from ..base.jsonl import Lines, cut, finite, whole_lines, with_step

logger = logging.getLogger(__name__)
LOGS = ("metrics.jsonl", "trace.jsonl")
# Only these are moved aside: data and checkpoints in the directory may belong to the new run.
OURS = (*LOGS, "config.json", "objective.txt", "versions.json", "rollouts", "report.html")
PACKAGES = "tokenpo torch transformers tokenizers safetensors numpy peft math-verify".split()


def versions(*more: str) -> dict[str, Any]:
    """Python, machine, versions of `PACKAGES` and `more`, and the commit of a clone; None if not installed."""
    record: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            record[name] = version(name)
        except PackageNotFoundError:
            record[name] = None
    record["commit"] = commit(Path(__file__).parents[1])
    return record


@functools.cache
def commit(package: Path) -> str | None:
    """The commit of the clone that a package runs from, with " and changes" if files differ; None without one."""

    def git(*words: str) -> str:
        ran = subprocess.run(["git", "-C", package, *words], capture_output=True, text=True, timeout=10, check=True)
        return ran.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / package.name != package.resolve():
            return None
        return git("rev-parse", "HEAD") + (" and changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def describe(path: Path, config: Mapping[str, Any], objective: str, packages: Sequence[str] = ()) -> None:
    """Writes config.json, which marks a run and comes first, objective.txt and versions.json, also of `packages`."""
    write_whole(path / "config.json", json.dumps(config, indent=2, default=str) + "\n")
    write_whole(path / "objective.txt", objective + "\n")
    write_whole(path / "versions.json", json.dumps(versions(*packages), indent=2) + "\n")


class RunLog:
    """Writes metrics and traces; `config`, `objective` and `packages` as in `describe`, `rewarded` as in `Watch`.

    Lines after `step`, from which the run resumes, are cut; a fresh run, of step 0, moves older files aside.
    """

    def __init__(
        self, path: Path, step: int, config: Mapping[str, Any], objective: str, packages: Sequence[str], *,
        rewarded: bool = True,
    ) -> None:  # fmt: skip
        logs = [path / name for name in LOGS if (path / name).exists()]
        for file in logs if step else ():
            cut(file, _size_after(file, step))
        if logs and not step:
            older = aside(path)
            older.mkdir()
            for name in OURS:
                if (path / name).exists():
                    (path / name).rename(older / name)
        path.mkdir(parents=True, exist_ok=True)
        describe(path, finite(config), objective, packages)
        self.path = path
        self.metrics, self.trace = (Lines(path / name) for name in LOGS)
        self._watch = Watch(step, rewarded=rewarded)

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Writes a line of metrics, and warns if it shows that the run learns nothing."""
        self.metrics.write(metrics)
        self.warn(self._watch(metrics))

    def warn(self, texts: Sequence[str] | None = None) -> None:
        """Logs these warnings; None repeats all, at the end of a run."""
        for text in self._watch.said if texts is None else texts:
            logger.warning(f"warning: {text}")


def _size_after(path: Path, step: int) -> int:
    """Bytes up to the last whole line of a step, with damaged lines before it, which the report skips."""
    size, data = 0, path.read_bytes()
    for line in itertools.takewhile(lambda line: line.value["step"] <= step, whole_lines(path, with_step, [])):
        size = data.find(b"\n", line.offset) + 1 or size
    return size


BATCHES = 3  # rollout batches in a row
KL, ENTROPY = 0.5, 0.01  # nats per token: largest KL of a healthy step, smallest entropy of a sampling policy

ALL_ZERO = (
    f"the reward of every response was 0 in the first {BATCHES} batches: look whether the verifier finds their answers "
    "and the limit of new tokens lets them end; else give easier problems or a stronger model"
)
ALL_EQUAL = (
    f"the rewards of every group were equal in {BATCHES} batches in a row, so nothing is learnt: give problems of "
    "middle difficulty, larger groups or a higher temperature"
)
MOVED = f"is more than {KL} nats: lower the learning rate, or hold it with kl_stop"
COLLAPSED = f"is below {ENTROPY} nats: resume from before with a lower learning rate or a higher temperature"
NO_GRADIENT = (
    "the gradient norm is 0 although rewards differ: look whether the weights are frozen, every response is masked, or "
    "the method clips or drops every token"
)


class Watch:
    """Warns once of each sign that a run, resumed after `step`, learns nothing; `said` has all warnings so far.

    `rewarded`: the method learns from rewards, not only from a teacher.
    """

    def __init__(self, step: int = 0, *, rewarded: bool = True) -> None:
        self.said: list[str] = []
        self._fresh, self._rewarded = step == 0, rewarded
        self._zero = self._equal = self._batches = 0
        self._known: set[str] = set()

    def __call__(self, metrics: Mapping[str, Any]) -> list[str]:
        """New warnings after a step with these metrics; absent and NaN metrics are not judged."""
        if not metrics.get("step"):  # the evaluation before the first step
            return []
        signs = {kind: text for kind, text in self._signs(metrics) if kind not in self._known}
        self._known |= signs.keys()
        new = [f"step {metrics['step']:g}: {text}" for text in signs.values()]
        self.said += new
        return new

    def _signs(self, metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        numbers = {name: float(x) for name, x in metrics.items() if isinstance(x, (int, float)) and x == x}
        kl, entropy = numbers.get("kl", numbers.get("kl_moved", math.nan)), numbers.get("entropy", math.nan)
        equal = self._rewarded and numbers.get("zero_advantage_groups") == 1 and "reward" in numbers
        self._batches += 1
        self._equal = self._equal + 1 if equal else 0
        self._zero += equal and numbers.get("reward") == 0
        if self._fresh and self._zero == self._batches == BATCHES:
            yield "equal", ALL_ZERO
        elif self._equal == BATCHES:
            yield "equal", ALL_EQUAL
        if kl > KL:
            yield "kl", f"the KL of a step, {kl:.3g} per token, {MOVED}"
        if entropy < ENTROPY:
            yield "entropy", f"the entropy, {entropy:.2g} per token, {COLLAPSED}"
        # Without groups, or at rate 0 (a critic's warm-up), a gradient of 0 is expected.
        if numbers.get("grad_norm") == 0 and 0 not in (numbers.get("groups"), numbers.get("lr")) and not equal:
            yield "gradient", NO_GRADIENT
