"""Influence, divergence and confidence in the prompt against double sums over full forward passes in float64."""

import dataclasses
import math

import pytest
import torch

import tokenpo
from oracle_support.group_stats import naive_collision, naive_divergence, naive_influence, naive_prompt_logprob
from tokenpo.core.head.softmax import wide
from tokenpo.methods.contrib.weights import GroupDivergence, Influence, PromptLogprob
from tokenpo.train.models import Samples, Sampling, load, sample
from tokenpo.train.models.score import MAX_TOKENS
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.loop import train
from tokenpo.train.run.step import View
from tokenpo.train.run.supplied import Forwarded

FAMILIES = ["qwen3", "mistral_window", "gemma2_softcap", "cohere2_scale", "gpt2"]
PLAIN = [family for family in FAMILIES if family not in {"gemma2_softcap", "cohere2_scale"}]
# Only GPT-2 stays in float64 throughout; the norms of the others pass through float32.
PRECISION = {"gpt2": 1e-10}
# Five groups of four: mixed, mixed with values between, all right, mixed with one right, all wrong. The −9 would lower
# the mean of its group below 0, did it count where its response has no token (`holes`).
REWARD = torch.tensor([[1, 0, 1, 0], [0.9, 0.6, -9, 0], [1, 1, 1, 1], [0, 0, 0, 1], [0.1, 0.1, 0.1, 0.1]]).flatten()


@pytest.fixture
def double(make_model):
    return lambda family="gpt2", **options: load(make_model(family, **options), dtype="float64")


@pytest.fixture
def rollouts(prompts):
    """Four responses of unequal length to each prompt, every token at a temperature of its own."""

    def make(lm) -> Samples:
        samples = sample(lm, prompts, 4, Sampling(9, 0.9, seed=4), rule=lambda h, base: base + 0.3 * torch.tanh(h))
        assert samples.mask.sum(1).unique().numel() > 3
        return samples

    return make


def supplied(part, lm, prompts, owner, ids, mask, heat=None, reward=None, max_tokens=MAX_TOKENS) -> torch.Tensor:
    """The input that a part supplies, from forward passes alone; at temperature 1 where none is given."""
    n, heat = len(mask), torch.ones(mask.shape) if heat is None else heat
    rollouts = object.__new__(tokenpo.Rollouts)  # unchecked, as a mask may be empty
    vars(rollouts).update(
        mask=mask, group=owner, token_ids=ids, temperature=heat, reward=torch.zeros(n) if reward is None else reward,
        old_logprob=torch.zeros(mask.shape, dtype=wide(lm.model.dtype)), extra={},
    )  # fmt: skip
    with torch.no_grad():
        return part.supply(rollouts, Forwarded(lm, prompts, max_tokens))


def influence(lm, *texts, reward, **more) -> torch.Tensor:
    return supplied(Influence(), lm, *texts, reward=reward, **more)


def divergence(lm, *texts, **more) -> torch.Tensor:
    return supplied(GroupDivergence(), lm, *texts, **more)


def prompt_logprob(lm, prompts, temperature, **more) -> torch.Tensor:
    ones = torch.ones(len(prompts), 1, dtype=torch.float64)
    return supplied(
        PromptLogprob(), lm, prompts, torch.arange(len(prompts)), ones.long(), ones.bool(), temperature * ones, **more
    )


def given(prompts, s: Samples, rows=slice(None), mask=None) -> tuple:
    mask = s.mask if mask is None else mask
    return prompts, s.prompt[rows], s.token_ids[rows], mask[rows], s.temperature[rows]


def holes(mask: torch.Tensor) -> torch.Tensor:
    """Some tokens inside responses are not theirs, and two rows have none at all."""
    mask = mask.clone()
    mask[:, 1::3] = False
    mask[[1, 6]] = False
    return mask


def same(got: torch.Tensor, want: torch.Tensor, precision: float = 1e-5) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=precision, atol=precision * float(want.abs().max()))
    assert (want != 0).sum() > 20


