"""The effective coefficient of a token."""

import dataclasses

import numpy as np
import pytest
import torch

import tokenpo
from tokenpo.core.parts import Clip, FixedBounds
from tokenpo.lab.coefficient import MEAN_ENTROPY, ROWS, TOKENS, coefficients, entropy_at
from tokenpo.methods import METHODS

# Apart from every bound that a method has, so that no rounding decides.
FINE = np.array([0.05, 0.21, 0.55, 0.77, 0.83, 0.95, 1.0, 1.05, 1.17, 1.23, 1.33, 1.61, 2.9, 6.3, 9.7])


# Middles of tenths of the companions' entropies.
def c(name: str, advantage: float, ratio=FINE, *, given: dict | None = None, **options) -> np.ndarray:
    """c of a method over the ratios, for one advantage."""
    table = coefficients(tokenpo.method(name, **options), ratio, [advantage], **(given or {}))
    return table[..., 0, :].numpy()


def companions() -> np.ndarray:
    """Their entropies: the middles of equal shares of an exponential distribution with mean 0.5 nats."""
    n = ROWS * TOKENS
    return -MEAN_ENTROPY * np.log1p(-(np.arange(n) + 0.5) / n)


def test_entropy_is_compared_with_the_companions():
    """HAPO at ratio 1, A = 1, below the pivot: c = 1 + h, h = (log H - pivot) / (pivot - min log H).

    Forking tokens keep the highest fifth; the response's own token is one of all.
    """
    for entropy in (0.02, 0.2, 0.7):
        values = np.sort(np.log([entropy, *companions()]))
        pivot = values[round(0.8 * (len(values) - 1))]
        got = c("hapo", 1.0, [1.0], given={"old_entropy": entropy})
        assert got == pytest.approx(1 + (np.log(entropy) - pivot) / (pivot - values[0]), rel=1e-12)
    assert c("forking_tokens", 1.0, [1.0], given={"old_entropy": entropy_at(0.799)}) == 0
    assert c("forking_tokens", 1.0, [1.0], given={"old_entropy": entropy_at(0.801)}) == 1


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_finite_table_whose_cells_stand_alone(name):
    ratio, advantage = [0.01, 0.7, 1.0, 4.0, 10.0], [2.0, 0.0, -0.3]
    objective = tokenpo.method(name)
    single = coefficients(objective, ratio, advantage)
    assert single.shape == (3, 5) and single.dtype == torch.float64 and torch.isfinite(single).all()
    assert not torch.signbit(single[single == 0]).any()
    alone = [[coefficients(objective, [r], [a]).item() for r in ratio[1::2]] for a in advantage]
    np.testing.assert_allclose(single[:, 1::2], alone, rtol=1e-13, atol=1e-15)


CLIPPED = [m for m in METHODS if isinstance(getattr(tokenpo.method(m).surrogate, "bounds", None), FixedBounds)]


@pytest.mark.parametrize("name", [m for m in CLIPPED if isinstance(tokenpo.method(m).surrogate, Clip)])
def test_a_clip_cuts_where_its_bounds_say(name):
    """c / A of a clipped surrogate without penalties: 0 beyond the bound on the side of A, positive inside.

    Every ratio of the table is r for a single token; weights that drop the token are left out.
    """
    objective, r = tokenpo.method(name, **({"upper": 1.0} if name == "tr_grpo" else {})), FINE
    bounds, dual = objective.surrogate.bounds, objective.surrogate.dual or np.inf
    table = coefficients(dataclasses.replace(objective, penalties=(), weights=()), FINE, [1.0, -1.0]).numpy()
    np.testing.assert_allclose(table[0], np.where(r <= 1 + bounds.high, r, 0), rtol=1e-12)
    np.testing.assert_allclose(table[1], np.where((r >= 1 - bounds.low) & (r <= dual), -r, 0), rtol=1e-12)


class Plain:
    """The policy gradient A r, by the protocol alone; reads no optional input and says nothing of its scope."""

    needs = frozenset()

    def prepare(self, rollouts: tokenpo.Rollouts) -> tokenpo.Credit:
        return tokenpo.Credit(torch.where(rollouts.mask, torch.nan, 0.0).double())

    def loss(self, batch: tokenpo.Batch, totals: tokenpo.Totals) -> tokenpo.Loss:
        assert torch.equal(batch.credit.advantage > 0, (batch.rollouts.reward > 0)[:, None] & batch.mask)
        assert torch.equal(batch.credit.advantage != 0, batch.mask)
        assert (batch.policy.logprob <= 0).all()
        ratio = (batch.policy.logprob - batch.rollouts.old_logprob).exp()
        value = -(ratio * batch.credit.advantage)[batch.mask].sum() * 7
        return tokenpo.Loss(value, {"coefficient": torch.full_like(ratio.detach(), 7.0)})


def test_an_outside_objective_needs_the_protocol_alone():
    with torch.no_grad():
        table = tokenpo.coefficients(Plain(), torch.tensor([0.5, 2.0]), (3.0, -1.0))
    np.testing.assert_allclose(table, [[1.5, 6], [-0.5, -2]], rtol=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "given", "message"),
    [
        ([], [1.0], {}, "ratio must be a flat list"),
        ([1.0], [float("inf")], {}, "advantage must be"),
        ([0.0], [1.0], {}, r"ratios must lie in \(0, 10\]"),
        ([5.1], [1.0], {"old_prob": 0.2}, r"ratios must lie in \(0, 5\]"),
        ([1.0], [1.0], {"old_prob": 0.0}, r"old_prob = 0.0 must lie in \(0, 1\]"),
        ([1.0], [1.0], {"entropy": -0.1}, "entropies must be finite and >= 0"),
    ],
)
def test_mistakes_are_named(ratio, advantage, given, message):
    with pytest.raises(tokenpo.TokenPOError, match=message):
        coefficients(tokenpo.method("grpo"), ratio, advantage, **given)
    with pytest.raises(tokenpo.TokenPOError, match=r"quantile = 1 must lie in \[0, 1\)"):
        entropy_at(1)
