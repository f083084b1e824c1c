"""One draw: the right distribution, the right statistics, never an impossible token. Addressed uniforms."""

import math

import pytest
import torch
import transformers

from tokenpo.core.head.kept import Cut
from tokenpo.train.models.token_draw import draw, draw_cut, greedy, uniforms

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


CUTS = [Cut(top_p=0.9), Cut(top_p=0.3), Cut(top_k=1), Cut(top_k=4), Cut(min_p=0.2), Cut(0.7, 6, 0.1), Cut(min_p=1.0)]


def sets(kept) -> list[set[int]]:
    return [{i for i in row if i >= 0} for row in kept.tolist()]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("vocabulary", [3, 20, 1000, 3000])
def test_a_cut_keeps_what_transformers_keeps(cut, vocabulary):
    """In its order: top-k, top-p of what is left, min-p; statistics are those of the logits that it passes on."""
    g = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(40, vocabulary, generator=g) * 3
    uniform = torch.rand(40, generator=g, dtype=torch.float64)
    passed = logits / 0.8
    warpers = [transformers.TopKLogitsWarper(cut.top_k)] if cut.top_k else []
    warpers += [transformers.TopPLogitsWarper(cut.top_p)] if cut.top_p < 1 else []
    warpers += [transformers.MinPLogitsWarper(cut.min_p)] if cut.min_p else []
    for warper in warpers:
        passed = warper(None, passed)
    got = draw_cut(logits, uniform, 0.8, cut)
    assert got.kept is not None
    assert sets(got.kept) == [set(row.isfinite().nonzero()[:, 0].tolist()) for row in passed]
    logp = torch.log_softmax(passed.double(), -1)
    torch.testing.assert_close(got.logprob.double(), logp.gather(-1, got.token[:, None])[:, 0], rtol=0, atol=3e-6)
    entropy = -torch.where(logp > -math.inf, logp.exp() * logp, 0.0).sum(-1)
    torch.testing.assert_close(got.entropy.double(), entropy, rtol=1e-5, atol=1e-5)
    assert got.rollout_logprob is got.logprob and got.temperature.tolist() == [pytest.approx(0.8)] * 40


def test_a_cut_by_hand():
    """Probabilities 8, 4, 2, 1, 1 of 16, the last two equal; the likeliest comes first, however small u is."""
    logits = torch.tensor([[2.0, 1.0, 8.0, 4.0, 1.0]]).log()

    def of(cut: Cut, u: float = 0.0):
        got = draw_cut(logits, torch.tensor([u], dtype=torch.float64), 1.0, cut)
        assert got.kept is not None
        return [i for i in got.kept[0].tolist() if i >= 0], int(got.token), math.exp(float(got.logprob))

    assert of(Cut(top_p=0.5)) == ([2], 2, 1.0)
    assert of(Cut(top_p=0.51)) == ([2, 3], 2, pytest.approx(8 / 12))
    assert of(Cut(top_p=0.51), 0.7) == ([2, 3], 3, pytest.approx(4 / 12))
    assert of(Cut(top_k=4), TOP) == ([2, 3, 0, 1], 1, pytest.approx(1 / 15))  # of equals the lower id
    assert of(Cut(min_p=0.25))[0] == [2, 3, 0]
    assert of(Cut(top_p=0.9, top_k=3))[0] == [2, 3, 0] and of(Cut(top_p=0.85, top_k=3))[0] == [2, 3]
    assert of(Cut(top_p=0.9, min_p=0.3))[0] == [2, 3]


@pytest.mark.parametrize("vocabulary", [6, 2050])
@pytest.mark.parametrize("u", [0.0, 0.5, TOP])
def test_a_cut_never_takes_an_excluded_token(vocabulary, u):
    logits = torch.full((2, vocabulary), -math.inf)
    logits[0, 1], logits[1, [2, 4]] = 0.0, torch.tensor([80.0, -80.0])
    for cut in (Cut(top_k=5), Cut(top_p=1 - 1e-9), Cut(top_k=5, min_p=1e-9)):
        got = draw_cut(logits, torch.full((2,), u, dtype=torch.float64), 1.0, cut)
        assert got.token.tolist() == [1, 2] and sets(got.kept) in ([{1}, {2}], [{1}, {2, 4}])
        assert got.logprob.tolist() == [0.0, 0.0]


def test_logits_that_are_not_finite_show_in_the_statistics():
    logits = torch.tensor([[0.0, math.nan, 1.0], [-math.inf] * 3])
    got = draw_cut(logits, torch.zeros(2).double(), 1.0, Cut(top_k=2))
    assert not torch.isfinite(got.logprob).any() and ((got.token >= 0) & (got.token < 3)).all()


def splitmix(key: int, step: int) -> float:
    """SplitMix64 in plain integers."""
    mask = 2**64 - 1
    z = (key + (step + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> 32) * 2.0**-32


def test_the_numbers_are_splitmix64():
    keys = torch.tensor([0, 1, -5, 2**62, -(2**63)])
    got = uniforms(keys, 3, 4)
    want = [[splitmix(k % 2**64, step) for k in keys.tolist()] for step in range(3, 7)]
    assert got.tolist() == want
