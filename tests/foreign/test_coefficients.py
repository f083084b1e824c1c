"""The effective coefficients c of ∇L = -mean[c ∇lp], from TRL's and verl's own functions by automatic differentiation.

A row holds what c is at the ratios of `RATIOS`, p_old = 0.1. A framework's function and ours both have to give it.
ASPO stands in neither framework; its rows are checked in its own tests.
Skipped where a framework is not importable; with both: `PYTHONPATH=src python -m pytest tests/foreign`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foreign_support import need
from oracle_support import RATIOS, Outcome, coefficients, single_tokens

# Clipped rows follow from the bounds. SAPO's are 4 s (1 - s) r of s = sigmoid(tau (r - 1)), to three digits.
GRPO = [0.3, 0.7, 0.9, 1, 1.1, 0, 0, 0]
GRPO_WRONG = [0, 0, -0.9, -1, -1.1, -1.3, -2, -4]
GRPO_DUAL_3 = [0, 0, -0.9, -1, -1.1, -1.3, -2, 0]
CISPO = [0.3, 0.7, 0.9, 1, 1.1, 1.2, 1.2, 1.2]
SAPO = [0.266, 0.684, 0.898, 1, 1.097, 1.271, 1.573, 0.723]
SAPO_WRONG = [-0.263, -0.683, -0.898, -1, -1.097, -1.268, -1.536, -0.630]
GMPO = [0.3, 0.7, 0.9, 1, 1.1, 1.3, 0, 0]  # inside e^±0.4, that is below 1.49 for A > 0
GMPO_WRONG = [0, -0.7, -0.9, -1, -1.1, -1.3, -2, -4]  # and above 0.67 for A < 0
DPPO_TV = [0.3, 0.7, 0.9, 1, 1.1, 1.3, 2, 0]  # |0.1 r - 0.1| <= 0.15 holds at 2, not at 4
DPPO_TV_WRONG = [-0.3, -0.7, -0.9, -1, -1.1, -1.3, -2, -4]  # lower by 0.07 at most

NO_DUAL = {"clip_ratio_c": 1e9}
ROWS: list[tuple[str, str, dict, str, dict, int, list[float]]] = [
    ("trl", "grpo", {}, "grpo", {}, 1, GRPO),
    ("trl", "grpo", {}, "grpo", {}, -1, GRPO_WRONG),
    ("trl", "dapo", {"delta": 3.0}, "dapo", {"high": 0.2, "dual": 3.0}, 1, GRPO),
    ("trl", "dapo", {"delta": 3.0}, "dapo", {"high": 0.2, "dual": 3.0}, -1, GRPO_DUAL_3),
    ("trl", "cispo", {"epsilon_high": 1.2}, "cispo", {"high": 0.2}, 1, CISPO),
    ("trl", "cispo", {"epsilon_high": 1.2}, "cispo", {"high": 0.2}, -1, [-c for c in CISPO]),
    ("trl", "sapo", {}, "sapo", {}, 1, SAPO),
    ("trl", "sapo", {}, "sapo", {}, -1, SAPO_WRONG),
    ("verl", "vanilla", NO_DUAL, "grpo", {}, 1, GRPO),
    ("verl", "vanilla", NO_DUAL, "grpo", {}, -1, GRPO_WRONG),
    ("verl", "vanilla", {"clip_ratio_c": 3.0}, "dapo", {"high": 0.2, "dual": 3.0}, -1, GRPO_DUAL_3),
    ("verl", "cispo", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.2}, "cispo", {"high": 0.2}, 1, CISPO),
    ("verl", "sapo", {}, "sapo", {}, 1, SAPO),
    ("verl", "sapo", {}, "sapo", {}, -1, SAPO_WRONG),
    ("verl", "geo_mean", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}, "gmpo", {}, 1, GMPO),
    ("verl", "geo_mean", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}, "gmpo", {}, -1, GMPO_WRONG),
    ("verl", "dppo_tv", {"clip_ratio_low": 0.15, "clip_ratio_high": 0.15, **NO_DUAL}, "dppo_tv", {}, 1, DPPO_TV),
    ("verl", "dppo_tv", {"clip_ratio_low": 0.15, "clip_ratio_high": 0.15, **NO_DUAL}, "dppo_tv", {}, -1, DPPO_TV_WRONG),
]


def _foreign(engine: str, theirs: str, advantage: np.ndarray, **settings: Any) -> Outcome:
    missing = f"{engine} is not installed: its effective coefficients were not compared with ours"
    need(engine, missing)
    if engine == "trl":
        from foreign_support import trl_trainer

        return trl_trainer.loss(single_tokens(), advantage, loss_type=theirs, **settings)
    from foreign_support import verl_losses

    return verl_losses.loss(theirs, single_tokens(), advantage, **settings)


@pytest.mark.parametrize(("engine", "theirs", "settings", "name", "options", "sign", "expected"), ROWS)
def test_coefficients(
    engine: str, theirs: str, settings: dict, name: str, options: dict, sign: int, expected: list[float]
) -> None:
    rows = len(RATIOS)
    foreign = _foreign(engine, theirs, np.full((rows, 1), float(sign)), **settings)
    got = -rows * foreign.gradient[:, 0]
    np.testing.assert_allclose(got, expected, atol=5e-4 if name == "sapo" else 1e-12)
    np.testing.assert_allclose(coefficients(name, float(sign), **options), got, rtol=1e-10, atol=1e-14)


def test_vespo_weighs_by_a_gamma_curve_that_is_1_at_ratio_1() -> None:
    """phi = e^(λ (1 - w)) w^k with (k, λ) = (2, 3) for A >= 0 and (3, 2) for A < 0; c = phi A, and w = r for one token.

    At r = 2: 4 e^-3 = 0.199 and 8 e^-2 = 1.083; at 0.3: 0.09 e^2.1 = 0.735 and 0.027 e^1.4 = 0.109.
    """
    for sign, k, rate, at_2, at_03 in ((1.0, 2, 3, 0.199, 0.735), (-1.0, 3, 2, 1.083, 0.109)):
        foreign = _foreign("trl", "vespo", np.full((len(RATIOS), 1), sign))
        got = -len(RATIOS) * foreign.gradient[:, 0]
        ratio = np.array(RATIOS)
        np.testing.assert_allclose(got, sign * np.exp(rate * (1 - ratio)) * ratio**k, rtol=1e-10)
        np.testing.assert_allclose(sign * got[[6, 0, 3]], [at_2, at_03, 1], atol=5e-4)
