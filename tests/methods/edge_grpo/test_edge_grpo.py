"""EDGE-GRPO by hand, and what is special about it."""

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import by_hand, moves, outcome


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). Mean entropies 1, 2, 6, their mean 3: A = 3 a, 0, -a / 2.

    Row 0: 1.1 and 1.5 clipped at 1.2. Row 2: 1.
    """
    a = 1 / (1 + 1e-6)
    entropy = [[0.5, 1.5], [2], [6]]
    moves(
        "edge_grpo",
        by_hand([[1.1, 1.5], [1.3], [1]], [2, 1, 0], old_entropy=entropy),
        -(1.15 * 3 - 0.5),
        [[-1.65, 0], [0, 0], [0.5, 0]],
        unit=a / 3,
    )


def test_eps_by_hand() -> None:
    """Rewards 1, 0: a deviation of 1 / sqrt 2, and eps 0.5 beside it; equal entropies; both ratios 1."""
    sample = by_hand([[1.0], [1.0]], [1, 0], old_entropy=[[1.0], [1.0]])
    a = 0.5 / (np.sqrt(0.5) + 0.5)
    np.testing.assert_allclose(outcome("edge_grpo", sample, eps=0.5).gradient, [[-a / 2], [a / 2]], rtol=1e-12)


def _sure(gap: float, moved: float = 0.0) -> tuple[float, float]:
    """(advantage, norm of the gradient in the logits) of a wrong response of one token of ten, its logit `gap` above
    the others when it was sampled and `moved` lower at the update, beside a right one whose ten logits are equal."""
    old = torch.zeros(2, 1, 10, dtype=torch.float64)
    old[0, 0, 0] = gap
    logprob = old.log_softmax(-1)
    now = old.clone()
    now[0, 0, 0] -= moved
    now.requires_grad_()
    objective, mask = tokenpo.method("edge_grpo"), torch.ones(2, 1, dtype=torch.bool)
    rollouts = tokenpo.Rollouts(
        mask=mask, reward=torch.tensor([0.0, 1.0]), group=torch.tensor([0, 0]), old_logprob=logprob[:, :, 0],
        old_entropy=-(logprob.exp() * logprob).sum(-1),
    )  # fmt: skip
    credit, policy = objective.prepare(rollouts), tokenpo.Policy(logprob=now.log_softmax(-1)[:, :, 0])
    batch = tokenpo.Batch(rollouts=rollouts, credit=credit, policy=policy)
    objective.loss(batch, tokenpo.Totals.of(rollouts, length=1)).value.backward()
    assert now.grad is not None
    return float(credit.advantage[0, 0]), float(now.grad[0].norm())


def test_a_sure_response_has_a_vast_advantage_and_a_small_gradient() -> None:
    """What the page says: at the policy that sampled, the gradient of lp falls with the entropy; later it need not.

    p = 1 / (1 + 9 exp(-gap)), q = 1 - p shared by nine others: the norm of the gradient of lp is sqrt(q² + q²/9).
    """
    a = np.sqrt(0.5) / (1 + 1e-6 / np.sqrt(0.5))
    for gap in (5.0, 10.0, 20.0):
        q = 9 / (9 + np.exp(gap))
        entropy = -(1 - q) * np.log1p(-q) - q * np.log(q / 9)
        vast = -a * (entropy + np.log(10)) / 2 / entropy
        advantage, gradient = _sure(gap)
        assert advantage == pytest.approx(vast, rel=1e-6)
        assert gradient == pytest.approx(-vast / 2 * q * np.sqrt(10 / 9), rel=1e-6)
    assert _sure(20.0)[0] < -2e6 and _sure(20.0)[1] < _sure(10.0)[1] < _sure(5.0)[1] < 0.1
    assert _sure(25.0, moved=10.0)[1] > 100
