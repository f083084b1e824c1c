"""The sampler against full forward passes and against Hugging Face's generate."""

from dataclasses import fields

import pytest
import torch
import transformers

from small_models import COMMON, CONFIGS, SHAPE
from tokenpo.base.errors import TokenPOError, Unsupported
from tokenpo.core.head.kept import Cut
from tokenpo.train.models import LanguageModel, Samples, Sampling, sample, score
from tokenpo.train.models.packed import can_pack


def heat(entropy, base):
    """A rule whose temperature differs from token to token."""
    return base * (1.0 + 0.5 * torch.tanh(entropy - 1.0))


def assert_recorded_values_are_those_of_full_passes(lm, prompts, samples: Samples, base: float) -> None:
    for row in range(len(samples)):
        length = int(samples.mask[row].sum())
        assert samples.mask[row].tolist() == [True] * length + [False] * (samples.mask.shape[1] - length)
        prompt = prompts[int(samples.prompt[row])]
        response = samples.token_ids[row, :length]
        with torch.no_grad():
            logits = lm.model(torch.tensor([[*prompt, *response.tolist()]])).logits[0, len(prompt) - 1 : -1].double()
        logp = torch.log_softmax(logits / base, -1)
        entropy = -(logp.exp() * logp).sum(-1)
        drawn = logp.gather(-1, response[:, None])[:, 0]
        heated = torch.log_softmax(logits / samples.temperature[row, :length, None].double(), -1)
        by_sampler = heated.gather(-1, response[:, None])[:, 0]
        reported = samples.rollout_logprob[row, :length].double()
        torch.testing.assert_close(reported, by_sampler, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(samples.logprob[row, :length].double(), drawn, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(samples.entropy[row, :length].double(), entropy, rtol=1e-5, atol=1e-5)
        ends = torch.isin(response, torch.tensor(lm.eos_ids))
        assert not ends[:-1].any() and bool(ends[-1]) == bool(samples.finished[row])
        assert (samples.token_ids[row, length:] == lm.pad_id).all()
        assert not samples.logprob[row, length:].any() and not samples.entropy[row, length:].any()
        assert (samples.temperature[row, length:] == 1).all()


@pytest.mark.parametrize("family", CONFIGS)
def test_recorded_values_equal_a_full_forward_pass(load_family, prompts, family):
    lm = load_family(family, eos=(1, 2))
    assert can_pack(lm) == (family not in {"mistral_window", "gemma2_softcap"})
    samples = sample(lm, prompts, 6, Sampling(30, temperature=0.8, seed=1), rule=heat)
    lengths = samples.mask.sum(1)
    assert lengths.unique().numel() > 3, "rows should end at different times"
    assert samples.temperature[samples.mask].unique().numel() > 10
    assert_recorded_values_are_those_of_full_passes(lm, prompts, samples, 0.8)


MIXTURE = {"num_local_experts": 2, "num_experts_per_tok": 1}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
LINEAR = {f"linear_{name}": 8 if "dim" in name else 2 for name in ("key_head_dim", "value_head_dim", "num_key_heads")}
HYBRID = {"layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4, **LINEAR}
SLIDING = {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 2}
# Of each: its class in transformers, its settings, and whether it runs packed.
KINDS = {
    "phimoe": ("PhimoeConfig", MIXTURE, True),
    "phimoe_window": ("PhimoeConfig", {"sliding_window": 10, **MIXTURE}, False),
    "qwen2_moe_window": ("Qwen2MoeConfig", {"shared_expert_intermediate_size": 16, **EXPERTS, **SLIDING}, False),
    "llama4_chunks": ("Llama4TextConfig", {"attention_chunk_size": 10, "intermediate_size_mlp": 48, **MIXTURE}, False),
    "granite": ("GraniteConfig", {"logits_scaling": 3.0}, True),
    "smollm3": ("SmolLM3Config", {}, True),
    "qwen3_5": ("Qwen3_5TextConfig", HYBRID, False),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}, False),
}


def built(kind: str, settings, **more) -> LanguageModel:
    """A random model of any class, without a directory; it ends at token 1."""
    torch.manual_seed(0)
    settings = {"vocab_size": 22, **COMMON, **SHAPE, **settings, **more}
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**settings)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(3.0)
    return LanguageModel(model, None, (1,), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_do_not_see_everything_have_the_values_of_a_full_pass(prompts, kind):
    """Windows and chunks of 10, in texts of up to 39 tokens (the probe runs 7), and a state in place of keys."""
    name, settings, packs = KINDS[kind]
    lm = built(name, settings)
    assert can_pack(lm) == packs
    samples = sample(lm, prompts, 4, Sampling(30, seed=1))
    assert samples.mask.sum(1).unique().numel() > 2, "rows should leave the batch"
    assert_recorded_values_are_those_of_full_passes(lm, prompts, samples, 1.0)
    policy = score(lm, prompts, samples.prompt, samples.token_ids, samples.mask)
    torch.testing.assert_close(policy.logprob.detach(), samples.logprob, rtol=1e-4, atol=1e-5)


def test_a_model_whose_state_is_no_cache_of_ours_is_refused():
    lm = built("MambaConfig", {"state_size": 4})
    with pytest.raises(Unsupported, match=r"^MambaForCausalLM keeps no key-value cache: set model.path to another"):
        sample(lm, [[3]], 1, Sampling(3))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("group_size", [1, 2, 8])
@pytest.mark.parametrize(("eos", "pad"), [((1,), "<pad>"), ((1, 2, 5), "<eos>"), ((4,), None)])
def test_eos_and_padding_ids_of_every_kind(load_family, prompts, packed, group_size, eos, pad):
    lm = load_family("qwen3", eos=eos, pad=pad)
    lm.abilities["packed"] = packed
    assert set(lm.eos_ids) == {1, *eos}
    assert lm.pad_id == {"<pad>": 0, "<eos>": 1, None: lm.eos_ids[0]}[pad]
    samples = sample(lm, prompts, group_size, Sampling(20, seed=3))
    assert samples.prompt.tolist() == [p for p in range(5) for _ in range(group_size)]
    assert_recorded_values_are_those_of_full_passes(lm, prompts, samples, 1.0)


def response(samples: Samples, row: int) -> list[int]:
    return samples.token_ids[row][samples.mask[row]].tolist()


@pytest.mark.parametrize("packed", [True, False])
def test_a_rollout_depends_on_its_prompt_stream_and_index_only(lm, prompts, packed):
    lm.abilities["packed"] = packed
    sampling = Sampling(24, seed=11)
    whole = sample(lm, prompts, 4, sampling)
    texts = [response(whole, row) for row in range(20)]
    assert len({tuple(text) for text in texts}) > 15

    order = [3, 1, 4, 0, 2]
    permuted = sample(lm, [prompts[i] for i in order], 4, sampling, streams=order)
    for place, i in enumerate(order):
        for g in range(4):
            assert response(permuted, place * 4 + g) == texts[i * 4 + g]
    larger = sample(lm, prompts, 7, sampling)
    assert [response(larger, p * 7 + g) for p in range(5) for g in range(4)] == texts
    alone = sample(lm, [prompts[2]], 4, sampling, streams=[2])
    assert [response(alone, g) for g in range(4)] == texts[8:12]
    shorter = sample(lm, prompts, 4, Sampling(5, seed=11))
    assert [response(shorter, row) for row in range(20)] == [text[:5] for text in texts]
    assert not torch.equal(sample(lm, prompts, 4, Sampling(5, seed=12)).token_ids, shorter.token_ids)
    moved = sample(lm, prompts, 4, Sampling(5, seed=11), streams=[9, 8, 7, 6, 5])
    assert not torch.equal(moved.token_ids, shorter.token_ids)


def assert_same(one: Samples, other: Samples) -> None:
    for field in fields(Samples):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert (a is None and b is None) or torch.equal(a, b), field.name


@pytest.mark.parametrize("family", ["qwen3", "gemma2_softcap"])
@pytest.mark.parametrize("cut", [Cut(top_p=0.8), Cut(0.9, 5, 0.05)])
def test_what_a_cut_keeps_is_recorded_with_statistics_over_it(load_family, prompts, family, cut):
    """In both decoders, with a tool, in any batch; and `score` finds the same numbers over the recorded tokens."""
    lm, sampling = load_family(family, eos=(1, 2)), Sampling(30, temperature=0.8, seed=1, cut=cut)
    for tool in (None, Echo()):
        found = sample(lm, prompts, 6, sampling, tool=tool)
        kept, mask = found.kept_ids, found.mask
        assert kept is not None and kept.dtype == torch.int32 and (kept[~mask] == -1).all()
        sizes = (kept >= 0).sum(2)
        assert sizes[mask].min() > 0 and sizes[mask].max() == kept.shape[2] <= (cut.top_k or 22)
        assert ((kept == found.token_ids[..., None]).any(2) == mask).all()
        policy = score(lm, prompts, found.prompt, found.token_ids, mask, 0.8, kept=kept)
        torch.testing.assert_close(policy.logprob.detach(), found.logprob, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(policy.entropy, found.entropy, rtol=1e-4, atol=1e-5)
        whole = score(lm, prompts, found.prompt, found.token_ids, mask, 0.8).logprob
        assert ((whole < found.logprob - 1e-3) & mask).any() and (whole <= found.logprob + 1e-4).all()
        assert_same(found, sample(lm, prompts, 6, sampling, tool=None if tool is None else Echo()))
        alone = sample(lm, [prompts[2]], 6, sampling, streams=[2], tool=None if tool is None else Echo())
        narrow, width = alone.kept_ids, alone.mask.shape[1]
        assert narrow is not None and torch.equal(narrow, kept[12:18, :width, : narrow.shape[2]])
        assert (kept[12:18, :width, narrow.shape[2] :] == -1).all()


def test_cuts_that_are_refused(lm, prompts, monkeypatch):
    wrong = {"top_p": (0.0, 1.1), "top_k": (-1, 1025), "min_p": (-0.1, 2.0)}
    for named, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(TokenPOError, match=f"Sampling.{named} is"):
            Sampling(5, cut=Cut(**{named: value}))
    monkeypatch.setattr("tokenpo.core.head.kept.MOST", 10)
    with pytest.raises(TokenPOError, match=r"22 tokens.*set top_k too, to at most 10"):
        sample(lm, prompts, 2, Sampling(5, cut=Cut(top_p=0.5)))
    greedy = sample(lm, prompts, 2, Sampling(5, 0.0, cut=Cut(top_p=0.5)))
    assert greedy.kept_ids is None
    assert_same(greedy, sample(lm, prompts, 2, Sampling(5, 0.0)))


def test_both_decoders_and_both_runs_agree(lm, prompts):
    sampling = Sampling(100, temperature=1.2, seed=2)
    first, again = sample(lm, prompts, 5, sampling), sample(lm, prompts, 5, sampling)
    assert_same(first, again)
    assert first.mask.shape[1] > 70, "the packed buffers should have grown"
    lm.abilities["packed"] = False
    other = sample(lm, prompts, 5, sampling)
    assert torch.equal(first.token_ids, other.token_ids) and torch.equal(first.finished, other.finished)
    torch.testing.assert_close(first.logprob, other.logprob, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", CONFIGS)
def test_greedy_is_that_of_hugging_face(load_family, prompts, family):
    lm = load_family(family, eos=(1, 2))
    samples = sample(lm, prompts, 1, Sampling(25, temperature=0))
    assert (samples.temperature == 1).all()
    for row, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        out = lm.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=25)
        assert response(samples, row) == out[0, len(prompt) :].tolist()
    assert_recorded_values_are_those_of_full_passes(lm, prompts, samples, 1.0)


def test_frequencies_are_those_of_the_model(lm):
    prompt = [5, 6, 7]
    samples = sample(lm, [prompt], 4000, Sampling(1, temperature=1.3))
    with torch.no_grad():
        p = torch.softmax(lm.model(torch.tensor([prompt])).logits[0, -1] / 1.3, -1)
    share = torch.bincount(samples.token_ids[:, 0], minlength=len(p)) / 4000
    assert ((share - p).abs() < 5 * (p * (1 - p) / 4000).sqrt() + 1e-3).all()


class Echo:
    """A tool that is called by token 5 and answers with the length of the text so far, told in two tokens."""

    ends = (5,)

    def __init__(self, silent: bool = False) -> None:
        self.silent, self.asked = silent, []

    def __call__(self, row, token_ids):
        self.asked.append((row, tuple(token_ids)))
        return [] if self.silent else [3 + len(token_ids) // 10, 3 + len(token_ids) % 10]


@pytest.mark.parametrize("family", ["qwen3", "mistral_window"])
def test_what_a_tool_inserts_is_context_and_no_sample(load_family, prompts, family):
    """The answer follows every call, outside the mask, and what is sampled after it was predicted from it."""
    lm, tool = load_family(family, eos=(1,)), Echo()
    samples = sample(lm, prompts, 6, Sampling(40, temperature=1.2, seed=1), tool=tool)
    calls = 0
    for row in range(len(samples)):
        ids, mask = samples.token_ids[row].tolist(), samples.mask[row].tolist()
        length = max(i for i, sampled in enumerate(mask) if sampled) + 1
        wanted, place = [True] * length, 0
        while place < length:
            if ids[place] == 5 and wanted[place]:
                calls += 1
                told = [3 + (place + 1) // 10, 3 + (place + 1) % 10]
                assert (row, tuple(ids[: place + 1])) in tool.asked
                assert ids[place + 1 : place + 3] == told[: len(ids) - place - 1]
                wanted[place + 1 : place + 3] = [False] * len(wanted[place + 1 : place + 3])
            place += 1
        assert mask[:length] == wanted
    assert calls > 10
    policy = score(lm, prompts, samples.prompt, samples.token_ids, samples.mask, 1.2)
    torch.testing.assert_close(policy.logprob.detach(), samples.logprob, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy.entropy, samples.entropy, rtol=1e-4, atol=1e-5)


def test_a_tool_that_answers_nothing_changes_nothing_and_one_that_answers_is_the_same_in_any_batch(
    load_family, prompts
):
    lm, tool, sampling = load_family("qwen3", eos=(1,)), Echo(silent=True), Sampling(40, temperature=1.2, seed=1)
    plain, asked = (sample(lm, prompts, 6, sampling, tool=given) for given in (None, tool))
    assert tool.asked
    assert_same(plain, asked)
    whole = sample(lm, prompts, 6, sampling, streams=range(len(prompts)), tool=Echo())
    for number, prompt in enumerate(prompts):
        alone = sample(lm, [prompt], 3, sampling, streams=[number], tool=Echo())
        rows, width = slice(6 * number, 6 * number + 3), alone.mask.shape[1]
        assert torch.equal(alone.token_ids, whole.token_ids[rows, :width])
        assert torch.equal(alone.mask, whole.mask[rows, :width])


def test_a_prompt_with_a_limit_of_its_own(lm):
    """The same tokens as without, up to the limit; `finished` says EOS only."""
    prompts, sampling = [[5, 6, 7], [5, 6, 7, 8, 9], [4]], Sampling(9, 1.0, 3)
    free, held = sample(lm, prompts, 3, sampling), sample(lm, prompts, 3, sampling, limits=[9, 2, 1])
    for row, limit in enumerate([9, 9, 9, 2, 2, 2, 1, 1, 1]):
        length = min(limit, int(free.mask[row].sum()))
        assert int(held.mask[row].sum()) == length
        assert torch.equal(held.token_ids[row, :length], free.token_ids[row, :length])
        assert bool(held.finished[row]) == (int(held.token_ids[row, length - 1]) in lm.eos_ids)
