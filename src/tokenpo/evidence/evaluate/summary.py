"""From samples to estimates: every estimator at every k, per prompt and over prompts, with intervals; their table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from ...base.errors import TokenPOError
from ...base.intervals import mean_of_numbers, mean_of_shares
from ...page.table import Cell, Row, Table
from ...page.terminal import print_parts
from .estimators import METRICS, Vote
from .samples import Sample

_NOTES = 5  # kinds of notes that are shown, the most frequent ones


@dataclass(frozen=True)
class Estimate:
    """One estimate over prompts.

    Args:
        metric: a name of `METRICS`, "pass@k", or "reward".
        k: samples.
        value: mean over the `prompts` for which it is defined; NaN where there are none, and maj@k also where a right
            sample of any prompt has no answer, or no sample has one.
        low, high: its 95 % interval, found by `kind`: "wilson", "effective", "bootstrap", or "".
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
        numbers: for every metric and k.
        per_prompt: for every prompt its counts and "pass@4": value, ...
        notes: how many samples have which note.
        length: mean tokens of a sample; None where the samples do not say.
        cut: share of samples that the model did not end; None where the samples do not say.
        sentences: what a reader of the numbers should know.
        reward: of one sample; None where every reward is 1 for a right and 0 for a wrong sample, or some are not known.
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

    def as_json(self) -> dict[str, Any]:
        """For results.json; NaN is still a float."""
        return asdict(self)


def summarise(samples: Sequence[Sample], ks: Sequence[int] | None = None, seed: int = 0) -> Summary:
    """The numbers of the samples at every k, intervals resampled by `seed`.

    Args:
        ks: None is 1, and as many samples as every prompt has.

    Raises:
        TokenPOError: no samples.
    """
    if not samples:
        raise TokenPOError("there are no samples: nothing can be estimated")
    names: dict[str, Any] = {sample.problem: sample.name for sample in samples}
    votes: dict[str, list[Vote]] = {problem: [] for problem in names}
    for sample in samples:
        votes[sample.problem].append(sample.vote)
    ks = sorted({1, min(map(len, votes.values()))}) if ks is None else ks
    values = {
        (metric, k): [estimate(of_prompt, k) for of_prompt in votes.values()]
        for metric, estimate in METRICS.items()
        for k in ks
    }
    per_prompt = [
        {
            "problem": names[problem],
            "samples": len(of_prompt),
            "correct": sum(vote.correct for vote in of_prompt),
            **{metric.replace("k", str(k)): of_all[place] for (metric, k), of_all in values.items()},
        }
        for place, (problem, of_prompt) in enumerate(votes.items())
    ]
    tokens = [sample.tokens for sample in samples if sample.tokens is not None]
    finished = [sample.finished for sample in samples if sample.finished is not None]
    silent = _silent([sample.vote for sample in samples])
    numbers = tuple(
        _estimate(metric, k, [] if metric == "maj@k" and silent else of_prompts)
        for (metric, k), of_prompts in values.items()
    )
    return Summary(
        prompts=len(votes),
        samples=len(samples),
        correct=sum(sample.vote.correct for sample in samples),
        numbers=numbers,
        per_prompt=tuple(per_prompt),
        notes=dict(sorted(Counter(sample.note for sample in samples if sample.note).items())),
        length=math.fsum(tokens) / len(tokens) if tokens else None,
        cut=1 - sum(finished) / len(finished) if finished else None,
        sentences=tuple(_sentences(ks, [len(of_prompt) for of_prompt in votes.values()], silent)),
        reward=_reward(samples, seed),
    )


def _estimate(metric: str, k: int, of_prompts: Sequence[float]) -> Estimate:
    known = [value for value in of_prompts if not math.isnan(value)]
    return Estimate(metric, k, **vars(mean_of_shares(known)), prompts=len(known))


