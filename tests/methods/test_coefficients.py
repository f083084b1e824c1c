"""The effective coefficient c of ∇L = -mean[c ∇lp], by hand, of one-token responses at A = 1 and A = -1."""

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, run

RATIOS = (0.3, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 4.0)
# p_old is 0.1: for dppo_kl KL(0.1 | p) at p = 0.03 ... 0.4 is 0.053 0.007 0 0 0 0.004 0.037 0.226
CASES = [
    ("grpo", {}, [0.3, 0.7, 0.9, 1, 1.1, 0, 0, 0], [0, 0, 0.9, 1, 1.1, 1.3, 2, 4]),
    ("dapo", {"high": 0.2, "dual": 3.0}, [0.3, 0.7, 0.9, 1, 1.1, 0, 0, 0], [0, 0, 0.9, 1, 1.1, 1.3, 2, 0]),
    # right answers: the ratio is turned over
    ("aspo", {}, [3, 1 / 0.7, 1 / 0.9, 1, 1 / 1.1, 0, 0, 0], [0, 0, 0.9, 1, 1.1, 1.3, 2, 3]),
    # constant outside
    ("ce_gppo", {"beta1": 0.5}, [0.3, 0.7, 0.9, 1, 1.1, 1.2, 1.2, 1.2], [0.4, 0.4, 0.9, 1, 1.1, 1.3, 2, 4]),
    ("cispo", {"high": 0.2}, [0.3, 0.7, 0.9, 1, 1.1, 1.2, 1.2, 1.2], [0.3, 0.7, 0.9, 1, 1.1, 1.2, 1.2, 1.2]),
    ("cispo", {"high": 1.2, "absolute": True},
     [0.3, 0.7, 0.9, 1, 1.1, 1.2, 1.2, 1.2], [0.3, 0.7, 0.9, 1, 1.1, 1.2, 1.2, 1.2]),
    # with one token s = r: half of it is cut off beyond GSPO's clip, the other half beyond the token's
    *(
        ("dhpo", {"form": form}, [0.3, 0.7, 0.9, 1, 0.55, 0, 0, 0], [0, 0, 0.45, 1, 1.1, 1.3, 2, 4])
        for form in ("mix_of_mins", "min_of_mixes")
    ),
    ("dppo_kl", {}, [0.3, 0.7, 0.9, 1, 1.1, 1.3, 2, 0], [0, 0.7, 0.9, 1, 1.1, 1.3, 2, 4]),
    # p = 0.1 cannot fall by 0.15
    ("dppo_tv", {}, [0.3, 0.7, 0.9, 1, 1.1, 1.3, 2, 0], [0.3, 0.7, 0.9, 1, 1.1, 1.3, 2, 4]),
    # e^0.4 = 1.49, e^-0.4 = 0.67
    ("gmpo", {}, [0.3, 0.7, 0.9, 1, 1.1, 1.3, 0, 0], [0, 0.7, 0.9, 1, 1.1, 1.3, 2, 4]),
    # zero outside, whatever the sign
    ("rollout_is", {}, [0, 0, 0.9, 1, 1.1, 0, 0, 0], [0, 0, 0.9, 1, 1.1, 0, 0, 0]),
    *(
        ("topr", {"level": level}, [1] * 8, [0.3, 0.7, 0.9, 1, 1, 1, 1, 1])
        for level in ("sequence", "token")
    ),
]  # fmt: skip


def coefficients(name: str, advantage: float, **options) -> np.ndarray:
    """[8] c of one-token rollouts with p_old = 0.1, whose old policy was the sampler and current one the reference."""
    rows = len(RATIOS)
    sample = by_hand([[r] for r in RATIOS], [0.0] * rows, p_old=0.1)
    sample = sample.but(rollout_logprob=sample.old_logprob, ref_logprob=sample.logprob)
    return -rows * run(tokenpo.method(name, **options), sample, advantage=np.full((rows, 1), advantage)).gradient[:, 0]


@pytest.mark.parametrize(("name", "options", "right", "wrong"), CASES)
def test_effective_coefficient(name: str, options: dict, right: list[float], wrong: list[float]) -> None:
    np.testing.assert_allclose(coefficients(name, 1.0, **options), right, rtol=1e-12)
    np.testing.assert_allclose(coefficients(name, -1.0, **options), np.negative(wrong), rtol=1e-12)


def test_effective_coefficient_of_sapo() -> None:
    """4 σ (1 - σ) r with σ = σ(τ (r - 1)), τ = 1 and 1.05, to three places."""
    right = [0.266, 0.684, 0.898, 1, 1.097, 1.271, 1.573, 0.723]
    wrong = [0.263, 0.683, 0.898, 1, 1.097, 1.268, 1.536, 0.63]
    np.testing.assert_allclose(coefficients("sapo", 1.0), right, atol=5e-4)
    np.testing.assert_allclose(coefficients("sapo", -1.0), np.negative(wrong), atol=5e-4)
