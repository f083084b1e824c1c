"""What rollouts of a world carry beside their tokens, against plain sums over one group.

Credit from a value over every response of a world.
"""

import dataclasses

import pytest
import torch
from torch import Tensor

from enumerated import enumerated
from tokenpo.core.parts import Gae
from tokenpo.lab.exact.measures import direction
from tokenpo.lab.exact.policy import Walk, gradient, lacking, rollouts, view, walk
from tokenpo.lab.exact.worlds import WORLDS, World
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


REFUSED = {*"vineppo spo ospo igrpo remax thr nthr tw_grpo arm opd gkd rlsd sdar sdpo rto".split()}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_or_is_refused(name, batch):
    assert bool(lacking(method(name))) == (name in REFUSED)
    if name not in REFUSED:
        assert bool(direction(method(name), WORLD, batch, WORLD.initial).isfinite().all())


OPEN = ["free_length", "two_modes", "lucky_guess"]  # responses of different lengths, forks, and rewards by luck


def _miss(world: World, credit: Gae, wrong: float = 0.0) -> float:
    """|E Σ_t A_t ∇lp_t − ∇J| / |∇J|, with the exact value and noise of this size on it, a number for each state."""
    every, logits = enumerated(world), world.initial.clone().requires_grad_()
    batch = Walk(every.states, every.tokens, every.mask, every.reward, torch.arange(len(every.reward)))
    facts = rollouts(world, batch, world.initial, frozenset({"value"}))
    noise = torch.randn(len(world.states), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    facts = dataclasses.replace(facts, value=facts.need("value") + wrong * noise[every.states])
    advantage = credit(facts, torch.zeros_like(facts.reward))
    taken: Tensor = logits.log_softmax(-1)[every.states, every.tokens] * every.mask
    chance = world.shares[every.prompt] * taken.detach().sum(1).exp()
    (expected,) = torch.autograd.grad((chance[:, None] * advantage * taken).sum(), logits)
    truth = gradient(world, logits)
    return float((expected - truth).norm() / truth.norm())


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_with_the_exact_value_every_fixed_lambda_is_exact(name, lam):
    assert _miss(WORLDS[name](), Gae(lam=lam, whitened=False)) < 1e-12


@pytest.mark.parametrize("name", OPEN)
def test_with_a_wrong_value_only_lambda_one_is_exact(name):
    """And the further from one the worse."""
    misses = [_miss(WORLDS[name](), Gae(lam=lam, whitened=False), wrong=0.3) for lam in (1.0, 0.9, 0.5, 0.0)]
    assert misses[0] < 1e-12
    assert 3e-3 < misses[1] < misses[2] < misses[3]
