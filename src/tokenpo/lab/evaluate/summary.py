"""Samples on disk, and avg@k, pass@k, pass^k and maj@k of them, with intervals, as a table. NaN if n < k.

Samples are JSON lines, written by an evaluation or by any other program (docs/evaluation.md). Each estimate is the mean
of a statistic over all C(n, k) subsets of k of a prompt's n samples, c of them right, so its expectation is that of k
fresh samples.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MissingInput, TokenPOError, nearest
from ...base.intervals import mean_of_numbers, mean_of_shares
from ...base.jsonl import whole_lines
from ...train.tasks.files import require_reference
from ...train.tasks.types import Problem, Score
from ...train.tasks.verify import Verifier, checked, normalised
from ..page.text import Cell, Row, Table, print_parts, visible


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
    tokens: float | None = None
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
    # Recorded rollouts have the tokens themselves in this field.
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
        tokens=None if tokens is None else float(tokens),
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
        raise MissingInput(f"{where}: no column {name!r} ({nearest(name, record, 'columns')}): it says {meaning}")
    return record[name]


_DIGITS = 12
_SMALL = 1000  # trials whose binomial coefficients are floats


def avg_at_k(n: int, c: int, k: int) -> float:
    """Mean accuracy of k samples: c / n for every k that n samples allow.

    >>> avg_at_k(4, 1, 2)
    0.25
    """
    return c / n if 1 <= k <= n else math.nan


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k samples is right (Chen et al. 2021, arXiv:2107.03374, equation 1).

    Counted in whole numbers and divided once, so the result is the nearest float at any n.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    return (math.comb(n, k) - math.comb(n - c, k)) / math.comb(n, k) if 1 <= k <= n else math.nan


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Probability that all of k samples are right (pass^k of tau-bench, arXiv:2406.12045).

    >>> pass_hat_k(4, 2, 2) == 1 / 6
    True
    """
    return math.comb(c, k) / math.comb(n, k) if 1 <= k <= n else math.nan


def maj_at_k(votes: Sequence[Vote], k: int) -> float:
    """Probability that the most frequent answer of k samples is right; ties are broken evenly.

    Answers are compared as text. A sample without an answer casts no vote; without any vote the result is wrong. An
    answer whose samples have different verdicts counts by the share of right ones. NaN if a right sample has no answer.

    The sum over all C(n, k) subsets is exact, rounded to twelve digits. A uniform subset of k samples is the same as n
    independent draws with probability k / n each, given that k are drawn in total. So the number of samples of each
    answer is binomial, and a table over (samples drawn, answers in the lead) combines the answers one by one.

    >>> votes = [Vote("7", True), Vote("7", True), Vote("3", False)]
    >>> [maj_at_k(votes, k) for k in (1, 2, 3)]
    [0.666666666667, 0.666666666667, 1.0]
    """
    if not 1 <= k <= len(votes) or any(vote.correct and vote.answer is None for vote in votes):
        return math.nan
    size = Counter(vote.answer for vote in votes)
    right = Counter(vote.answer for vote in votes if vote.correct)
    silent = size.pop(None, 0)
    return _majority(tuple(sorted((count, right[answer]) for answer, count in size.items())), silent, k)


@lru_cache(maxsize=65536)
def _majority(answers: tuple[tuple[int, int], ...], silent: int, k: int) -> float:
    """maj@k of answers, each given as (samples, right samples), and of `silent` samples without an answer."""
    n = silent + sum(size for size, _ in answers)
    most = max((size for size, _ in answers), default=0)
    won = math.fsum(_won_with(votes, answers, n, k) for votes in range(1, min(k, most) + 1))
    # The last digits are rounding errors; without them 3/8 is 3/8, and a certain result is 1.
    return round(won / float(_binomial(n, k / n, k)[k]), _DIGITS)


