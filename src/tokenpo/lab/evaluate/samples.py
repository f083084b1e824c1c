"""Samples on disk: one JSON object per line, written by an evaluation or by any other program (docs/evaluation.md)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import MissingInput, TokenPOError, nearest
from ...base.jsonl import whole_lines
from ...train.tasks.files import require_reference
from ...train.tasks.types import Problem, Score
from ...train.tasks.verify import Verifier, checked, normalised

_MOST = 3.4028234663852886e38  # float32, as in training


class Vote(NamedTuple):
    """One sample as the estimators see it: its answer (None without one) and its verdict."""

    answer: str | None
    correct: bool


@dataclass(frozen=True)
class Sample:
    """One line; `problem` is equal for all samples of one prompt, `name` is the file's name of the problem."""

    problem: str
    name: Any
    vote: Vote
    note: str = ""
    tokens: int | None = None
    finished: bool | None = None
    reward: float | None = None


def read_samples(path: Path, verifier: Verifier | None = None) -> tuple[list[Sample], list[str]]:
    """The samples of a file, and notes on lines that were left out; a verifier judges every completion again.

    Raises:
        TokenPOError: no such file, no whole line, a value of the wrong kind, a line that lacks a column.
    """
    if not path.is_file():
        raise TokenPOError(f"{path}: there is no such file: give samples as JSON lines (docs/evaluation.md)")

    def whole_object(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__}, not an object")
        return value

    notes: list[str] = []
    records = [(f"{path} line {line.number}", line.value) for line in whole_lines(path, whole_object, notes)]
    if not records:
        raise TokenPOError(f"{path} holds no samples ({notes[0].rstrip('.') if notes else 'the file is empty'})")
    for where, record in records:
        if {"step", "position"} <= record.keys() and record.get("answer") is not None:
            raise TokenPOError(
                f"{where}: a training run wrote it, and its 'answer' is the right one, not the sample's: evaluate the "
                "run (tokenpo eval RUN), or rename the column 'reference'"
            )
    if verifier is not None:
        records = _judged(records, verifier)
        if not verifier.reads_answers and any(record.get("answer") is not None for _, record in records):
            notes.append(f"The verifier reads no answers: maj@k counts those of {path.name}.")
    return [_sample(where, record) for where, record in records], notes


def record_of(position: int, problem: Problem, completion: str, tokens: int, finished: bool, score: Score) -> dict:
    reference = json.loads(json.dumps(problem.answer, default=str))  # parquet has more types than JSON
    return {
        "problem": position, "prompt": problem.prompt, "completion": completion, "answer": score.answer,
        "reference": reference, "correct": score.correct, "reward": score.reward, "note": score.note,
        "tokens": tokens, "finished": finished,
    }  # fmt: skip


def _sample(where: str, record: Mapping[str, Any]) -> Sample:
    correct = _column(where, record, "correct", "whether the sample is right; or name a --verifier that judges it")
    if correct not in (0, 1) or not isinstance(correct, (bool, int, float)):
        raise TokenPOError(f"{where}: 'correct' is {correct!r:.80}: give true or false")
    answer, tokens, reward = (record.get(name) for name in ("answer", "tokens", "reward"))
    if not isinstance(answer, (str, int, float, type(None))):
        raise TokenPOError(f"{where}: 'answer' is a {type(answer).__name__}: give text, a number or null")
    # Recorded rollouts have the tokens themselves in this field.
    for name, value in (("tokens", tokens), ("reward", reward)):
        if isinstance(value, (int, float)) and not abs(value) < _MOST:
            raise TokenPOError(f"{where}: '{name}' is {value!r:.40}: give a finite number, or null")
    tokens = tokens if isinstance(tokens, (int, float)) and not isinstance(tokens, bool) else None
    reward = reward if isinstance(reward, (int, float)) else None
    # null is no name: otherwise all lines with null would be one prompt.
    filled = {name: value for name, value in record.items() if value is not None}
    key = "problem" if "problem" in filled else "prompt"
    name = _column(where, filled, key, "which samples belong together; or name them by 'problem'")
    finished = record.get("finished")
    return Sample(
        problem=f"{key}={json.dumps(name, sort_keys=True)}",
        name=name,
        vote=Vote(None if answer is None else normalised(str(answer)), bool(correct)),
        note=str(record.get("note") or ""),
        tokens=None if tokens is None else int(tokens),
        finished=finished if isinstance(finished, bool) else None,
        reward=None if reward is None else float(reward),
    )


def _judged(records: Sequence[tuple[str, dict[str, Any]]], verifier: Verifier) -> list[tuple[str, dict[str, Any]]]:
    problems, texts = [], []
    for where, record in records:
        completion = _column(where, record, "completion", "what the verifier reads")
        if not isinstance(completion, str):
            raise TokenPOError(f"{where}: 'completion' is a {type(completion).__name__}: give text")
        reference = record.get("reference")
        if verifier.needs_answer:
            reference = _column(where, record, "reference", "what the verifier compares with")
            require_reference(where, "reference", reference)
        problems.append(Problem(record.get("prompt", ""), reference, record, where))
        texts.append(completion)
    scores = verifier(checked(verifier, problems), texts, [[] for _ in texts])
    # A verifier that reads no answers keeps the answer of the file.
    reads = verifier.reads_answers
    judged = []
    for (where, record), score in zip(records, scores, strict=True):
        verdict = {"correct": score.correct, "reward": score.reward, "note": score.note}
        judged.append((where, record | verdict | ({"answer": score.answer} if reads else {})))
    return judged


def _column(where: str, record: Mapping[str, Any], name: str, meaning: str) -> Any:
    if name not in record:
        columns = ", ".join(record) or "none"
        raise MissingInput(
            f"{where}: no column {name!r} (columns: {columns}; {nearest(name, record)}): it says {meaning}"
        )
    return record[name]
