"""From samples to estimates, per prompt and over prompts, with intervals; their table.

Each estimator is the mean of a statistic over all C(n, k) subsets of k samples of a prompt, every subset counting
alike; so its expectation is the statistic of k fresh samples, whatever n is. Fewer than k samples: NaN, never a guess.

    avg@k   share of right samples              c / n
    pass@k  at least one of k is right          1 − C(n−c, k) / C(n, k)
    pass^k  all k are right                     C(c, k) / C(n, k)
    maj@k   the most frequent answer is right   summed exactly, see `maj_at_k`

n samples of the prompt, c of them right, k drawn without replacement.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ...base.errors import TokenPOError
from ...base.intervals import mean_of_numbers, mean_of_shares
from ...page.table import Cell, Row, Table, print_parts
from .samples import Sample, Vote

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

    Answers are compared as text. A sample without an answer casts no vote, and where nobody votes nothing is right.
    An answer whose samples have different verdicts counts by the share of right ones. NaN too where a right sample has
    no answer.

    The sum over all C(n, k) subsets is exact, given to twelve digits: a uniform subset of k samples is n independent
    draws with probability k / n each, given that k are drawn in all; so the number of samples of each answer is
    binomial, and a table over (samples drawn, answers in the lead) multiplies the answers together.

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
    """maj@k of answers given as (samples, right ones among them) beside `silent` samples without an answer."""
    n = silent + sum(size for size, _ in answers)
    most = max((size for size, _ in answers), default=0)
    won = math.fsum(_won_with(votes, answers, n, k) for votes in range(1, min(k, most) + 1))
    # The last digits are rounding errors; without them 3/8 is 3/8, and what is certain is 1.
    return round(won / float(_binomial(n, k / n, k)[k]), _DIGITS)


def _won_with(votes: int, answers: tuple[tuple[int, int], ...], n: int, k: int) -> float:
    """Probability that k samples are drawn, the winner has exactly `votes` of them, and it is right."""
    able = [(size, right) for size, right in answers if size >= votes]
    leaders = min(len(able), k // votes)
    # chance[u, d]: d samples drawn, u answers at `votes`, none above; value[u, d]: times the sum of the u shares right.
    chance, value = np.zeros((leaders + 1, k + 1)), np.zeros((leaders + 1, k + 1))
    # All who cannot reach `votes` are one: sums of binomials with the same probability are binomial.
    chance[0] = _binomial(n - sum(size for size, _ in able), k / n, k)
    for size, right in able:
        draws = _binomial(size, k / n, votes)
        lead = draws[votes]
        led = _moved(chance, votes) * lead
        value = _behind(value, draws[:votes]) + _moved(value, votes) * lead + led * (right / size)
        chance = _behind(chance, draws[:votes]) + led
    return math.fsum(float(value[u, k]) / u for u in range(1, leaders + 1))


def _moved(table: NDArray[np.float64], votes: int) -> NDArray[np.float64]:
    """One leader more, `votes` samples more; what falls off the table is more than k samples."""
    out = np.zeros_like(table)
    out[1:, votes:] = table[:-1, : table.shape[1] - votes]
    return out


def _behind(table: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """The answer stays behind: with probability draws[s] it takes s samples."""
    width = table.shape[1]
    if len(draws) > len(table):
        return np.stack([np.convolve(row, draws)[:width] for row in table])
    out = np.zeros_like(table)
    for s, chance in enumerate(draws):
        out[:, s:] += table[:, : width - s] * chance
    return out


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


METRICS: Mapping[str, Callable[[Sequence[Vote], int], float]] = MappingProxyType(
    {
        "avg@k": _of_counts(avg_at_k),
        "pass@k": _of_counts(pass_at_k),
        "pass^k": _of_counts(pass_hat_k),
        "maj@k": maj_at_k,
    }
)


_NOTES = 5  # kinds of notes that are shown, the most frequent ones


@dataclass(frozen=True)
class Estimate:
    """One estimate over prompts: `metric` is a name of `METRICS` or "reward", of k samples.

    Args:
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
        length: mean tokens of a sample; `cut`: share of samples that the model did not end; None where they do not say.
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


def summarise(samples: Sequence[Sample], ks: Sequence[int] | None = None, seed: int = 0) -> Summary:
    """The numbers of the samples at every k, intervals resampled by `seed`.

    Args:
        ks: None is 1, and as many samples as every prompt has.

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
    # A prompt with a right sample that has no answer cannot just be left out: what is left would be the prompts that
    # are solved less often.
    every = [sample.vote for sample in samples]
    lost, right = sum(vote.correct and vote.answer is None for vote in every), sum(vote.correct for vote in every)
    silent = f"{lost} of the {right} right samples have no answer to vote with" if lost else ""
    if all(vote.answer is None for vote in every):
        silent = "no sample has an answer to vote with"
    numbers, per_prompt = [], []
    for of_prompt in prompts.values():
        correct = sum(sample.vote.correct for sample in of_prompt)
        per_prompt.append({"problem": of_prompt[-1].name, "samples": len(of_prompt), "correct": correct})
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
        sentences=tuple(_sentences(ks, [len(of_prompt) for of_prompt in votes], silent)),
        reward=_reward(prompts.values(), seed),
    )  # fmt: skip


def _reward(prompts: Collection[Sequence[Sample]], seed: int) -> Estimate | None:
    """The mean over prompts of a sample's expected reward."""
    means = []
    for samples in prompts:
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        if len(rewards) < len(samples):
            return None
        means.append(math.fsum(rewards) / len(rewards))
    if all(sample.reward == sample.vote.correct for samples in prompts for sample in samples):
        return None
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
    facts = [] if summary.length is None else [f"mean length {summary.length:.1f} tokens"]
    facts += [] if summary.cut is None else [f"{summary.cut:.1%} cut at the length limit"]
    for note, count in sorted(summary.notes.items(), key=lambda item: -item[1])[:_NOTES]:
        # A note of anybody's file: short, and nothing in it that a terminal would obey.
        plain = "".join(c if c.isprintable() else " " for c in note)[:40]
        facts.append(f"{count / summary.samples:.1%} {plain}")
    lines += [f"Samples: {', '.join(facts)}."] if facts else []
    # Too narrow, the table would be cut: a file or a pipe has no width of its own, and a terminal wraps.
    print_parts([counts, table, *lines, *summary.sentences], stream, framed=False, least=20 + 25 * len(ks))


def _cell(number: Estimate) -> Cell:
    ends = f"{number.low:.3f} to {number.high:.3f} {number.kind[:1]}" if number.kind else ""
    return Cell("NaN" if math.isnan(number.value) else f"{number.value:.3f}", ends)