@pytest.mark.parametrize(("family", "holed"), [*((family, True) for family in FAMILIES), ("gpt2", False)])
def test_influence_and_divergence_are_sums_over_the_group(double, prompts, rollouts, family, holed):
    lm, precision = double(family, eos=(1, 2)), PRECISION.get(family, 1e-5)
    samples = rollouts(lm)
    mask = holes(samples.mask) if holed else samples.mask
    arguments = given(prompts, samples, mask=mask)
    if family in PLAIN:
        got = influence(lm, *arguments, reward=REWARD)
        assert got.dtype == torch.float64 and not got.requires_grad
        same(got, naive_influence(lm, *arguments, REWARD), precision)
        assert not got[~mask].any() and not got[8:12].any() and not got[16:].any()
    got = divergence(lm, *arguments)
    same(got, naive_divergence(lm, *arguments), precision)
    assert not got[~mask].any() and not got.requires_grad
    for group in range(len(prompts)):
        of_group, alive = got[samples.prompt == group], mask[samples.prompt == group]
        for t in alive.any(0).nonzero()[:, 0]:
            assert of_group[alive[:, t], t].unique().numel() == 1


def test_nothing_to_compare_is_zero(lm, prompts):
    """No tokens, equal rewards, responses that go alone, and equal responses."""
    ids, none = torch.full((2, 3), 5), torch.zeros(2, 3, dtype=torch.bool)
    owner, reward = torch.tensor([1, 1]), torch.tensor([1.0, 0.0])
    assert not influence(lm, prompts, owner, ids, none, reward=reward).any()
    assert not divergence(lm, prompts, owner, ids, none).any()
    assert not influence(lm, prompts, owner, ids, ~none, reward=torch.full((2,), 0.1)).any()
    apart = torch.tensor([0, 1])
    assert not influence(lm, prompts, apart, ids, ~none, reward=reward).any()
    assert influence(lm, prompts, owner, ids, ~none, reward=reward).all()
    for case in (apart, owner):
        torch.testing.assert_close(divergence(lm, prompts, case, ids, ~none), torch.zeros(2, 3), atol=1e-5, rtol=0)


def test_far_apart_log_probabilities_are_cut(double, prompts, rollouts):
    """Sampled at 0.9 and more, judged at 0.01: laws lie apart by far more than 11 nats, which is what counts."""
    lm = double()
    s = rollouts(lm)
    s = dataclasses.replace(s, temperature=torch.full_like(s.temperature, 0.01))
    got = divergence(lm, *given(prompts, s))
    same(got, naive_divergence(lm, *given(prompts, s)), 1e-9)
    assert math.exp(11) < got.max() < lm.model.config.vocab_size * math.exp(11)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_logprob_is_the_mean_after_the_first_token(double, prompts, family):
    lm = double(family)
    wanted = naive_prompt_logprob(lm, prompts, 0.7)
    got = prompt_logprob(lm, prompts, 0.7)
    assert got.tolist() == pytest.approx(wanted, rel=PRECISION.get(family, 1e-5))
    assert len(prompts[2]) == 1 and got[2] == 0
    for tokens in (1, 12):
        assert prompt_logprob(lm, prompts, 0.7, max_tokens=tokens).tolist() == pytest.approx(wanted, rel=1e-5)
    assert prompt_logprob(lm, prompts[2:3], 1.0).tolist() == [0.0]
    assert not got.requires_grad


INPUTS = {"tw_grpo": "divergence", "arm": "prompt_logprob", "otb": "old_collision"}


def recomputed(name: str, lm, rollouts, kept) -> torch.Tensor:
    """By full forward passes under the weights of the moment."""
    texts = (lm, kept.prompts, rollouts.group, kept.token_ids, kept.mask, kept.temperature)
    if name == "influence":
        return naive_influence(*texts, kept.reward())
    if name == "divergence":
        return naive_divergence(*texts)
    if name == "old_collision":
        return naive_collision(*texts)
    return torch.tensor(naive_prompt_logprob(lm, kept.prompts, 0.8), dtype=torch.float64)[rollouts.group]


@pytest.mark.parametrize("method", INPUTS)
def test_a_run_sees_what_a_naive_recomputation_gives(method, small, coin, tmp_path, monkeypatch):
    """In every step, of the weights before it; the passes of at most 60 tokens cut through groups."""
    steps = []

    complete = Local.complete

    def watched(engine, rollouts, kept):
        made = complete(engine, rollouts, kept)
        steps.append((made, recomputed(INPUTS[method], engine.lm, rollouts, kept)))
        return made

    monkeypatch.setattr(Local, "complete", watched)
    config = small(
        tmp_path / "run",
        method={"name": method},
        train={"steps": 2, "micro_tokens": 60},
        rollout={"temperature": 0.8},
        evaluate={"problems": 0},
    )
    assert train(config, View()).finished
    assert len(steps) == 2
    for made, wanted in steps:
        got = made.extra[INPUTS[method]]
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))
        assert wanted.unique().numel() > 3
        assert len(made.extra) == 1, "nobody asked for others"
