"""Problems from JSONL or parquet files, with the columns that users of TRL or verl have."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, field

from ...base.errors import TokenPOError
from ...base.files import expanded
from .layout import Layout, read_rows
from .types import Problem, Score, Split, require_held_out
from .verify import Verifier, VerifierOptions, checked, make_verifier


def files(
    seed: int, *, path: str, test_path: str = "", holdout: float | None = None, verifier: str = "exact",
    extract: str = "", prompt_key: str = "prompt", answer_key: str = "", chat: bool = False, system: str = "",
    correct_at: float = 1.0, verifier_seconds: float = 5.0, verifier_workers: int = 0, reward_seconds: float = 300.0,
    reward_errors: str = "stop",
) -> Files:  # fmt: skip
    """A data set on disk.

    Args:
        seed: of the order; the rows are shuffled again in every epoch. The test split doesn't depend on it.
        path: .jsonl or .parquet with the train rows.
        test_path: .jsonl or .parquet with the test rows; without it a share of the train file's prompts is held out.
        holdout: that share, more than 0 and less than 1; 0.1 by default. Rows of one prompt stay together.
        verifier: "exact" (text), "math" (value, exactly: 0.50 is 1/2, but 0.333333 is not 1/3), "countdown",
            "knights_knaves", or a reward function of yours: "package.module:function", "file.py:function". A file finds
            modules of its own folder while it is loaded; for later imports, put that folder on PYTHONPATH.
        extract: how to find the answer in a completion (a name of `EXTRACTORS`); "" is the verifier's default.
        prompt_key: the column with the prompt, text or chat messages.
        answer_key: the column with the reference; "" is the first that exists of answer, solution, verl's
            reward_model.ground_truth.
        chat: make one user message of a prompt that is plain text.
        system: system message before a chat that has none; "" adds none, and the chat template may have its own.
        correct_at: least reward that counts as correct, for a reward function of yours.
        verifier_seconds: wall-clock limit per answer for the verifier "math".
        verifier_workers: its processes; 0 is one per core, four at most.
        reward_seconds: wall-clock limit per call of a reward function of yours, which then runs in a process of its
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
            warnings.warn(f"{overlap}: accuracy on them is no test", stacklevel=2)
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
    """A hash of the prompt, the same on every machine."""
    return _digest(json.dumps(problem.prompt, sort_keys=True))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode()).digest()


def _split(problems: list[Problem], share: float, path: str) -> tuple[list[Problem], list[Problem]]:
    """Train and test rows; the held-out prompts depend neither on the seed nor on the order of the rows."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
        raise TokenPOError(f"task 'files': holdout = {share!r} must be more than 0 and less than 1")
    keys = [_key(problem) for problem in problems]
    distinct = sorted(set(keys))
    if len(distinct) < 2:
        raise TokenPOError(f"{path}: one prompt can't be split into train and test: give more rows, or a test_path")
    held_out = set(distinct[: max(1, min(len(distinct) - 1, round(share * len(distinct))))])
    pairs = list(zip(problems, keys, strict=True))
    return [x for x, key in pairs if key not in held_out], [x for x, key in pairs if key in held_out]
