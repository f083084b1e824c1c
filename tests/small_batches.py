"""One small batch for the stages, from ragged lists."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import tokenpo

Ragged = Sequence[Sequence[float]]


def padded(rows: Ragged, width: int, fill: float = float("nan")) -> Tensor:
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=torch.float64)


@pytest.fixture
def batch() -> Callable[..., tokenpo.Batch]:
    """batch(ratios, advantage, old=..., **fields): tokens at these ratios to an old probability of `old`.

    `advantage` is one number a row; further [N, T] fields of `Rollouts` and `Policy` are ragged lists too.
    """

    def make(ratios: Ragged, advantage: Sequence[float], *, old: float = 0.25, **fields: Ragged) -> tokenpo.Batch:
        width = max(map(len, ratios))
        mask = torch.tensor([[t < len(row) for t in range(width)] for row in ratios])
        old_logprob = torch.full(mask.shape, old, dtype=torch.float64).log()
        logprob = (old_logprob + padded(ratios, width).log()).requires_grad_()
        given = {name: padded(rows, width) for name, rows in fields.items()}
        policy = {name: given.pop(name) for name in ("entropy", "entropy_drift") if name in given}
        n = len(advantage)
        rollouts = tokenpo.Rollouts(
            mask=mask, reward=torch.zeros(n), group=torch.zeros(n, dtype=torch.long), old_logprob=old_logprob, **given
        )
        a = torch.tensor(advantage, dtype=torch.float64)[:, None].expand(mask.shape)
        return tokenpo.Batch(
            rollouts=rollouts, credit=tokenpo.Credit(a), policy=tokenpo.Policy(logprob=logprob, **policy)
        )

    return make


@pytest.fixture
def rollouts() -> Callable[..., tokenpo.Rollouts]:
    """rollouts(lengths, reward, group): rows of these lengths, old log-probabilities -1, old entropies 0.3."""

    def make(
        lengths: Sequence[int], reward: Sequence[float], group: Sequence[int], dtype: torch.dtype = torch.float64
    ) -> tokenpo.Rollouts:
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        ones = torch.ones(mask.shape, dtype=dtype)
        rewards = torch.tensor(reward, dtype=dtype)
        return tokenpo.Rollouts(mask, rewards, torch.tensor(group), -ones, old_entropy=0.3 * ones)

    return make
