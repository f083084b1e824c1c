"""KL estimators where rounding or bounds matter; by hand they are in tests/core/parts/test_penalties.py."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.ops import kl
from tokenpo.core.parts import K3Within

LN2 = math.log(2)


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
    value = K3Within(LN2, 0.2)(x)
    value.sum().backward()
    assert value.tolist() == pytest.approx([0.2, LN2 - 0.5, LN2 - 0.5, math.exp(0.5) - 1.5], rel=1e-14)
    assert x.grad.tolist() == pytest.approx([0.0, -0.5, 0.0, math.exp(0.5) - 1], rel=1e-14)
