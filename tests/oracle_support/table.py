"""The effective coefficient c of ∇L = -mean[c ∇lp] over a fixed row of ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

import tokenpo

from .batches import Sample, by_hand
from .running import run

RATIOS = (0.3, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 4.0)


def single_tokens() -> Sample:
    """One-token rollouts at `RATIOS` with p_old = 0.1, whose policy was also the sampler and the reference."""
    rows = len(RATIOS)
    sample = by_hand([[r] for r in RATIOS], [0.0] * rows, [0] * rows, p_old=0.1)
    return sample.but(rollout_logprob=sample.old_logprob, ref_logprob=sample.logprob)


def coefficients(name: str, advantage: float, **options: Any) -> np.ndarray:
    """[8] c of `single_tokens`."""
    rows = len(RATIOS)
    got = run(tokenpo.method(name, **options), single_tokens(), advantage=np.full((rows, 1), advantage))
    return -rows * got.gradient[:, 0]
