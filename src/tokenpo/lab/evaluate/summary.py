"""Estimates from samples: every estimator at every k, per prompt and over prompts, with intervals, as a table."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from ...base.errors import TokenPOError
from ...base.intervals import mean_of_numbers, mean_of_shares
from ..page.table import Cell, Row, Table, print_parts
from ..page.text import visible
from .estimators import METRICS
from .samples import Sample

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
