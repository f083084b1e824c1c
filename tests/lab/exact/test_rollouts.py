"""What rollouts of a world carry beside their tokens, against plain sums over one group."""

import pytest
import torch

from tokenpo.lab.exact.measures import direction, lacking, view, walk
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.methods import METHODS, method

WORLD = WORLDS["lucky_guess"]()
LOGP = WORLD.initial.log_softmax(-1)
SECOND = slice(8, 16)


@pytest.fixture(scope="module")
def batch():
    """The second of four groups: what is read of a group is not to hang on its number."""
    walked = walk(WORLD, WORLD.initial, 4, 8, torch.Generator().manual_seed(5)).rows(SECOND)
    assert 0 < float(walked.reward.mean()) < 1 and not bool(walked.mask.all())
    return walked


def test_the_policy_is_seen_as_it_is(batch):
    """Entropy H and its drift Σ_v p² (log p + H), token by token."""
    result = view(WORLD.initial, batch, frozenset({"entropy", "entropy_drift"}))
    p = LOGP.exp()
    for i, t in batch.mask.nonzero().tolist():
        state, token = int(batch.states[i, t]), int(batch.tokens[i, t])
        entropy = float(-(p[state] * LOGP[state]).sum())
        assert float(result.logprob[i, t]) == pytest.approx(float(LOGP[state, token]), rel=1e-14)
        assert float(result.need("entropy")[i, t]) == pytest.approx(entropy, rel=1e-12)
        drift = float((p[state] ** 2 * (LOGP[state] + entropy)).sum())
        assert float(result.need("entropy_drift")[i, t]) == pytest.approx(drift, rel=1e-12)


REFUSED = {*"vineppo spo ospo igrpo remax thr nthr tw_grpo arm opd gkd iw_opd rlsd sdar sdpo rto decoupled".split()}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_or_is_refused(name, batch):
    assert bool(lacking(method(name))) == (name in REFUSED)
    if name not in REFUSED:
        assert bool(direction(method(name), WORLD, batch, WORLD.initial).isfinite().all())
