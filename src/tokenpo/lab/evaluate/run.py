"""Samples a model on problems into the directory of an evaluation, which may hold nothing else and can be resumed."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.files import explained, is_fresh, locked, make_directory, numbered, read_text, write_whole
from ...base.jsonl import Lines, byte_lines, cut, finite
from ...base.text import differences
from ...core.head.kept import Cut
from ...core.seeds import keyed_seed
from ...records.log import versions
from ...train.models import LanguageModel, Sampling, require_room
from ...train.models.directory import identity, is_local
from ...train.run.rollout import draw, pose
from ...train.tasks import Task
from ...train.tasks.files import Files
from .summary import Summary, record_of

CONFIG, SAMPLES, RESULTS = "config.json", "samples.jsonl", "results.json"
Config = Mapping[str, Any]


@dataclass(frozen=True)
class SamplingOptions:
    """How to sample: `samples` per prompt, `rows` at once. With the `seed` of a training run the samples are those of
    the run's own evaluation.

    Raises:
        TokenPOError: an invalid number.
    """

    samples: int = 1
    max_new_tokens: int = 512
    temperature: float = 1.0
    seed: int = 0
    rows: int = 64
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        self.sampling()
        if min(self.samples, self.rows) < 1:
            raise TokenPOError(f"--samples-per-prompt {self.samples} --rows {self.rows}: give at least 1 of each")
        if self.temperature == 0 and self.samples > 1:
            raise TokenPOError(
                f"{self.samples} greedy samples of a prompt are all the same: set --samples-per-prompt 1, or a "
                "--temperature above 0"
            )

    def sampling(self) -> Sampling:
        """How each response is sampled."""
        cut = Cut(self.top_p, self.top_k, self.min_p)
        return Sampling(self.max_new_tokens, self.temperature, keyed_seed(self.seed, "evaluation"), cut)

    @property
    def at_once(self) -> int:
        return max(1, self.rows // self.samples)


@dataclass(frozen=True)
class SamplingPlan:
    """The first `count` test problems of a task, a model, and its sampling options."""

    lm: LanguageModel
    task: Task
    count: int
    options: SamplingOptions


def as_chat(task: Files) -> Files:
    """The task with every plain-text prompt as one user message."""
    test = [
        dataclasses.replace(p, prompt=[{"role": "user", "content": p.prompt}]) if isinstance(p.prompt, str) else p
        for p in task.test
    ]
    return dataclasses.replace(task, test=test)


def digest(task: Task, count: int) -> str:
    """Identifies the problems: a hash of prompts, references and all columns that a verifier may read."""
    problems = [(problem.prompt, problem.answer, dict(problem.columns)) for problem in task.problems("test", 0, count)]
    return _hash(json.dumps(problems, default=str).encode())


def model_digest(where: str | Path, lm: LanguageModel) -> str:
    """Identifies the model: the commit on the hub, or a hash of weights, config, tokenizer and template."""
    if not is_local(where):
        return str(getattr(lm.model.config, "_commit_hash", None) or "")
    return identity(Path(where).expanduser())


def describe(plan: SamplingPlan, model: Mapping[str, Any], problems: Mapping[str, Any]) -> dict[str, Any]:
    """The config: everything that the samples depend on, and software versions."""
    sampling = {**dataclasses.asdict(plan.options), "device": str(plan.lm.device)}
    problem_set = {**problems, "count": plan.count, "digest": digest(plan.task, plan.count)}
    problem_set["verifier_source"] = getattr(getattr(plan.task, "verifier", None), "source", "")
    return {"model": dict(model), "problems": problem_set, "sampling": sampling, "versions": versions()}


def describe_file(path: Path, verifier: str | None, extract: str | None, seed: int, source: str) -> dict[str, Any]:
    """The config of estimates from a file of samples; `source` is the verifier's."""
    return {
        "samples": {"file": str(path), "digest": _hash(path.read_bytes())}, "verifier": verifier,
        "verifier_source": source, "extract": extract, "seed": seed, "versions": versions(),
    }  # fmt: skip


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def sample_model(plan: SamplingPlan, directory: Path, config: Config, watch: Callable[[int], None]) -> None:
    """Draws the samples that are missing in the directory; equal plans give equal bytes, interrupted or not.

    A directory with another `config` is rejected. `watch` is called with the number of finished problems.
    """
    options, sampling = plan.options, plan.options.sampling()
    busy = f"{directory} is being written by another evaluation: wait, or give another place with --out"
    # Every prompt is tried before anything is written.
    pose(plan.lm, plan.task, "test", 0, plan.count, lambda ids: require_room(plan.lm, ids, sampling))
    with _writing(directory):
        prepare(directory, config)
        with locked(directory / ".lock", busy):
            start = _cut_to_batches(directory / SAMPLES, plan)
            watch(start)
            with contextlib.closing(Lines(directory / SAMPLES)) as lines:
                for first in range(start, plan.count, options.at_once):
                    count = min(options.at_once, plan.count - first)
                    batch = draw(plan.lm, plan.task, "test", first, count, options.samples, sampling)
                    lengths = batch.mask.sum(1).tolist()
                    for row, score in enumerate(batch.scores):
                        prompt, finished = row // batch.group_size, bool(batch.finished[row])
                        problem, text = batch.problems[prompt], batch.completions[row]
                        lines.write(record_of(batch.start + prompt, problem, text, lengths[row], finished, score))
                    watch(first + count)


