"""Read the rows of a JSONL or parquet file, each with its place in the file, and turn them into problems."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...base.errors import MissingInput, TokenPOError, nearest
from ...base.jsonl import byte_lines
from .types import Problem

Row = tuple[str, dict[str, Any]]  # ("train.jsonl line 3", columns)


def read_rows(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file; raises TokenPOError for other suffixes, broken files and empty files."""
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
    """The columns of prompt and reference, and the template of the prompt.

    Args:
        prompt_key: column with the prompt, text or chat messages; "" if the template names all columns it needs.
        answer_key: column with the reference; "" is the first of answer, solution, verl's reward_model.ground_truth.
        needs_answer: refuse a row without a reference.
        gives_away: refuse a template that names the column with the reference.
        chat: make one user message of a prompt that is plain text.
        system: system message before a chat that has none; "" adds none.
        template: text around a prompt that is plain text: {question} is the prompt, {NAME} the column of that name.
        options: names of prompt_key and answer_key in error messages.
    """

    prompt_key: str
    answer_key: str
    needs_answer: bool
    gives_away: bool = False
    chat: bool = False
    system: str = ""
    template: str = "{question}"
    options: tuple[str, str] = ("prompt_key", "answer_key")

    def problems(self, rows: list[Row]) -> list[Problem]:
        """The rows as problems; the columns of the first row decide which column holds the answer.

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
            if self.system and not self.chat:
                raise TokenPOError(
                    f"{place} is plain text, which has no system message: set chat = true, or leave it out"
                )
            return self._begun([{"role": "user", "content": text}]) if self.chat else text
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
        return self._begun(prompt)

    def _begun(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The chat with the system message, unless it begins with its own."""
        own = not self.system or messages[0]["role"] == "system"
        return messages if own else [{"role": "system", "content": self.system}, *messages]

    def _filled(self, where: str, row: Mapping[str, Any], question: str) -> str:
        """The template, filled in one pass, so that braces in the data are not filled."""

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
        if self.needs_answer:
            require_reference(where, key, answer)
        return answer


def require_reference(where: str, key: str, value: Any) -> None:
    """Raises TokenPOError for what no answer can equal: null, a dict, true, blank text, NaN, an infinity."""
    references = value if isinstance(value, list) else [value]
    wrong = [item for item in references if not _is_reference(item)]
    if wrong or not references:
        held = f"a list that holds {_kind(wrong[0])}" if wrong and references is value else _kind(value)
        raise TokenPOError(f"{where}: {key!r} is {held}: give text, a number, or a list of these")


def _is_reference(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def _get(where: str, row: Mapping[str, Any], key: str, option: str) -> Any:
    if key not in row:
        hint = f"{_columns(row)}; {nearest(key, row)}"
        raise MissingInput(f"{where}: no column {key!r} ({hint}): name yours with {option}")
    return row[key]


def _require_characters(place: str, *texts: Any) -> None:
    """Refuses half of a surrogate pair, which JSON can write and no tokenizer accepts."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise TokenPOError(f"{place} holds half a character (\\ud800 to \\udfff): mend it") from error


def _columns(row: Mapping[str, Any]) -> str:
    return f"columns: {', '.join(row) or 'none'}"


def _kind(value: Any) -> str:
    if isinstance(value, str) and not value.strip():
        return "empty text"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return "empty" if value in ([], {}) else "null" if value is None else f"a {type(value).__name__}"
