"""Problems from JSONL or parquet files, with the columns that users of TRL or verl have."""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from ...base.errors import MissingInput, TokenPOError, nearest, require_package
from ...base.files import expanded
from ...base.jsonl import byte_lines
from ...core.ranges import inside
from .types import Problem, Score, Split, require_held_out
from .verify import Verifier, VerifierOptions, checked, make_verifier

Row = tuple[str, dict[str, Any]]  # ("train.jsonl line 3", columns)


def read_rows(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file; raises TokenPOError for other suffixes, broken files and empty files."""
    if path.suffix not in READERS:
        hint = " (one JSON object a line is .jsonl)" if path.suffix == ".json" else ""
        raise TokenPOError(f"{path}: can't read files called *{path.suffix}{hint}; known: {', '.join(READERS)}")
    rows = list(READERS[path.suffix](path))
    if not rows:
        raise TokenPOError(f"{path}: the file is empty, it needs at least one row")
    return rows


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(byte_lines(path), start=1):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
            said = f"a {type(row).__name__}"
        except (ValueError, RecursionError) as error:
            row, said = None, str(error)
        if not isinstance(row, dict):
            raise TokenPOError(f"{path} line {number}: not a JSON object in UTF-8 ({said}): write one a line")
        yield f"{path} line {number}", row


def _parquet(path: Path) -> Iterator[Row]:
    require_package(f"{path}: reading parquet", "pyarrow", "tasks")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
            rows = [_decoded(row, pyarrow.struct(table.schema)) for row in table.to_pylist()]
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        raise TokenPOError(f"{path}: not a readable parquet file ({error}): write it again") from error
    for number, row in enumerate(rows):
        yield f"{path} row {number}", row


def _decoded(value: Any, kind: Any) -> Any:
    """The value of an Arrow type; of Arrow's JSON, in which `datasets` keeps rows with unequal keys, what it says."""
    if value is None or "arrow.json" not in str(kind):
        return value
    if getattr(kind, "extension_name", "") == "arrow.json":
        return json.loads(value)
    if isinstance(value, dict):
        return {name: _decoded(item, kind.field(name).type) for name, item in value.items()}
    return [_decoded(item, kind.value_type) for item in value] if isinstance(value, list) else value


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = MappingProxyType({".jsonl": _jsonl, ".parquet": _parquet})

_NAME = re.compile(r"\{([A-Za-z_]\w*)\}")  # in a template
_ANSWER_KEYS = ("answer", "solution", "reward_model")  # reward_model is verl's, and holds ground_truth


@dataclass(frozen=True)
class Layout:
    """The columns of prompt and reference, and the template of the prompt; `files` documents its options."""

    prompt_key: str  # "" if the template names all columns it needs
    answer_key: str
    needs_answer: bool  # reject a row without a reference
    gives_away: bool = False  # reject a template that names the column with the reference
    chat: bool = False
    system: str = ""
    template: str = "{question}"  # around plain text: {question} is the prompt, {NAME} the column of that name
    options: tuple[str, str] = ("prompt_key", "answer_key")  # their names in error messages

    def problems(self, rows: list[Row]) -> list[Problem]:
        """The rows as problems; the columns of the first row decide which column holds the answer.

        Raises:
            MissingInput: a row lacks a column.
            TokenPOError: a row holds no valid prompt or reference, or the template shows the reference.
        """
        answer_key = self.answer_key or next((key for key in _ANSWER_KEYS if key in rows[0][1]), "")
        answer_key = answer_key or ("answer" if self.needs_answer else "")
        shown = {name for name in _NAME.findall(self.template) if name != "question" or not self.prompt_key}
        if self.gives_away and answer_key in shown:
            remedy = f"leave it out, or write {{ {answer_key} }} with blanks, which stays as it is"
            raise TokenPOError(f"the prompt names {{{answer_key}}}, the column with the reference answer: {remedy}")
        wanted = {self.prompt_key: self.options[0], answer_key: self.options[1], **dict.fromkeys(shown, "the template")}
        for where, row in rows:
            if lacks := next((name for name in wanted if name and name not in row), ""):
                hint = nearest(lacks, row, "columns")
                raise MissingInput(f"{where}: no column {lacks!r} ({hint}): name yours with {wanted[lacks]}")
        return [self._problem(where, row, answer_key) for where, row in rows]

    def _problem(self, where: str, row: dict[str, Any], answer_key: str) -> Problem:
        prompt, answer = self._prompt(row), row.get(answer_key)
        if fault := self._fault(prompt):
            raise TokenPOError(f"{where}: {self.prompt_key!r} {fault}")
        if answer_key == "reward_model":
            answer_key = "reward_model.ground_truth"
            answer = answer.get("ground_truth") if isinstance(answer, dict) else None
        if self.needs_answer:
            require_reference(where, answer_key, answer)
        if self.system and prompt[0]["role"] != "system":
            prompt = [{"role": "system", "content": self.system}, *prompt]
        return Problem(prompt, answer, row, where)

    def _prompt(self, row: Mapping[str, Any]) -> Any:
        """The prompt, with text in the template: in one pass, so that braces in the data are not filled."""
        prompt = row[self.prompt_key] if self.prompt_key else ""
        if not isinstance(prompt, str) or (self.prompt_key and not prompt):
            return prompt
        values = {**row, "question": prompt} if self.prompt_key else row
        prompt = _NAME.sub(lambda name: str(values[name[1]]), self.template)
        return [{"role": "user", "content": prompt}] if self.chat else prompt

    def _fault(self, prompt: Any) -> str:
        """The mistake in a prompt and its remedy; "" for none."""
        messages = [{"role": "user", "content": prompt}] if prompt and isinstance(prompt, str) else prompt
        if not messages or not isinstance(messages, list):
            return f"is {prompt!r:.80}: give text, or a list of chat messages"
        if self.system and messages is not prompt:
            return "is plain text, which has no system message: set chat = true, or leave it out"
        for message in messages:
            texts = [message.get("role"), message.get("content")] if isinstance(message, dict) else [None]
            if not all(isinstance(text, str) for text in texts):
                return f'holds the message {message!r:.80}: give {{"role": ..., "content": ...}} with text in both'
        return ""


def require_reference(where: str, key: str, value: Any) -> None:
    """Raises TokenPOError for what no answer can equal: null, a dict, true, blank text, NaN, an infinity."""
    references = value if isinstance(value, list) and value else [value]
    if not all(map(_is_reference, references)):
        raise TokenPOError(f"{where}: {key!r} is {value!r:.80}: give text, a number, or a list of these")


def _is_reference(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def files(
    seed: int, *, path: str, test_path: str = "", holdout: Annotated[float, inside(0, 1)] | None = None,
    verifier: str = "exact", extract: str = "", prompt_key: str = "prompt", answer_key: str = "", chat: bool = False,
    system: str = "",
    correct_at: float = 1.0, verifier_seconds: float = 5.0, verifier_workers: int = 0, reward_seconds: float = 300.0,
    reward_errors: str = "stop",
) -> Files:  # fmt: skip
    """A data set on disk.

    Args:
        seed: of the order; the rows are shuffled again in every epoch. The test split doesn't depend on it.
        path: .jsonl or .parquet with the train rows.
        test_path: .jsonl or .parquet with the test rows; without it a share of the train file's prompts is held out.
        holdout: that share, between 0 and 1; None: 0.1. Rows of one prompt stay together.
        verifier: "exact" (text), "math" (value, exactly: 0.50 is 1/2, but 0.333333 is not 1/3), "countdown",
            or your own reward function: "package.module:function", "file.py:function". A file finds
            modules of its own folder while it is loaded; for later imports, put that folder on PYTHONPATH.
        extract: how to find the answer in a completion (a name of `EXTRACTORS`); "" is the verifier's default.
        prompt_key: the column with the prompt, text or chat messages.
        answer_key: the column with the reference; "" is the first that exists of answer, solution, verl's
            reward_model.ground_truth.
        chat: make one user message of a prompt that is plain text.
        system: system message before a chat that has none; "" adds none, and the chat template may have its own.
        correct_at: least reward that counts as correct, for your own reward function.
        verifier_seconds: wall-clock limit per answer for the verifier "math".
        verifier_workers: its processes; 0 is one per core, four at most.
        reward_seconds: wall-clock limit per call of your own reward function, which then runs in a process of its
            own; 0 calls it in this one, without a limit.
        reward_errors: for a call that raises, hangs, dies or returns no finite number: "stop" ends the run, "zero"
            gives reward 0 and a note that is counted.

    Raises:
        TokenPOError: a file or a row that can't be used; the message names it and the remedy.
    """
    if test_path and holdout is not None:
        raise TokenPOError("task 'files': give test_path or holdout, not both")
    options = VerifierOptions(extract, correct_at, verifier_seconds, verifier_workers, reward_seconds, reward_errors)
    scorer = make_verifier(verifier, options, "files")
    layout = Layout(prompt_key, answer_key, scorer.needs_answer, chat=chat, system=system)
    train = checked(scorer, layout.problems(read_rows(expanded(path))))
    if test_path:
        test = checked(scorer, layout.problems(read_rows(expanded(test_path))))
        keys = set(map(_key, train))
        if common := sum(_key(problem) in keys for problem in test):
            overlap = f"{common} of the {len(test)} prompts of {test_path} are also in {path}"
            warnings.warn(f"{overlap}: accuracy on them is not a test", stacklevel=2)
    else:
        train, test = _split(train, 0.1 if holdout is None else holdout, path)
    return Files(seed, train, test, scorer)


@dataclass(frozen=True, eq=False)
class Files:
    """Rows in memory: the train split shuffled by (seed, epoch), the test split in a fixed order."""

    seed: int
    train: list[Problem]
    test: list[Problem]
    verifier: Verifier
    name: str = "files"
    _orders: dict[int, list[int]] = field(init=False, repr=False, default_factory=dict)

    @property
    def test_size(self) -> int:
        return len(self.test)

    def problems(self, split: Split, start: int, count: int) -> list[Problem]:
        """As `Task.problems`; in the train split the next epoch begins after the last row."""
        if split == "test":
            require_held_out(f"task {self.name!r}", self.test_size, start + count)
            return self.test[start : start + count]
        epochs = [divmod(position, len(self.train)) for position in range(start, start + count)]
        return [self.train[self._order(epoch)[index]] for epoch, index in epochs]

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        return self.verifier(problems, completions, completion_ids)

    def close(self) -> None:
        self.verifier.close()

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            if len(self._orders) > 1:  # except with tiny files a batch touches at most two epochs
                self._orders.clear()
            # Sorted by a hash: unlike the random module's shuffle, the same on every version of Python.
            self._orders[epoch] = sorted(range(len(self.train)), key=lambda row: _digest(f"{self.seed}/{epoch}/{row}"))
        return self._orders[epoch]


def _key(problem: Problem) -> bytes:
    return _digest(json.dumps(problem.prompt, sort_keys=True))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode()).digest()


def _split(problems: list[Problem], share: float, path: str) -> tuple[list[Problem], list[Problem]]:
    """Train and test rows; the held-out prompts depend neither on the seed nor on the order of the rows."""
    keys = [_key(problem) for problem in problems]
    distinct = sorted(set(keys))
    if len(distinct) < 2:
        raise TokenPOError(f"{path}: one prompt can't be split into train and test: give more rows, or a test_path")
    held_out = set(distinct[: max(1, min(len(distinct) - 1, round(share * len(distinct))))])
    pairs = list(zip(problems, keys, strict=True))
    return [x for x, key in pairs if key not in held_out], [x for x, key in pairs if key in held_out]
