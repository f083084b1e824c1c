"""ARM by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import Sample, moves, of, outcome, ragged, run


def _sample(probabilities: list[list[float]], reward: list[float], group: list[int], prompt: list[float]) -> Sample:
    """Responses of these token probabilities at ratio 1, to prompts of these confidences."""
    width = max(map(len, probabilities))
    mask = np.arange(width) < np.array([[len(row)] for row in probabilities])
    lp = np.log([[*row, *[1.0] * (width - len(row))] for row in probabilities])
    return of(mask, np.array(reward), np.array(group), old_logprob=lp, logprob=lp, prompt_logprob=np.log(prompt))


def _advantages(sample: Sample, **options) -> list[float]:
    return outcome("arm", sample, **options).terms["advantage"][:, 0].tolist()


A = 0.5 / (np.sqrt(0.5) + 1e-6)  # of rewards 1 and 0: ±A
PAIR = _sample([[0.9, 0.9, 0.1, 0.9, 0.9], [0.9, 0.2, 0.9, 0.9, 0.8, 0.9]], [1, 0], [0, 0], [0.5, 0.5])


def test_by_hand() -> None:
    """Five tokens: one counts, c = 0.1. Six: ceil(1.2) = 2, c = sqrt(0.2 · 0.8) = 0.4. c(q) = 0.5: the shifts are
    alpha · 0.4 and alpha · 0.1. At ratio 1 the gradient is -A / 11."""
    assert _advantages(PAIR, alpha=1.0) == pytest.approx([A + 0.4, -A + 0.1], rel=1e-12)
    assert _advantages(PAIR) == pytest.approx([A + 0.04, -A + 0.01], rel=1e-12)
    moves(
        "arm",
        PAIR,
        -(5 * (A + 0.4) + 6 * (-A + 0.1)) / 11,
        np.where(PAIR.mask, [[-(A + 0.4) / 11], [(A - 0.1) / 11]], 0),
        alpha=1.0,
    )


def test_only_correct_leaves_the_others_alone() -> None:
    assert _advantages(PAIR, alpha=1.0, only_correct=True) == pytest.approx([A + 0.4, -A], rel=1e-12)


def test_a_fraction_of_one_takes_every_token() -> None:
    """Geometric means (0.9^4 · 0.1)^(1/5) and (0.9^4 · 0.2 · 0.8)^(1/6)."""
    c = [(0.9**4 * 0.1) ** (1 / 5), (0.9**4 * 0.16) ** (1 / 6)]
    assert _advantages(PAIR, alpha=1.0, fraction=1.0) == pytest.approx([A + 0.5 - c[0], -A + 0.5 - c[1]], rel=1e-12)


def test_the_prompt_has_one_number_per_rollout() -> None:
    sample = ragged(0)
    with pytest.raises(tokenpo.MissingInput, match=r"arm needs prompt_logprob: .* with shape \[N\]$"):
        run(tokenpo.method("arm"), sample, inputs=())