def _won_with(votes: int, answers: tuple[tuple[int, int], ...], n: int, k: int) -> float:
    """Probability that k samples are drawn, the winner has exactly `votes` samples, and the winner is right."""
    able = [(size, right) for size, right in answers if size >= votes]
    leaders = min(len(able), k // votes)
    # chance[u, d]: probability of d samples drawn, u answers at `votes`, none above; value[u, d]: chance times the sum
    # of the leaders' shares of right samples.
    chance, value = np.zeros((leaders + 1, k + 1)), np.zeros((leaders + 1, k + 1))
    # Answers that cannot reach `votes` are merged: a sum of binomials with equal probability is binomial.
    chance[0] = _binomial(n - sum(size for size, _ in able), k / n, k)
    for size, right in able:
        *behind, lead = _binomial(size, k / n, votes)
        led, value_led = (np.pad(table, ((1, 0), (votes, 0)))[:-1, : k + 1] * lead for table in (chance, value))
        fell, value_fell = ([np.convolve(row, behind)[: k + 1] for row in table] for table in (chance, value))
        chance, value = fell + led, value_fell + value_led + led * (right / size)
    return math.fsum(float(value[u, k]) / u for u in range(1, leaders + 1))


def _binomial(n: int, p: float, most: int) -> NDArray[np.float64]:
    """Probabilities of 0 ... `most` successes in n trials."""
    out = np.zeros(most + 1)
    if p == 1:
        out[n : n + 1] = 1.0
        return out
    for s in range(min(n, most) + 1):
        if n <= _SMALL:
            out[s] = math.comb(n, s) * p**s * (1 - p) ** (n - s)
        else:
            choose = math.lgamma(n + 1) - math.lgamma(s + 1) - math.lgamma(n - s + 1)
            out[s] = math.exp(choose + s * math.log(p) + (n - s) * math.log1p(-p))
    return out


def _of_counts(estimate: Callable[[int, int, int], float]) -> Callable[[Sequence[Vote], int], float]:
    return lambda votes, k: estimate(len(votes), sum(vote.correct for vote in votes), k)


METRICS: Mapping[str, Callable[[Sequence[Vote], int], float]] = {
    "avg@k": _of_counts(avg_at_k),
    "pass@k": _of_counts(pass_at_k),
    "pass^k": _of_counts(pass_hat_k),
    "maj@k": maj_at_k,
}


_NOTES = 5  # the most frequent notes that are shown


@dataclass(frozen=True)
class Estimate:
    """One estimate over prompts: `metric` is a name of `METRICS` or "reward", for k samples.

    Args:
        value: mean over the `prompts` for which it is defined, NaN without any. maj@k is also NaN if any right sample
            has no answer, or no sample has one.
        low, high: its 95 % interval, by the method `kind`: "wilson", "effective", "bootstrap", or "" for none.
    """

    metric: str
    k: int
    value: float
    low: float
    high: float
    kind: str
    prompts: int


@dataclass(frozen=True)
class Summary:
    """The estimates from a set of samples.

    Args:
        prompts, samples, correct: counts.
        numbers: the estimate for every metric and k.
        per_prompt: for every prompt its counts and "pass@4": value, ...
        notes: note -> number of samples with it.
        length: mean tokens of a sample; None if unknown.
        cut: share of samples that the model did not end; None if unknown.
        sentences: caveats for a reader of the numbers.
        reward: mean reward of a sample; None if every reward is 1 for a right and 0 for a wrong sample, or some are
            unknown.
    """

    prompts: int
    samples: int
    correct: int
    numbers: tuple[Estimate, ...]
    per_prompt: tuple[Mapping[str, Any], ...]
    notes: Mapping[str, int]
    length: float | None
    cut: float | None
    sentences: tuple[str, ...]
    reward: Estimate | None = None


def summarise(
    samples: Sequence[Sample], ks: Sequence[int] | None = None, seed: int = 0, notes: Sequence[str] = ()
) -> Summary:
    """The estimates from the samples at every k; `seed` is for bootstrap intervals.

    Args:
        ks: None takes 1 and the smallest number of samples of a prompt.
        notes: of the reader of the samples; the sentences begin with them.

    Raises:
        TokenPOError: no samples.
    """
    if not samples:
        raise TokenPOError("there are no samples: nothing can be estimated")
    prompts: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        prompts[sample.problem].append(sample)
    votes = [[sample.vote for sample in of_prompt] for of_prompt in prompts.values()]
    ks = sorted({1, min(map(len, votes))}) if ks is None else ks
    # A prompt with a right sample without an answer cannot just be left out: the remaining prompts would be those that
    # are solved less often.
    every = [sample.vote for sample in samples]
    lost, right = sum(vote.correct and vote.answer is None for vote in every), sum(vote.correct for vote in every)
    silent = f"{lost} of the {right} right samples have no answer to vote with" if lost else ""
    if all(vote.answer is None for vote in every):
        silent = "no sample has an answer to vote with"
    per_prompt: list[dict[str, Any]] = [
        {"problem": some[-1].name, "samples": len(some), "correct": sum(sample.vote.correct for sample in some)}
        for some in prompts.values()
    ]
    numbers = []
    for metric, estimate in METRICS.items():
        for k in ks:
            values = [estimate(of_prompt, k) for of_prompt in votes]
            for row, value in zip(per_prompt, values, strict=True):
                row[metric.replace("k", str(k))] = value
            known = [] if metric == "maj@k" and silent else [value for value in values if not math.isnan(value)]
            numbers.append(Estimate(metric, k, **vars(mean_of_shares(known)), prompts=len(known)))
    tokens = [sample.tokens for sample in samples if sample.tokens is not None]
    finished = [sample.finished for sample in samples if sample.finished is not None]
    return Summary(
        prompts=len(prompts), samples=len(samples), correct=right, numbers=tuple(numbers), per_prompt=tuple(per_prompt),
        notes=dict(sorted(Counter(sample.note for sample in samples if sample.note).items())),
        length=math.fsum(tokens) / len(tokens) if tokens else None,
        cut=1 - sum(finished) / len(finished) if finished else None,
        sentences=(*notes, *_sentences(ks, [len(of_prompt) for of_prompt in votes], silent)),
        reward=_reward(prompts.values(), seed),
    )  # fmt: skip


def _reward(prompts: Collection[Sequence[Sample]], seed: int) -> Estimate | None:
    """The mean over prompts of a sample's expected reward."""
    every = [sample for samples in prompts for sample in samples]
    rewards = [[sample.reward for sample in samples if sample.reward is not None] for samples in prompts]
    if sum(map(len, rewards)) < len(every) or all(sample.reward == sample.vote.correct for sample in every):
        return None
    means = [math.fsum(some) / len(some) for some in rewards]
    return Estimate("reward", 1, **vars(mean_of_numbers(means, seed)), prompts=len(means))


def _sentences(ks: Sequence[int], sizes: Sequence[int], silent: str) -> Iterator[str]:
    fewest, most, prompts = min(sizes), max(sizes), len(sizes)
    if fewest < most:
        yield f"The prompts have {fewest} to {most} samples; every prompt counts alike, estimated from its own."
    for k in dict.fromkeys(ks):
        enough = sum(size >= k for size in sizes)
        if enough == 0:
            samples = f"{most} sample{'s' * (most > 1)}"
            yield f"k = {k} is NaN: no prompt has more than {samples}, draw at least {k} per prompt."
        elif enough < prompts:
            yield f"k = {k} is over the {enough} of {prompts} prompts that have as many samples."
    if silent:
        yield f"maj@k is NaN: {silent}."


def show(summary: Summary, title: str, stream: TextIO) -> None:
    """Prints one column for each k with the interval below each value, then caveats."""
    ks = list(dict.fromkeys(number.k for number in summary.numbers))
    cells = {(number.metric, number.k): _cell(number) for number in summary.numbers}
    rows = [Row(metric, [cells[metric, k] for k in ks]) for metric in METRICS]
    counts = f"{title}: {summary.correct} of {summary.samples} samples are right (prompts: {summary.prompts})."
    lines = ["Below each value its 95 % interval over prompts: w Wilson, e Wilson of effective trials."]
    if summary.reward is not None:
        reward = _cell(summary.reward)
        lines.append(f"Mean reward of a sample: {reward.text}{', ' * bool(reward.note)}{reward.note}.")
    table = Table(["", *(f"k = {k}" for k in ks)], rows)
    facts = [] if summary.length is None else [f"mean length {summary.length:.1f} tokens"]
    facts += [] if summary.cut is None else [f"{summary.cut:.1%} cut at the length limit"]
    for note, count in sorted(summary.notes.items(), key=lambda item: -item[1])[:_NOTES]:
        facts.append(f"{count / summary.samples:.1%} {visible(note, limit=40)}")
    lines += [f"Samples: {', '.join(facts)}."] if facts else []
    print_parts([counts, table, *lines, *summary.sentences], stream, framed=False)


def _cell(number: Estimate) -> Cell:
    ends = f"{number.low:.3f} to {number.high:.3f} {number.kind[:1]}" if number.kind else ""
    return Cell("NaN" if math.isnan(number.value) else f"{number.value:.3f}", ends)
