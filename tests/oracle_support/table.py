"""The effective coefficient c of ∇L = -mean[c ∇lp] over a fixed row of ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

import tokenpo

from .batches import by_hand
from .running import run

RATIOS = (0.3, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 4.0)


def coefficients(name: str, advantage: float, **options: Any) -> np.ndarray:
    """[8] c at `RATIOS`: one-token rollouts at p_old = 0.1, whose policy was also the sampler and the reference."""
    rows = len(RATIOS)
    sample = by_hand([[r] for r in RATIOS], [0.0] * rows, [0] * rows, p_old=0.1)
    sample = sample.but(rollout_logprob=sample.old_logprob, ref_logprob=sample.logprob)
    got = run(tokenpo.method(name, **options), sample, advantage=np.full((rows, 1), advantage))
    return -rows * got.gradient[:, 0]
