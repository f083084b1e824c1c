"""avg@k, pass@k, pass^k and maj@k of one prompt: unbiased estimates from its n samples, NaN if n < k.

Each is the mean of a statistic over all C(n, k) subsets of k samples, with equal weights; so its expectation is that of
k fresh samples, for any n.

    avg@k   share of right samples              c / n
    pass@k  at least one of k is right          1 − C(n−c, k) / C(n, k)
    pass^k  all k are right                     C(c, k) / C(n, k)
    maj@k   the most frequent answer is right   summed exactly, see `maj_at_k`

n samples of the prompt, c of them right, k drawn without replacement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .samples import Vote

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
        draws = _binomial(size, k / n, votes)
        lead = draws[votes]
        led = _moved(chance, votes) * lead
        value = _behind(value, draws[:votes]) + _moved(value, votes) * lead + led * (right / size)
        chance = _behind(chance, draws[:votes]) + led
    return math.fsum(float(value[u, k]) / u for u in range(1, leaders + 1))


def _moved(table: NDArray[np.float64], votes: int) -> NDArray[np.float64]:
    """The table after one more leader with `votes` samples; entries beyond k samples are dropped."""
    out = np.zeros_like(table)
    out[1:, votes:] = table[:-1, : table.shape[1] - votes]
    return out


def _behind(table: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table after an answer that does not lead: it takes s samples with probability draws[s]."""
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


METRICS: Mapping[str, Callable[[Sequence[Vote], int], float]] = {
    "avg@k": _of_counts(avg_at_k),
    "pass@k": _of_counts(pass_at_k),
    "pass^k": _of_counts(pass_hat_k),
    "maj@k": maj_at_k,
}
