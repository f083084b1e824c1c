"""Find rewarded responses that look wrong, in the rollouts or samples of any host.

A line has a prompt, a completion, a reward or `correct`, and maybe a reference; the names of tokenpo, TRL and verl are
known (`NAMES`). What needs a reference is skipped for lines without one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import MissingInput, TokenPOError
from ..records.run import PLACES
from ..train.tasks.extract import last_marked, spoken, whole
from ..train.tasks.files import READERS, read_rows
from ..train.tasks.maths.notes import REPEATED, UNREADABLE
from ..train.tasks.types import Problem, Score
from ..train.tasks.verify import VerifierOptions, asked, make_verifier

NAMES = {
    "prompt": ("prompt", "input", "question", "problem"),
    "completion": ("completion", "output", "response", "text"),
    "reference": ("reference", "gts", "ground_truth", "solution", "answer"),
    "reward": ("reward", "score", "accuracy_reward"),
}
_BOX = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_WORD = r"(?<!\\)\b[^\W\d_]{2,}\b"
_FORM = 60  # characters
_PROMPTS = 3  # prompts with different references, after which one rewarded text is suspect


@dataclass(frozen=True)
class Line:
    """One response; None is unknown."""

    where: str
    prompt: str
    completion: str
    reference: Any
    rewarded: bool
    finished: bool | None

    @property
    def problem(self) -> Problem:
        return Problem(self.prompt, self.reference, place=self.where)


@dataclass(frozen=True)
class Finding:
    """What looks wrong, the lines that do, and what is said of each; the more certain, the smaller `rank`."""

    name: str
    meaning: str
    rank: int
    lines: Sequence[tuple[Line, str]]


@dataclass(frozen=True)
class Audit:
    """`findings` begins with what to look at first; `forms` are (rewarded, form, number), the most frequent first."""

    lines: Sequence[Line]
    findings: Sequence[Finding]
    forms: Sequence[tuple[bool, str, int]]
    notes: Sequence[str]


def read_lines(path: Path, rewarded_at: float = 1.0) -> list[Line]:
    """The responses of a .jsonl or .parquet file, or of a run directory; MissingInput without completion or reward."""
    return [_line(where, record, rewarded_at) for file in _files(path) for where, record in read_rows(file)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    for place in PLACES:
        for pattern in ("rollouts/*.jsonl", "samples.jsonl"):
            if found := sorted((path / place).glob(pattern)):
                return found
    if found := sorted(file for file in path.rglob("*") if file.suffix in READERS and "completion" in file.name):
        return found  # TRL's log_completions
    raise TokenPOError(
        f"{path} has no responses: give a run with samples.jsonl or rollouts/ (output.samples, output.rollouts_every), "
        "TRL's with log_completions, or a file"
    )


def _line(where: str, record: Mapping[str, Any], rewarded_at: float) -> Line:
    def of(name: str) -> Any:
        return next((record[key] for key in NAMES[name] if record.get(key) is not None), None)

    completion, correct, reward = of("completion"), record.get("correct"), of("reward")
    if completion is None and isinstance(record.get("tokens"), list):
        completion = "".join(map(str, record["tokens"]))
    if completion is None or (correct is None and reward is None):
        lacks = f"completion ({', '.join(NAMES['completion'])}) or its reward ({', '.join(NAMES['reward'])}, correct)"
        raise MissingInput(f"{where}: no column with the {lacks}; columns: {', '.join(record) or 'none'}")
    finished = record.get("finished")
    return Line(
        where=where,
        prompt=_text(of("prompt") or ""),
        completion=_text(completion),
        reference=of("reference"),
        rewarded=bool(correct) if correct is not None else float(reward) >= rewarded_at,
        finished=finished if isinstance(finished, bool) else None,
    )


def _text(value: Any) -> str:
    return asked(value) if isinstance(value, (str, list)) else str(value)


def audit(lines: Sequence[Line]) -> Audit:
    """What looks wrong in these responses, judged by `math`."""
    judged = [line for line in lines if line.reference is not None]
    scores = dict(zip(map(id, judged), _scores(judged), strict=True))
    paid = [line for line in lines if line.rewarded]
    read = [scores[id(line)].answer for line in paid if id(line) in scores]
    foreign = bool(read) and not any(read)  # as in the quickstart: `math` does not know the form of the answers

    def of(rows: Sequence[Line], said: Callable[[Line], str]) -> list[tuple[Line, str]]:
        return [(line, text) for line in rows if (text := said(line))]

    def refused(line: Line) -> str:
        score = scores.get(id(line))
        if score is None or foreign or score.correct or score.note in (REPEATED, UNREADABLE):
            return ""
        return f"math reads {score.answer or 'no answer'}, the reference is {line.reference}"

    def echoes(line: Line) -> str:
        return "its value is not worked out" if id(line) in scores and scores[id(line)].note == REPEATED else ""

    def missed(line: Line) -> str:
        return f"the reference is {line.reference}" if id(line) in scores and scores[id(line)].correct else ""

    findings = [
        Finding("echo", "rewarded, but only repeats the question", 0, of(paid, echoes)),
        Finding("wrong", "rewarded, but the verifier `math` calls it wrong", 1, of(paid, refused)),
        Finding("cut off", "rewarded, but cut off: the end, a thought or a box is missing", 1, of(paid, _cut_off)),
        Finding("constant", "one rewarded text for prompts with different references", 1, list(_constants(paid))),
        Finding("boxes", "rewarded, with several different boxed answers", 2, of(paid, _boxes)),
        Finding("missed", "not rewarded, but `math` calls it right",
                2, of([line for line in lines if not line.rewarded], missed)),
    ]  # fmt: skip
    found = sorted((one for one in findings if one.lines), key=lambda one: (one.rank, -len(one.lines)))
    counts = Counter((line.rewarded, form(line.completion)) for line in lines)
    forms = [
        (rewarded, name, count)
        for wanted in (True, False)
        for (rewarded, name), count in counts.most_common()
        if rewarded is wanted
    ]
    without = len(lines) - len(judged)
    said = [f"{without} responses have no reference: verifiers did not judge them."] if without else []
    said += ["The verifier `math` reads no answer in any rewarded response: it judged none."] if foreign else []
    return Audit(lines, found, forms, said)


def _scores(lines: Sequence[Line]) -> list[Score]:
    verifier = make_verifier("math", VerifierOptions(), "audit")
    try:
        return verifier([line.problem for line in lines], [line.completion for line in lines], [[]] * len(lines))
    finally:
        verifier.close()


def _cut_off(line: Line) -> str:
    text = line.problem.opened(line.completion)
    if text.strip() and whole(text) is None:
        return "the thinking does not end"
    if last_marked(text) == "":
        return "the last box or tag does not close"
    return "the response was cut at its longest" if line.finished is False else ""


def _boxes(line: Line) -> str:
    boxes = list(dict.fromkeys(" ".join(box.split()) for box in _BOX.findall(spoken(line.completion))))
    return f"boxes: {'; '.join(boxes)}" if len(boxes) > 1 else ""


def _constants(paid: Sequence[Line]) -> Iterator[tuple[Line, str]]:
    by_text: dict[str, dict[str, Line]] = defaultdict(dict)
    for line in paid:
        by_text[" ".join(line.completion.split())].setdefault(f"{line.reference or line.prompt}", line)
    for first, *others in (list(found.values()) for found in by_text.values()):
        if len(others) >= _PROMPTS - 1:
            yield from ((line, f"rewarded for {1 + len(others)} different prompts") for line in (first, *others))


def form(text: str) -> str:
    r"""The form of a response: what its mark holds or how it ends, with N for a number and w for words.

    >>> form("The sum is 12 + 30 = 42."), form(r"so \boxed{4,000}")
    ('w N + N = N.', '\\boxed{N}')
    """
    boxes = list(_BOX.finditer(text))
    shown = boxes[-1][0] if boxes else (text.strip().splitlines() or [""])[-1][-200:]
    shown = re.sub(r"\d[\d,]*(?:\.\d+)?", "N", re.sub(rf"{_WORD}(?:[\s,]+{_WORD})*", "w", shown))
    return shown[-_FORM:]
