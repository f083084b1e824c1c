"""HAPO by hand, and what is special about it."""

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import agrees, assemble, by_hand, module, of, outcome, ragged, tensors


@pytest.mark.parametrize(
    ("right", "wrong", "falls_back"), [(1, 20, False), (4, 99, False), (4, 101, True), (1, 60, True)]
)
def test_lopsided_group_falls_back_to_grpo(right: int, wrong: int, falls_back: bool) -> None:
    """Right against wrong tokens: the right ones' (1 - μ) / σ is sqrt(wrong / right), and the limit is 5."""
    rng, shape = np.random.default_rng(0), (2, wrong)
    mask = np.arange(wrong) < np.array([[right], [wrong]])
    sample = of(mask, np.array([1.0, 0.0]), np.array([0, 0]), old_entropy=rng.gamma(1.0, size=shape))
    agrees("hapo", sample)
    token_mean = outcome("hapo", sample, beta=0.0).gradient
    plain = outcome("hapo", sample, beta=0.0, token_mean_advantage=False).gradient
    assert np.allclose(token_mean, plain, rtol=1e-12) == falls_back


# log H = 1, -4 | -3, -2, -1, 0: the 0.8 quantile of six is the fifth smallest, round(0.8 · 5) = 4, which is 0. So h is
# log H over s, and h^ = 1, -1 | -3/4, -1/2, -1/4, 0: s drops out of the normalisation.
LOG_H = [[1.0, -4.0], [-3.0, -2.0, -1.0, 0.0]]
RATIO = [[1.3, 1.0], [0.7, 0.9, 0.7, 20.0]]


def test_by_hand() -> None:
    """Token mean 2/6, variance (2 (2/3)² + 4 (1/3)²) / 6 = 2/9: A = (2/3, -1/3) / (sqrt(2/9) + 1e-6) = A0, A1.

    (0,0) h^ = 1: high 0.4, neutral to 1.2; 1.3 is outside: A0 · 2, not clipped at 1.4: 2.6 A0
    (0,1) h^ = -1: low 0.4; 1 is neutral: A0 · 0: nothing
    (1,0) h^ = -3/4: low 0.35, neutral from 0.825; 0.7 is outside: A1 stays, not clipped at 0.65: 0.7 A1
    (1,1) h^ = -1/2: low 0.3, neutral from 0.85; 0.9 is inside: A1 / 2: 0.45 A1
    (1,2) h^ = -1/4: low 0.25; 0.7 is outside the zone and clipped to 0.75: 0.75 A1, no gradient
    (1,3) h^ = 0: 20 meets the dual clip: 10 A1, no gradient
    """
    sd = np.sqrt(2 / 9) + 1e-6
    A0, A1 = 2 / 3 / sd, -1 / 3 / sd
    entropy = [list(np.exp(row)) for row in LOG_H]
    got = outcome("hapo", by_hand(RATIO, [1, 0], old_entropy=entropy))
    assert got.value == pytest.approx(-(2.6 * A0 + (0.7 + 0.45 + 0.75 + 10) * A1) / 6, rel=1e-10)
    expected = -np.array([[2.6 * A0, 0, 0, 0], [0.7 * A1, 0.45 * A1, 0, 0]]) / 6
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-10, atol=1e-14)


def test_released_sign_by_hand() -> None:
    """Divided by the minimum itself the least uncertain token gets +1: h^ = 1, 1 | 3/4, 1/2, 1/4, 0.

    All but the last widen above and are redistributed outside the zone. (0,1) at ratio 1 is inside: A0 stays. 0.7,
    0.89, 0.7 are below the zone's 0.9: A1 times 7/4, 3/2, 5/4, the first and last clipped at 0.8. h^ = 0 is as before.
    """
    sd = np.sqrt(2 / 9) + 1e-6
    A0, A1 = 2 / 3 / sd, -1 / 3 / sd
    ratio = [[1.3, 1.0], [0.7, 0.89, 0.7, 20.0]]
    entropy = [list(np.exp(row)) for row in LOG_H]
    got = outcome("hapo", by_hand(ratio, [1, 0], old_entropy=entropy), sign="released")
    total = 2.6 * A0 + A0 + (0.8 * 1.75 + 0.89 * 1.5 + 0.8 * 1.25 + 10) * A1
    assert got.value == pytest.approx(-total / 6, rel=1e-10)
    expected = -np.array([[2.6 * A0, A0, 0, 0], [0, 0.89 * 1.5 * A1, 0, 0]]) / 6
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-10, atol=1e-14)


def test_equal_lengths_leave_only_the_kind_of_standard_deviation() -> None:
    """Equal lengths: the token mean is the mean, and the population std is sqrt((G - 1) / G) of GRPO's."""
    sample = ragged(1, equal_lengths=True)
    sample = sample.rows(np.flatnonzero(sample.group == 7))  # five rollouts
    ours = outcome("hapo", sample, alpha=0.0, beta=0.0)
    dapo = outcome("dapo", sample, low=0.2, high=0.2)
    np.testing.assert_allclose(ours.gradient, dapo.gradient * np.sqrt(5 / 4), rtol=1e-5)


@pytest.mark.parametrize("sign", ["paper", "released"])
@pytest.mark.parametrize("options", [{}, {"quantile": 0.5, "tau": 0.2}, {"quantile": 1.0}])
def test_temperature_is_its_oracle(sign: str, options: dict) -> None:
    sample = ragged(0)
    rule = tokenpo.method("hapo", sign=sign, **options).temperature
    numbers = rule.after(rule.start(), assemble(tokenpo.method("hapo"), tensors(sample)).batch.rollouts)
    entropy = np.concatenate([[0.0, 1e-12, 50.0], np.random.default_rng(1).gamma(0.7, size=40), sample.old_entropy[0]])
    expected = module("hapo").temperature(sample.old_entropy[sample.mask], entropy, base=0.7, sign=sign, **options)
    got = rule(torch.tensor(entropy), 0.7, numbers)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10)


def test_temperature_by_hand() -> None:
    """q = 0, h^ = 1 at log H = 1, -1 at -4: T (1 ± 0.05); -1/2 half way down; clamped beyond; T without statistics."""
    rule = tokenpo.method("hapo").temperature
    sample = by_hand([[1.0] * 6], [1], old_entropy=np.exp([[1.0, -4, -3, -2, -1, 0]]))
    numbers = rule.after(rule.start(), assemble(tokenpo.method("hapo"), tensors(sample)).batch.rollouts)
    step = torch.tensor([1.0, -4, -2, 0, 3, -7], dtype=torch.float64).exp()
    np.testing.assert_allclose(rule(step, 2.0, numbers), [2.1, 1.9, 1.95, 2, 2.1, 1.9], rtol=1e-12)
    np.testing.assert_array_equal(rule(step, 2.0, {}), np.full(6, 2.0))
