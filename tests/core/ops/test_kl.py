"""KL estimators at x = log 2, and the laws that name them: k1 and k3 unbiased, k2 a half square."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.ops import kl

LN2 = math.log(2)


@pytest.mark.parametrize(
    ("estimator", "at_ln2", "at_minus_ln2"),
    [
        (kl.k1, -LN2, LN2),
        (kl.k2, LN2**2 / 2, LN2**2 / 2),
        (kl.k3, 2 - 1 - LN2, 0.5 - 1 + LN2),
        (kl.absolute, LN2, LN2),
    ],
)
def test_by_hand(estimator, at_ln2: float, at_minus_ln2: float) -> None:
    seen = estimator(torch.tensor([LN2, -LN2, 0.0], dtype=torch.float64))
    assert seen.tolist() == pytest.approx([at_ln2, at_minus_ln2, 0.0], rel=1e-14, abs=0)


@pytest.mark.parametrize(
    ("estimator", "slope"),
    [(kl.k1, [-1.0, -1.0]), (kl.k2, [LN2, -LN2]), (kl.k3, [1.0, -0.5]), (kl.absolute, [1.0, -1.0])],
)
def test_gradient_by_hand(estimator, slope: list[float]) -> None:
    """−1; x; eˣ − 1; sign x."""
    x = torch.tensor([LN2, -LN2], dtype=torch.float64, requires_grad=True)
    estimator(x).sum().backward()
    assert x.grad.tolist() == pytest.approx(slope, rel=1e-14)


def test_a_distance_that_is_rounding_has_no_slope() -> None:
    """Two engines leave 1e-6 nats between the same policies: with a slope of ±1 their signs would be noise."""
    x = torch.tensor([1e-6, -1e-5, 0.0, 2e-5, -2e-5], dtype=torch.float64, requires_grad=True)
    value = kl.absolute(x)
    value.sum().backward()
    assert value.tolist() == [1e-6, 1e-5, 0.0, 2e-5, 2e-5]
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0, -1.0]


def test_k3_is_exact_for_small_steps() -> None:
    """At x = 1e-4 in float32, eˣ − 1 − x loses everything; expm1 keeps x²/2 + x³/6 = 5.00017e-9 to 1e-3 of itself."""
    x = torch.tensor(1e-4, dtype=torch.float32, requires_grad=True)
    seen = kl.k3(x)
    assert seen.item() == pytest.approx(5.00017e-9, rel=2e-3)
    seen.backward()  # eˣ − 1 in float32 is 1.00017e-4
    assert x.grad.item() == pytest.approx(1.000050e-4, rel=1e-6)


def test_k3_within_is_flat_where_a_bound_binds() -> None:
    """Reach ln 2, at most 0.2: at ln 2 the value 1 − ln 2 = 0.307 is cut to 0.2; −ln 2 gives ln 2 − 1/2 = 0.193; −3 is
    as far as −ln 2."""
    x = torch.tensor([LN2, -LN2, -3.0, 0.5], dtype=torch.float64, requires_grad=True)
    value = kl.k3_within(x, LN2, 0.2)
    value.sum().backward()
    assert value.tolist() == pytest.approx([0.2, LN2 - 0.5, LN2 - 0.5, math.exp(0.5) - 1.5], rel=1e-14)
    assert x.grad.tolist() == pytest.approx([0.0, -0.5, 0.0, math.exp(0.5) - 1], rel=1e-14)
