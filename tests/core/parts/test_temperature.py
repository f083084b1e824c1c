"""HAPO's adaptive temperature: its scale, its rule, and no change without a scale."""

from __future__ import annotations

import json

import pytest
import torch

from tokenpo.base.errors import TokenPOError
from tokenpo.core.parts import AdaptiveTemperature
from tokenpo.core.types import Rollouts

# log H = 2, -1, 0, -3 with pivot 0 at quantile 0.6: z = raw / sqrt(3.5)
LOG = torch.tensor([[2.0, -1.0, 0.0, -3.0, 50.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, True, False]])


def after(rule: AdaptiveTemperature) -> dict[str, float]:
    """What the rule remembers of LOG under MASK."""
    rollouts = Rollouts(
        mask=MASK,
        reward=torch.zeros(1),
        group=torch.zeros(1, dtype=torch.long),
        old_logprob=-LOG.abs(),
        old_entropy=LOG.exp(),
    )
    return dict(rule.after(rule.start(), rollouts))


def test_it_remembers_plain_numbers() -> None:
    spread = 3.5**0.5
    state = after(AdaptiveTemperature(quantile=0.6))
    assert json.loads(json.dumps(state)) == state
    expected = {"pivot": 0, "spread": spread, "top": 2 / spread, "bottom": -3 / spread}
    assert state == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_rule_by_hand() -> None:
    """Base 0.8, tau 0.1: log H = 2 → 0.8 · 1.1; 1 → h = 1/2: 0.8 · 1.05; -1.5 → h = -1/2: 0.8 · 0.95; 0 → 0.8."""
    rule = AdaptiveTemperature(tau=0.1, quantile=0.6)
    scale = after(rule)
    seen = rule(torch.tensor([2.0, 1.0, -1.5, 0.0], dtype=torch.float64).exp(), 0.8, scale)
    assert seen.tolist() == pytest.approx([0.88, 0.84, 0.76, 0.8], rel=1e-14)


def test_rule_is_clamped_to_what_the_scale_has_seen() -> None:
    """log H = 9 is beyond the top and -9 beyond the bottom: 1 ± tau, no more."""
    rule = AdaptiveTemperature(tau=0.1, quantile=0.6)
    seen = rule(torch.tensor([9.0, -9.0], dtype=torch.float64).exp(), 1.0, after(rule))
    assert seen.tolist() == pytest.approx([1.1, 0.9], rel=1e-14)


def test_released_sign_never_cools() -> None:
    """log H = -1.5 and -9 heat by tau/2 and tau."""
    rule = AdaptiveTemperature(tau=0.1, quantile=0.6, released_sign=True)
    seen = rule(torch.tensor([2.0, -1.5, -9.0], dtype=torch.float64).exp(), 1.0, after(rule))
    assert seen.tolist() == pytest.approx([1.1, 1.05, 1.1], rel=1e-14)


def test_without_a_scale_nothing_changes() -> None:
    assert AdaptiveTemperature()(torch.tensor([0.1, 3.0]), 0.7, {}).tolist() == pytest.approx([0.7, 0.7])


@pytest.mark.parametrize("tau", [-0.01, 1.0, float("nan")])
def test_tau_must_keep_temperatures_positive(tau: float) -> None:
    with pytest.raises(TokenPOError, match=rf"^AdaptiveTemperature: tau is {tau}, expected a number in \[0, 1\)$"):
        AdaptiveTemperature(tau=tau)
