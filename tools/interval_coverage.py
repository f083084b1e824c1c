"""How often the 95 % intervals of an evaluation hold the truth, on prompts whose accuracy is known.

    python tools/interval_coverage.py

Each prompt's accuracy is drawn from a Beta distribution, its samples from that accuracy; the truth is the mean over
400,000 such prompts. Prints a Markdown table: the share of 1,000 evaluations whose interval holds the truth, with the
bias-corrected, accelerated and widened bootstrap beside it, which tells nothing where few prompts differ.
"""

from __future__ import annotations

import numpy as np

from tokenpo.base.intervals import bootstrap, mean_of_shares
from tokenpo.evidence.evaluate.estimators import pass_at_k, pass_hat_k

SAMPLES, K, EVALUATIONS, RESAMPLES = 16, 4, 1000, 1000
KINDS = {
    "nearly all solved": (3.0, 0.2), "most solved or not": (0.3, 0.7), "in between": (2.0, 2.0),
    "most never solved": (0.1, 1.5),
}  # fmt: skip
STATISTICS = {
    "avg@16": (lambda c: c / SAMPLES, lambda p: p),
    "pass@4": (lambda c: pass_at_k(SAMPLES, c, K), lambda p: 1 - (1 - p) ** K),
    "pass^4": (lambda c: pass_hat_k(SAMPLES, c, K), lambda p: p**K),
}


def coverage(prompts: int, a: float, b: float, statistic: str) -> tuple[float, float]:
    """Shares of evaluations whose interval holds the truth: ours, the bootstrap's."""
    generator = np.random.default_rng(0)
    estimate, exact = STATISTICS[statistic]
    truth = float(exact(generator.beta(a, b, 400_000)).mean())
    ours = resampled = 0
    for seed in range(EVALUATIONS):
        right = generator.binomial(SAMPLES, generator.beta(a, b, prompts))
        values = [estimate(int(c)) for c in right]
        found = mean_of_shares(values)
        low, high = bootstrap(values, seed, RESAMPLES) if min(values) < max(values) else (found.low, found.high)
        ours += found.low <= truth <= found.high
        resampled += low <= truth <= high
    return ours / EVALUATIONS, resampled / EVALUATIONS


def main() -> None:
    print("| prompts | accuracy of a prompt | number | ours | bootstrap |\n| --- | --- | --- | --- | --- |")
    for prompts in (10, 30, 100):
        for kind, (a, b) in KINDS.items():
            for statistic in STATISTICS:
                ours, resampled = coverage(prompts, a, b, statistic)
                print(f"| {prompts} | {kind} | {statistic} | {ours:.3f} | {resampled:.3f} |", flush=True)


if __name__ == "__main__":
    main()
