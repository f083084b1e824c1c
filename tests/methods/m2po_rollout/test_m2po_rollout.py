"""M2PO on the sampler's log-probabilities against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"threshold": 5e-5}, {"threshold": 0.0}, {"threshold": 1e-5, "high": 0.4}])
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("m2po_rollout", ragged(seed), **options)


def test_by_hand() -> None:
    """Squares 0.01, 0.09, 0.36 and 0.04: all have mean 0.125, without the largest 0.0467, without 0.09 too 0.025."""
    old = np.log(0.25)
    sample = by_hand(
        [[1.0, 1.0, 1.0], [1.0]], [1, 0], [0, 0],
        rollout_logprob=[[old + 0.1, old - 0.3, old + 0.6], [old - 0.2]],
    )  # fmt: skip
    for threshold, kept in ((0.2, [[1, 1, 1], [1]]), (0.1, [[1, 1, 0], [1]]), (0.04, [[1, 0, 0], [1]])):
        got = run(tokenpo.method("m2po_rollout", threshold=threshold), sample).terms["weight"]
        assert [got[0].tolist(), got[1][:1].tolist()] == kept


def test_without_a_threshold_it_is_dapo_with_these_bounds() -> None:
    sample = ragged(1)
    dapo = run(tokenpo.method("dapo", high=0.2, dual=None), sample)
    close(run(tokenpo.method("m2po_rollout", threshold=np.inf), sample), dapo, rtol=1e-12)


def test_where_sampler_and_old_policy_agree_nothing_is_dropped() -> None:
    sample = ragged(1)
    same = sample.but(rollout_logprob=sample.old_logprob)
    assert (run(tokenpo.method("m2po_rollout"), same).terms["weight"][sample.mask] == 1).all()
