"""Scoring against full forward passes: values, gradients, any subset of the rows."""

import pytest
import torch

from small_models import CONFIGS
from tokenpo.train.models import Sampling, load, sample, score
from tokenpo.train.models.half import halved
from tokenpo.train.models.score import has_plain_head


def naive(lm, prompts, samples):
    """Row by row, in the model's own forward pass and a float64 softmax."""
    tables = [torch.zeros(samples.mask.shape, dtype=torch.float64) for _ in range(3)]
    rows: list[list[torch.Tensor]] = []
    for row in range(len(samples)):
        length = int(samples.mask[row].sum())
        prompt, target = prompts[int(samples.prompt[row])], samples.token_ids[row, :length]
        ids = torch.tensor([[*prompt, *target.tolist()]])
        logits = lm.model(ids).logits[0, len(prompt) - 1 : -1].double()
        logp = torch.log_softmax(logits / samples.temperature[row, :length, None].double(), -1)
        p = logp.exp()
        entropy = -(p * logp).sum(-1)
        rows.append([logp.gather(-1, target[:, None])[:, 0], entropy, (p**2 * (logp + entropy[:, None])).sum(-1)])
    for row, values in enumerate(rows):
        for k, value in enumerate(values):
            tables[k] = tables[k].index_put((torch.tensor(row), torch.arange(len(value))), value)
    return tables


@pytest.fixture
def rollouts(prompts):
    def make(lm, group_size=3):
        rule = lambda entropy, base: base + 0.3 * torch.tanh(entropy)  # noqa: E731
        samples = sample(lm, prompts, group_size, Sampling(20, temperature=0.9, seed=4), rule=rule)
        assert samples.mask.sum(1).unique().numel() > 3
        return samples

    return make


def run(lm, prompts, s, rows=slice(None), **options):
    return score(lm, prompts, s.prompt[rows], s.token_ids[rows], s.mask[rows], s.temperature[rows], **options)


@pytest.mark.parametrize("family", CONFIGS)
def test_values_and_gradients_equal_full_forward_passes(load_family, prompts, rollouts, family):
    lm = load_family(family, eos=(1, 2))
    assert has_plain_head(lm) == (family not in {"gemma2_softcap", "cohere2_scale"})
    samples = rollouts(lm)
    policy, wanted = run(lm, prompts, samples, drift=True), naive(lm, prompts, samples)
    for got, want in zip((policy.logprob, policy.entropy, policy.entropy_drift), wanted, strict=True):
        assert got is not None
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(policy.logprob, samples.rollout_logprob, rtol=1e-5, atol=1e-5)
    assert policy.entropy is not None and not policy.entropy.requires_grad

    weight = torch.randn(samples.mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parameters = [p for p in lm.model.parameters() if p.requires_grad]
    got = torch.autograd.grad((policy.logprob * weight).sum(), parameters)
    want = torch.autograd.grad((wanted[0] * weight).sum(), parameters)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


@pytest.mark.parametrize("packed", [True, False])
def test_any_subset_and_any_cutting_gives_the_same_values(lm, prompts, rollouts, packed):
    lm.abilities["packed"] = packed
    samples = rollouts(lm)
    whole = run(lm, prompts, samples).logprob
    n = len(samples)
    subsets = [torch.tensor([7]), torch.arange(0, n, 4), torch.randperm(n, generator=torch.Generator().manual_seed(2))]
    for rows in subsets:
        torch.testing.assert_close(run(lm, prompts, samples, rows).logprob, whole[rows], rtol=1e-5, atol=1e-5)
    for tokens in (1, 40, 200):
        cut = run(lm, prompts, samples, max_tokens=tokens).logprob
        torch.testing.assert_close(cut, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
def test_ids_beyond_a_response_are_never_read_and_masked_ones_inside_are_context(lm, prompts, rollouts, packed):
    lm.abilities["packed"] = packed
    samples = rollouts(lm)
    whole = run(lm, prompts, samples).logprob
    garbage = samples.token_ids.masked_fill(~samples.mask, 10**6)
    got = score(lm, prompts, samples.prompt, garbage, samples.mask, samples.temperature).logprob
    assert torch.equal(got, whole)
    assert not got[~samples.mask].any()
    holes = samples.mask.clone()
    holes[:, 1::3] = False
    got = score(lm, prompts, samples.prompt, samples.token_ids, holes, samples.temperature).logprob
    torch.testing.assert_close(got, whole * holes, rtol=1e-5, atol=1e-5)


def test_no_grad_and_gradient_checkpointing(lm, prompts, rollouts):
    samples = rollouts(lm)
    with torch.no_grad():
        silent = run(lm, prompts, samples).logprob
    assert not silent.requires_grad
    parameter = lm.model.get_input_embeddings().weight
    (plain,) = torch.autograd.grad(run(lm, prompts, samples).logprob.sum(), parameter)
    lm.model.gradient_checkpointing_enable({"use_reentrant": False})
    lm.model.train()
    checked = run(lm, prompts, samples).logprob
    torch.testing.assert_close(checked.detach(), silent, rtol=1e-5, atol=1e-5)
    (again,) = torch.autograd.grad(checked.sum(), parameter)
    torch.testing.assert_close(again, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["weights", "copy"])
def test_half_precision(make_model, prompts, kind, monkeypatch):
    monkeypatch.setattr("tokenpo.train.models.half.has_bf16", lambda device: True)
    lm = load(make_model(), dtype="bfloat16") if kind == "weights" else halved(load(make_model()))
    samples = sample(lm, prompts, 2, Sampling(12))
    policy = run(lm, prompts, samples)
    assert policy.logprob.dtype == samples.logprob.dtype == torch.float32
    assert (policy.logprob - samples.logprob).abs().max() < 0.2


def test_a_bf16_copy_keeps_ties_and_buffers_and_leaves_other_models_alone(make_model, monkeypatch):
    monkeypatch.setattr("tokenpo.train.models.half.has_bf16", lambda device: device.type == "cpu")
    lm = load(make_model("qwen3"))
    half = halved(lm)
    assert half.master is lm and halved(lm, trained=False).master is None
    assert half.model.get_output_embeddings().weight is half.model.get_input_embeddings().weight
    assert {x.dtype for x in half.model.parameters()} == {torch.bfloat16}
    assert all(torch.equal(a, b) for a, b in zip(half.model.buffers(), lm.model.buffers(), strict=True))
    double = load(make_model("qwen3"), dtype="float64")
    assert halved(double) is double
    monkeypatch.setattr("tokenpo.train.models.half.has_bf16", lambda device: False)
    assert halved(lm) is lm