def _cut_to_batches(path: Path, plan: SamplingPlan) -> int:
    """Cuts the file back to whole batches, as a logit's last bits may depend on it; returns the problems left."""
    if not path.is_file():
        return 0
    samples, at_once, ends = plan.options.samples, plan.options.at_once, [0]
    for number, line in enumerate(byte_lines(path)):
        if not (line.endswith(b"\n") and _problem(line) == number // samples):
            break
        ends.append(ends[-1] + len(line))
    problems = min(plan.count, (len(ends) - 1) // samples)
    whole = problems if problems == plan.count else problems // at_once * at_once
    cut(path, ends[whole * samples])
    return whole


def _problem(line: bytes) -> Any:
    """The position of a line's problem; None if the line is not a sample."""
    try:
        return json.loads(line)["problem"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def write_results(directory: Path, config: Config, summary: Summary) -> Path:
    """Writes results.json, whole or not at all; NaN as null."""
    with _writing(directory):
        return write_whole(directory / RESULTS, _json(finite({"config": config, **dataclasses.asdict(summary)})))


def prepare(directory: Path, config: Config) -> None:
    """Makes the directory of an evaluation, unless the same evaluation made it already; raises as `check`."""
    if not check(directory, config):
        write_whole(make_directory(directory) / CONFIG, _json(config))


def check(directory: Path, config: Config) -> bool:
    """Whether the directory belongs to this evaluation; False if it is empty or new, TokenPOError if it holds more."""
    if directory.is_file():
        raise TokenPOError(f"{directory} is a file: give a directory with --out")
    changed = _changed(directory, config)
    if changed:
        raise TokenPOError(
            f"{directory} holds results of another evaluation ({'; '.join(changed)}): give another directory with --out"
        )
    if changed is None and directory.exists() and not is_fresh(directory):
        raise TokenPOError(f"{directory} is not empty and holds no evaluation: give another directory with --out")
    return changed is not None


def free_directory(name: str, config: Config, seed: int) -> Path:
    """The directory in which this evaluation was begun, or the next free name."""
    base = Path("runs", f"eval-{name}-seed{seed}")
    names = itertools.chain([base], numbered(base))
    return next(path for path in names if not path.exists() or is_fresh(path) or _changed(path, config) == [])


def _writing(directory: Path) -> AbstractContextManager[None]:
    remedy = "What was sampled is kept: make room, then give the same command again"
    return explained(lambda why: f"the evaluation {directory} cannot be written: {why}. {remedy}")


def _changed(directory: Path, config: Config) -> list[str] | None:
    """Differences from the config in the directory, without versions; None if it has no config."""
    file = directory / CONFIG
    if not file.is_file():
        return None
    try:
        changed = differences(json.loads(read_text(file)), json.loads(_json(config)))
    except (ValueError, AttributeError) as error:
        raise TokenPOError(f"{file} is not the config of an evaluation: give another directory with --out") from error
    return [line for line in changed if not line.startswith("versions.")]


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"
