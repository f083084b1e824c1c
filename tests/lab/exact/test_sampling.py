"""What rollouts of a world carry beside their tokens, against plain sums over one group."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.objective import Objective
from tokenpo.lab.exact.contestant import Contestant, push
from tokenpo.lab.exact.sampling import rollouts, view, walk
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.methods import METHODS, method

WORLD = WORLDS["lucky_guess"]()
LOGP = WORLD.initial.log_softmax(-1)
SECOND = slice(8, 16)


@pytest.fixture(scope="module")
def batch():
    """The second of four groups: what is read of a group is not to hang on its number."""
    walked = walk(WORLD, WORLD.initial, 4, 8, torch.Generator().manual_seed(5), even=False).rows(SECOND)
    assert 0 < float(walked.reward.mean()) < 1 and not bool(walked.mask.all())
    return walked


def residual(state: int, token: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(token), LOGP.shape[1]) - LOGP[state].exp()


def test_influence(batch):
    """⟨g, g'⟩ of all tokens of right responses in the same state; other states have another h, which is orthogonal."""
    found = rollouts(WORLD, batch, WORLD.initial, frozenset({"influence"})).need("influence")
    tokens = [(i, t) for i, t in batch.mask.nonzero().tolist()]
    right = [(i, t) for i, t in tokens if batch.reward[i] > batch.reward.mean()]
    for i, t in tokens:
        state = int(batch.states[i, t])
        g = residual(state, int(batch.tokens[i, t]))
        others = [residual(state, int(batch.tokens[j, u])) for j, u in right if int(batch.states[j, u]) == state]
        assert float(found[i, t]) == pytest.approx(sum(float(g @ other) for other in others), abs=1e-12)


def test_divergence(batch):
    """mean_i Σ_v (exp(D) - D - 1), D = mean_j L_j - L_i, where a response that has ended is uniform."""
    found = rollouts(WORLD, batch, WORLD.initial, frozenset({"divergence"})).need("divergence")
    for t in range(WORLD.length):
        rows = [
            LOGP[batch.states[i, t]] if batch.mask[i, t] else torch.full_like(LOGP[0], -math.log(LOGP.shape[1]))
            for i in range(8)
        ]
        mean = torch.stack(rows).mean(0)
        expected = sum(float(((mean - row).exp() - (mean - row) - 1).sum()) for row in rows) / 8
        for i in range(8):
            assert float(found[i, t]) == pytest.approx(expected if batch.mask[i, t] else 0, abs=1e-12)


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


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs(name, batch):
    objective: Objective = method(name)
    contestant = Contestant(name, objective)
    learner = contestant.learner(WORLD)
    way = push(learner, contestant.begin(learner, WORLD, batch, WORLD.initial), batch, WORLD.initial)
    assert bool(way.isfinite().all())
