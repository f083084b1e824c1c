"""One draw: the right distribution, the right statistics, never an impossible token."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.head.softmax_backend import trusted
from tokenpo.models.token_draw import draw, greedy

TOP = 1 - 2.0**-32


@pytest.mark.parametrize("vocabulary", [1, 2, 20, 1024, 1025, 1152, 3000])
def test_the_token_is_the_inverse_of_the_cumulative_distribution(vocabulary):
    g = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(50, vocabulary, generator=g, dtype=torch.float64) * 3
    uniform = torch.rand(50, generator=g, dtype=torch.float64)
    token = draw(logits, uniform, 0.8).token
    cumulative = torch.softmax(logits / 0.8, -1).cumsum(-1)
    assert torch.equal(token, (cumulative <= uniform.unsqueeze(-1)).sum(-1))


@pytest.mark.parametrize("vocabulary", [20, 2000])
def test_statistics_are_those_of_the_temperature_that_sampled(vocabulary):
    logits = torch.randn(9, vocabulary)
    got = draw(logits, torch.rand(9).double(), 0.6)
    logp = torch.log_softmax(logits.double() / 0.6, -1)
    torch.testing.assert_close(got.logprob.double(), logp.gather(-1, got.token[:, None])[:, 0], rtol=0, atol=2e-6)
    torch.testing.assert_close(got.entropy.double(), -(logp.exp() * logp).sum(-1), rtol=1e-5, atol=1e-6)
    assert got.temperature.tolist() == [pytest.approx(0.6)] * 9
    assert got.rollout_logprob is got.logprob


def test_a_rule_sees_the_entropy_at_the_base_temperature_and_sets_each_row_its_own():
    logits = torch.randn(5, 11, dtype=torch.float64)
    seen = {}

    def rule(entropy, base):
        seen.update(entropy=entropy, base=base)
        return base + torch.arange(5).double() / 10

    uniform = torch.rand(5, dtype=torch.float64)
    got = draw(logits, uniform, 0.9, rule)
    base = torch.log_softmax(logits / 0.9, -1)
    torch.testing.assert_close(seen["entropy"], -(base.exp() * base).sum(-1))
    assert seen["base"] == 0.9
    constant = base.gather(-1, got.token[:, None])[:, 0]
    torch.testing.assert_close(got.logprob, constant)
    torch.testing.assert_close(got.entropy, seen["entropy"])
    for row in range(5):
        alone = draw(logits[row : row + 1], uniform[row : row + 1], 0.9 + row / 10)
        for name in ("token", "temperature", "rollout_logprob"):
            torch.testing.assert_close(getattr(got, name)[row : row + 1], getattr(alone, name))
    assert (got.rollout_logprob - got.logprob)[1:].abs().min() > 1e-3


@pytest.mark.parametrize("vocabulary", [6, 2050, 2176])
@pytest.mark.parametrize("uniform", [0.0, 2.0**-32, 0.5, TOP])
def test_excluded_tokens_are_never_drawn(vocabulary, uniform):
    logits = torch.full((3, vocabulary), -math.inf)
    logits[0, 1] = 0.0
    logits[1, [2, vocabulary - 3]] = 0.0
    logits[2, [1, 4]] = torch.tensor([80.0, -80.0])
    token = draw(logits, torch.full((3,), uniform, dtype=torch.float64), 1.0).token
    assert torch.isfinite(logits[range(3), token]).all()
    assert int(token[1]) == (2 if uniform < 0.5 else vocabulary - 3)


def test_greedy_takes_the_first_maximum_with_statistics_at_temperature_one():
    logits = torch.tensor([[0.0, 2.0, 2.0], [5.0, 0.0, 0.0]])
    got = greedy(logits)
    assert got.token.tolist() == [1, 0] and got.temperature.tolist() == [1.0, 1.0]
    torch.testing.assert_close(got.logprob, torch.log_softmax(logits, -1)[[0, 1], [1, 0]])


def test_a_kernel_is_checked_on_its_device_after_a_model_was_loaded(lm):
    """Loading a model changes which functions follow `with torch.device(...)`."""
    seen = []

    def kernel(logits, scale, out, count):
        seen.extend(x.device.type for x in (logits, out))
        raise RuntimeError("seen")

    with pytest.warns(UserWarning, match="RuntimeError: seen"):
        trusted(kernel, torch.device("meta"), torch.float32)
    assert seen == ["meta", "meta"]
