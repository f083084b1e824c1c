"""Problems from JSONL or parquet files, as TRL's users (`prompt`, `answer` or `solution`) or verl's lay them out."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base.errors import MissingInput, TokenPOError, nearest
from ..base.jsonl import byte_lines
from .types import Problem, Score, Split, require_held_out
from .verify import Verifier, VerifierOptions, checked, make_verifier

Row = tuple[str, dict[str, Any]]  # ("train.jsonl line 3", columns)


def read_rows(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file; a TokenPOError for another suffix, and a broken or an empty file."""
    if path.suffix not in READERS:
        hint = " (one JSON object a line is .jsonl)" if path.suffix == ".json" else ""
        raise TokenPOError(f"{path}: can't read files called *{path.suffix}{hint}; known: {', '.join(READERS)}")
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*") if p.suffix in READERS] if path.parent.is_dir() else []
        raise TokenPOError(f"{path}: there is no such file in {path.parent.resolve()} ({nearest(path.name, siblings)})")
    try:
        rows = list(READERS[path.suffix](path))
    except OSError as error:
        raise TokenPOError(f"{path}: cannot be read: {error.strerror}") from error
    if not rows:
        raise TokenPOError(f"{path}: the file is empty, it needs at least one row")
    return rows


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(byte_lines(path), start=1):
        where = f"{path} line {number}"
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            raise TokenPOError(f"{where}: not UTF-8 text ({error.reason}): save the file as UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise TokenPOError(f"{where}: not JSON ({error}): write one JSON object a line") from error
        if not isinstance(row, dict):
            raise TokenPOError(f"{where}: a {type(row).__name__}, not an object: write one JSON object a line")
        yield where, row


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TokenPOError(f"{path}: parquet files need pyarrow: pip install 'tokenpo[tasks]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            rows = file.read().to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        raise TokenPOError(f"{path}: not a readable parquet file ({error}): write it again") from error
    for number, row in enumerate(rows):
        yield f"{path} row {number}", row


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = MappingProxyType({".jsonl": _jsonl, ".parquet": _parquet})


_NAME = re.compile(r"\{([A-Za-z_]\w*)\}")  # in a template
_ANSWER_KEYS = ("answer", "solution", "reward_model")  # reward_model is verl's, and holds ground_truth


@dataclass(frozen=True)
class Layout:
    """Which columns hold what.

    Args:
        prompt_key: column with the prompt, text or chat messages; "" where the template names all it needs.
        answer_key: column with the reference; "" is the first of answer, solution, verl's reward_model.ground_truth.
        needs_answer: refuse a row without a reference.
        gives_away: refuse a template that names the column with the reference.
        chat: make one user message of a prompt that is plain text.
        template: text around a prompt that is plain text: {question} is the prompt, {NAME} the column of that name.
        options: what errors call prompt_key and answer_key.
    """

    prompt_key: str
    answer_key: str
    needs_answer: bool
    gives_away: bool = False
    chat: bool = False
    template: str = "{question}"
    options: tuple[str, str] = ("prompt_key", "answer_key")

    def problems(self, rows: list[Row]) -> list[Problem]:
        """The rows as problems; the first row's columns decide which one holds the answer.

        Raises:
            MissingInput: a row lacks a column.
            TokenPOError: a row holds no valid prompt or reference, or the template shows the reference.
        """
        where, first = rows[0]
        answer_key = self.answer_key or next((key for key in _ANSWER_KEYS if key in first), "")
        if not answer_key and self.needs_answer:
            remedy = f"call one 'answer', or set {self.options[1]}"
            raise MissingInput(f"{where}: no column with the reference answer ({_columns(first)}): {remedy}")
        shown = {name for name in _NAME.findall(self.template) if name != "question" or not self.prompt_key}
        if self.gives_away and answer_key in shown:
            remedy = f"leave it out, or write {{ {answer_key} }} with blanks, which stays as it is"
            raise TokenPOError(f"the prompt names {{{answer_key}}}, the column with the reference answer: {remedy}")
        return [Problem(self._prompt(at, row), self._answer(at, row, answer_key), row, at) for at, row in rows]

    def _prompt(self, where: str, row: Mapping[str, Any]) -> str | list[dict[str, Any]]:
        prompt, place = "", f"{where}: {self.prompt_key!r}"
        if self.prompt_key:
            prompt = _get(where, row, self.prompt_key, self.options[0])
        if isinstance(prompt, str) and (prompt or not self.prompt_key):
            text = self._filled(where, row, prompt)
            _require_characters(place, text)
            return [{"role": "user", "content": text}] if self.chat else text
        if not isinstance(prompt, list) or not prompt:
            raise TokenPOError(f"{place} is {_kind(prompt)}: give text, or a list of chat messages")
        for message in prompt:
            texts = [message.get("role"), message.get("content")] if isinstance(message, dict) else [None]
            if not all(isinstance(text, str) for text in texts):
                remedy = 'give {"role": ..., "content": ...} with text in both'
                raise TokenPOError(f"{place} holds the message {message!r:.80}: {remedy}")
            _require_characters(place, *texts)
        if not any(message["content"] for message in prompt):
            raise TokenPOError(f"{place} holds messages without content: give text in one at least")
        return prompt

    def _filled(self, where: str, row: Mapping[str, Any], question: str) -> str:
        """The template in one pass, so that braces in the data stay what they are."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return question if name == "question" and self.prompt_key else str(_get(where, row, name, "the template"))

        return _NAME.sub(value, self.template)

    def _answer(self, where: str, row: Mapping[str, Any], key: str) -> Any:
        if not key:
            return None
        answer = _get(where, row, key, self.options[1])
        if key == "reward_model":
            if not isinstance(answer, dict) or "ground_truth" not in answer:
                raise TokenPOError(f"{where}: 'reward_model' is {_kind(answer)} without 'ground_truth': add that key")
            key, answer = "reward_model.ground_truth", answer["ground_truth"]
        references = answer if isinstance(answer, list) else [answer]
        sound = references and all(isinstance(x, (str, int, float)) and x != "" for x in references)
        if self.needs_answer and not sound:
            raise TokenPOError(f"{where}: {key!r} is {_kind(answer)}: give text, a number, or a list of these")
        return answer


def _get(where: str, row: Mapping[str, Any], key: str, option: str) -> Any:
    if key not in row:
        hint = f"{_columns(row)}; {nearest(key, row)}"
        raise MissingInput(f"{where}: no column {key!r} ({hint}): name yours with {option}")
    return row[key]


def _require_characters(place: str, *texts: Any) -> None:
    """JSON can write half of a surrogate pair, which no tokenizer takes."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise TokenPOError(f"{place} holds half a character (\\ud800 to \\udfff): mend it") from error


def _columns(row: Mapping[str, Any]) -> str:
    return f"columns: {', '.join(row) or 'none'}"


def _kind(value: Any) -> str:
    return "empty" if value in ("", [], {}) else "null" if value is None else f"a {type(value).__name__}"


def files(
    seed: int, *, path: str, test_path: str = "", holdout: float | None = None, verifier: str = "exact",
    extract: str = "", prompt_key: str = "prompt", answer_key: str = "", chat: bool = False, correct_at: float = 1.0,
    verifier_seconds: float = 5.0, verifier_workers: int = 0, reward_seconds: float = 300.0,
    reward_errors: str = "stop",
) -> Files:  # fmt: skip
    """A data set on disk.

    Args:
        seed: of the order; the rows are shuffled anew in every epoch. The test split doesn't depend on it.
        path: .jsonl or .parquet with the train rows.
        test_path: the same with the test rows; without it a share of the train file's prompts is held out.
        holdout: that share, more than 0 and less than 1; 0.1 by default. Rows of one prompt stay together.
        verifier: "exact" (text), "math" (value, exactly: 0.50 is 1/2, but 0.333333 is not 1/3), "countdown",
            "knights_knaves", or a reward function of yours: "package.module:function", "file.py:function".
        extract: where the answer stands in a completion (a name of `EXTRACTORS`); "" is the verifier's own way.
        prompt_key: the column with the prompt, text or chat messages.
        answer_key: the column with the reference; "" is the first there is of answer, solution, verl's
            reward_model.ground_truth.
        chat: make one user message of a prompt that is plain text.
        correct_at: least reward that counts as correct, for a reward function of yours.
        verifier_seconds: wall-clock limit per answer for the verifier "math".
        verifier_workers: its processes; 0 is one per core, four at most.
        reward_seconds: wall-clock limit per call of a reward function of yours, which then runs in a process of its
            own; 0 calls it in this one, without a limit.
        reward_errors: what becomes of a call that raises, hangs, dies or gives no finite number: "stop" ends the run,
            "zero" is reward 0 and a note that is counted.

    Raises:
        TokenPOError: a file or a row that can't be used; the message names it and the remedy.
    """
    if test_path and holdout is not None:
        raise TokenPOError("task 'files': give test_path or holdout, not both")
    options = VerifierOptions(extract, correct_at, verifier_seconds, verifier_workers, reward_seconds, reward_errors)
    scorer = make_verifier(verifier, options, "files")
    layout = Layout(prompt_key, answer_key, scorer.needs_answer, chat=chat)
    train = checked(scorer, layout.problems(read_rows(Path(path))))
    if test_path:
        test = checked(scorer, layout.problems(read_rows(Path(test_path))))
        keys = set(map(_key, train))
        if common := sum(_key(problem) in keys for problem in test):
            of = f"{common} of the {len(test)} prompts of {test_path} are also in {path}"
            warnings.warn(f"{of}: accuracy on them is no test", stacklevel=2)
    else:
        train, test = _split(train, 0.1 if holdout is None else holdout, path)
    return Files(seed, train, test, scorer)


@dataclass(frozen=True, eq=False)
class Files:
    """Rows in memory: the train split reshuffled per epoch by (seed, epoch), the test split in its own fixed order."""

    seed: int
    train: list[Problem]
    test: list[Problem]
    verifier: Verifier
    name: str = "files"
    _orders: dict[int, list[int]] = field(init=False, repr=False, default_factory=dict)

    @property
    def test_size(self) -> int:
        """Number of held-out problems."""
        return len(self.test)

    def problems(self, split: Split, start: int, count: int) -> list[Problem]:
        """As `Task.problems`; in the train split the next epoch begins after the last row."""
        if split == "test":
            require_held_out(f"task {self.name!r}", self.test_size, start + count)
            return self.test[start : start + count]
        epochs = [divmod(position, len(self.train)) for position in range(start, start + count)]
        return [self.train[self._order(epoch)[index]] for epoch, index in epochs]

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        """The verifier's verdict on each completion."""
        return self.verifier(problems, completions, completion_ids)

    def close(self) -> None:
        """Ends the verifier's processes."""
        self.verifier.close()

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            if len(self._orders) > 1:  # a batch touches two epochs at most, bar tiny files
                self._orders.clear()
            # Sorted by a hash: unlike the random module's shuffle, the same on every version of Python.
            self._orders[epoch] = sorted(range(len(self.train)), key=lambda row: _digest(f"{self.seed}/{epoch}/{row}"))
        return self._orders[epoch]


def _key(problem: Problem) -> bytes:
    """Equal for equal prompts, on every machine."""
    return _digest(json.dumps(problem.prompt, sort_keys=True))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode()).digest()


def _split(problems: list[Problem], share: float, path: str) -> tuple[list[Problem], list[Problem]]:
    """Train and test, for which a share of the prompts is held out, the same whatever the seed and the rows' order."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
        raise TokenPOError(f"task 'files': holdout = {share!r} must be more than 0 and less than 1")
    keys = [_key(problem) for problem in problems]
    different = sorted(set(keys))
    if len(different) < 2:
        raise TokenPOError(f"{path}: one prompt can't be split into train and test: give more rows, or a test_path")
    held_out = set(different[: max(1, min(len(different) - 1, round(share * len(different))))])
    pairs = list(zip(problems, keys, strict=True))
    return [x for x, key in pairs if key not in held_out], [x for x, key in pairs if key in held_out]
