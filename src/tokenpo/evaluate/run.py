"""Samples of a model on problems, in a directory that an interrupted evaluation goes on from.

config.json     what the samples depend on: model, problems, sampling, versions; written first
samples.jsonl   every sample, written as they come
results.json    the config again, and the numbers
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TokenPOError
from ..jsonl import Lines, cut, finite
from ..lm import LanguageModel, Sampling
from ..lm.directory import is_local
from ..responses import Draw, draw
from ..sampling.seeds import keyed_seed
from ..tasks import Task
from ..tasks.files import Files
from ..versions import versions
from ..wording import differences
from .samples import record_of
from .summary import Summary

CONFIG, SAMPLES, RESULTS = "config.json", "samples.jsonl", "results.json"
_EDGE = 2**20  # bytes of each end of a weight file that identify it


@dataclass(frozen=True)
class Plan:
    """What is sampled.

    Args:
        count: the first so many test problems of the task.
        samples: of each.
        temperature: 0 is greedy.
        seed: the same as in `evaluate` of a training run with this seed, so the same samples.
        rows: responses sampled at once.
    """

    lm: LanguageModel
    task: Task
    count: int
    samples: int
    max_new_tokens: int
    temperature: float
    seed: int
    rows: int

    def __post_init__(self) -> None:
        for name in ("count", "samples", "rows"):
            if getattr(self, name) < 1:
                option = {"count": "--problems", "samples": "--samples-per-prompt", "rows": "--rows"}[name]
                raise TokenPOError(f"{option} is {getattr(self, name)}, expected at least 1")
        if self.temperature == 0 and self.samples > 1:
            raise TokenPOError(
                f"{self.samples} greedy samples of a prompt are all the same: set --samples-per-prompt 1, or a "
                "--temperature above 0"
            )

    @property
    def at_once(self) -> int:
        """Problems in one batch."""
        return max(1, self.rows // self.samples)


def as_chat(task: Files) -> Files:
    """The problems with every prompt of plain text as one user message."""
    test = [
        dataclasses.replace(p, prompt=[{"role": "user", "content": p.prompt}]) if isinstance(p.prompt, str) else p
        for p in task.test
    ]
    return dataclasses.replace(task, test=test)


def digest(task: Task, count: int) -> str:
    """Tells the problems apart from others: a hash of their prompts and references."""
    asked = [(problem.prompt, problem.answer) for problem in task.problems("test", 0, count)]
    return hashlib.blake2b(json.dumps(asked, default=str).encode(), digest_size=8).hexdigest()


def weights(where: str | Path, lm: LanguageModel) -> str:
    """Tells the weights apart from others: the commit on the hub, or a hash of both ends of each weight file."""
    if not is_local(where):
        return str(getattr(lm.model.config, "_commit_hash", None) or "")
    whole = hashlib.blake2b(digest_size=8)
    for file in sorted(Path(where).expanduser().glob("*.safetensors")):
        size = file.stat().st_size
        with file.open("rb") as stream:
            whole.update(f"{file.name} {size}".encode() + stream.read(_EDGE))
            stream.seek(max(0, size - _EDGE))
            whole.update(stream.read())
    return whole.hexdigest()


def sample_model(plan: Plan, directory: Path, config: Mapping[str, Any], watch: Callable[[int], None]) -> None:
    """Draws what is missing in the directory; the same plan, the same bytes, interrupted or not.

    Args:
        config: all that the samples depend on; a directory with another one is refused.
        watch: called with the number of problems that are done.

    Raises:
        TokenPOError: the directory holds something else.
    """
    prepare(directory, config)
    start = _kept(directory / SAMPLES, plan)
    watch(start)
    lines = Lines(directory / SAMPLES)
    try:
        for first in range(start, plan.count, plan.at_once):
            count = min(plan.at_once, plan.count - first)
            # The seed of an evaluation while training, so that both draw the same samples.
            sampling = Sampling(plan.max_new_tokens, plan.temperature, keyed_seed(plan.seed, "evaluation"))
            for record in _records(draw(plan.lm, plan.task, "test", first, count, plan.samples, sampling)):
                lines.write(record)
            watch(first + count)
    finally:
        lines.close()


def write_results(directory: Path, config: Mapping[str, Any], summary: Summary) -> Path:
    """Writes results.json; NaN as null."""
    path = directory / RESULTS
    text = json.dumps(finite({"config": config, **summary.as_json()}), indent=1, ensure_ascii=False, default=str)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def describe(plan: Plan, model: Mapping[str, Any], problems: Mapping[str, Any]) -> dict[str, Any]:
    """The config: all that the samples depend on, and the software."""
    sampling = {
        "samples_per_prompt": plan.samples,
        "temperature": plan.temperature,
        "max_new_tokens": plan.max_new_tokens,
        "seed": plan.seed,
        "rows": plan.rows,
        "device": str(plan.lm.device),
    }
    asked = {**problems, "count": plan.count, "digest": digest(plan.task, plan.count)}
    return {"model": dict(model), "problems": asked, "sampling": sampling, "versions": versions()}


def describe_file(path: Path, verifier: str | None, extract: str | None, seed: int) -> dict[str, Any]:
    """The config of estimates from samples that were there."""
    told = {"file": str(path), "digest": hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()}
    return {"samples": told, "verifier": verifier, "extract": extract, "seed": seed, "versions": versions()}


def prepare(directory: Path, config: Mapping[str, Any]) -> None:
    """Makes the directory of an evaluation, or finds it made by the same one.

    Raises:
        TokenPOError: it holds anything else.
    """
    if directory.is_file():
        raise TokenPOError(f"{directory} is a file: give a directory with --out")
    changed = _changed(directory, config)
    if changed:
        raise TokenPOError(
            f"{directory} holds results of another evaluation ({'; '.join(changed)}): give another directory with --out"
        )
    if changed is None:
        if directory.exists() and any(directory.iterdir()):
            raise TokenPOError(f"{directory} is not empty and holds no evaluation: give another directory with --out")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / CONFIG).write_text(json.dumps(config, indent=1, default=str) + "\n", encoding="utf-8")


def free_directory(name: str, config: Mapping[str, Any], seed: int) -> Path:
    """The directory that this evaluation began in, or the next free name."""
    base = Path("runs", f"eval-{name}-seed{seed}")
    path, number = base, 2
    while path.exists() and _changed(path, config) != []:
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path


def _changed(directory: Path, config: Mapping[str, Any]) -> list[str] | None:
    """What differs from the evaluation in the directory, but for versions; None where there is none."""
    file = directory / CONFIG
    if not file.is_file():
        return None
    try:
        changed = differences(json.loads(file.read_text(encoding="utf-8")), json.loads(json.dumps(config, default=str)))
    except (ValueError, AttributeError) as error:
        raise TokenPOError(f"{file} is not the config of an evaluation: give another directory with --out") from error
    return [line for line in changed if not line.startswith("versions.")]


def _kept(path: Path, plan: Plan) -> int:
    """Cuts the file back to whole batches; the number of problems in them.

    A batch is sampled again as it was: in another one the last bits of a logit may differ.
    """
    if not path.is_file():
        return 0
    ends = [0]
    with path.open("rb") as file:
        for line in file:
            if not (line.endswith(b"\n") and _is_json(line)):
                break
            ends.append(ends[-1] + len(line))
    problems = min(plan.count, (len(ends) - 1) // plan.samples)
    kept = problems if problems == plan.count else problems // plan.at_once * plan.at_once
    cut(path, ends[kept * plan.samples])
    return kept


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _records(piece: Draw) -> Iterator[dict[str, Any]]:
    lengths = piece.mask.sum(1).tolist()
    for row, score in enumerate(piece.scores):
        place = row // piece.group_size
        problem, completion = piece.problems[place], piece.completions[row]
        yield record_of(piece.start + place, problem, completion, lengths[row], bool(piece.finished[row]), score)
