"""HAPO's adaptive temperature: its scale, its rule, and no change without a scale."""

from __future__ import annotations

import json

import pytest
import torch

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


@pytest.mark.parametrize(
    ("base", "released", "log_entropy", "expected"),
    [
        # log H = 2 is the top, 1 half of it, -1.5 half of the bottom
        (0.8, False, [2.0, 1.0, -1.5, 0.0], [0.88, 0.84, 0.76, 0.8]),
        (1.0, False, [9.0, -9.0], [1.1, 0.9]),  # beyond what the scale has seen: 1 ± tau, no more
        (1.0, True, [2.0, -1.5, -9.0], [1.1, 1.05, 1.1]),  # the released sign never cools
    ],
)
def test_rule_by_hand(base: float, released: bool, log_entropy: list[float], expected: list[float]) -> None:
    rule = AdaptiveTemperature(tau=0.1, quantile=0.6, released_sign=released)
    seen = rule(torch.tensor(log_entropy, dtype=torch.float64).exp(), base, after(rule))
    assert seen.tolist() == pytest.approx(expected, rel=1e-14)


def test_without_a_scale_nothing_changes() -> None:
    assert AdaptiveTemperature()(torch.tensor([0.1, 3.0]), 0.7, {}).tolist() == pytest.approx([0.7, 0.7])