def _reward(samples: Sequence[Sample], seed: int) -> Estimate | None:
    """The mean over prompts of a sample's expected reward."""
    of_prompts: dict[str, list[float]] = {}
    for sample in samples:
        if sample.reward is None:
            return None
        of_prompts.setdefault(sample.problem, []).append(sample.reward)
    if all(sample.reward == sample.vote.correct for sample in samples):
        return None
    means = [math.fsum(rewards) / len(rewards) for rewards in of_prompts.values()]
    return Estimate("reward", 1, **vars(mean_of_numbers(means, seed)), prompts=len(means))


def _silent(votes: Sequence[Vote]) -> str:
    """Why these samples give no maj@k; "" where they do.

    A prompt with a right sample that has no answer cannot just be left out: what is left would be the prompts that are
    solved less often.
    """
    lost, right = sum(vote.correct and vote.answer is None for vote in votes), sum(vote.correct for vote in votes)
    if all(vote.answer is None for vote in votes):
        return "no sample has an answer to vote with"
    return f"{lost} of the {right} right samples have no answer to vote with" if lost else ""


def _sentences(ks: Sequence[int], sizes: Sequence[int], silent: str) -> list[str]:
    fewest, most, prompts = min(sizes), max(sizes), len(sizes)
    sentences = []
    if fewest < most:
        sentences.append(
            f"The prompts have {fewest} to {most} samples; every prompt counts alike, estimated from its own."
        )
    for k in dict.fromkeys(ks):
        enough = sum(size >= k for size in sizes)
        if enough == 0:
            samples = f"{most} sample{'s' * (most > 1)}"
            sentences.append(f"k = {k} is NaN: no prompt has more than {samples}, draw at least {k} per prompt.")
        elif enough < prompts:
            sentences.append(f"k = {k} is over the {enough} of {prompts} prompts that have as many samples.")
    if silent:
        sentences.append(f"maj@k is NaN: {silent}.")
    return sentences


def show(summary: Summary, title: str, stream: TextIO) -> None:
    """Prints one column for each k, the interval below each value, and what a reader of them should know."""
    ks = list(dict.fromkeys(number.k for number in summary.numbers))
    cells = {(number.metric, number.k): _cell(number) for number in summary.numbers}
    rows = [Row(metric, [cells[metric, k] for k in ks]) for metric in METRICS]
    counts = f"{title}: {summary.prompts} prompts, {summary.samples} samples, {summary.correct} right"
    lines = ["Below each value its 95 % interval over prompts: w Wilson, e Wilson of effective trials."]
    if summary.reward is not None:
        reward = _cell(summary.reward)
        lines.append(f"Mean reward of a sample: {reward.text}{', ' * bool(reward.note)}{reward.note}.")
    table = Table(["", *(f"k = {k}" for k in ks)], rows)
    # Too narrow, the table would be cut: a file or a pipe has no width of its own, and a terminal wraps.
    least = 20 + 25 * len(ks)
    parts = [counts, table, *lines, *_facts(summary), *summary.sentences]
    print_parts(parts, stream, framed=False, least=least)


def _cell(number: Estimate) -> Cell:
    ends = f"{number.low:.3f} to {number.high:.3f} {number.kind[:1]}" if number.kind else ""
    return Cell("NaN" if math.isnan(number.value) else f"{number.value:.3f}", ends)


def _facts(summary: Summary) -> list[str]:
    facts = []
    if summary.length is not None:
        facts.append(f"mean length {summary.length:.1f} tokens")
    if summary.cut is not None:
        facts.append(f"{summary.cut:.1%} cut at the length limit")
    often = sorted(summary.notes.items(), key=lambda item: -item[1])[:_NOTES]
    facts += [f"{count / summary.samples:.1%} {_plain(note)}" for note, count in often]
    return [f"Samples: {', '.join(facts)}."] if facts else []


def _plain(note: str) -> str:
    """A note of anybody's file: short, and nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in note)[:40]
