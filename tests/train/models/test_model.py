"""Loading and saving: what comes back is what was saved; text, chats and adapters. The shipped tiny model."""

import importlib.util
from pathlib import Path

import pytest
import torch
from tiny_model import main
from tokenizers.processors import TemplateProcessing

from tokenpo.base.errors import TokenPOError
from tokenpo.base.pool import Pool
from tokenpo.train.models import LanguageModel, LoraOptions, Sampling, load, sample, save, score, vocabulary
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.models.vocabulary import Vocabulary
from tokenpo.train.run.rollout import pose
from tokenpo.train.tasks.generated import DialSum
from tokenpo.train.tasks.types import Problem

peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is optional")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_saved_model_comes_back(make_model, tmp_path, prompts, dtype):
    lm = load(make_model(eos=(1, 2)), dtype=dtype)
    assert lm.model.dtype == getattr(torch, dtype) and not lm.model.training and lm.eos_ids == (1, 2)
    save(lm, tmp_path / "out")
    again = load(tmp_path / "out", dtype=dtype)
    assert again.eos_ids == lm.eos_ids and again.pad_id == lm.pad_id
    for (name, a), (_, b) in zip(lm.model.state_dict().items(), again.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    assert torch.equal(sample(lm, prompts, 2, Sampling(9)).token_ids, sample(again, prompts, 2, Sampling(9)).token_ids)


def test_save_replaces_a_model_whole_and_spares_anything_else(lm, tmp_path):
    target = tmp_path / "model"
    save(lm, target)
    (target / "stale").write_text("")
    save(lm, target)
    assert not (target / "stale").exists() and [p.name for p in tmp_path.iterdir()] == ["model"]

    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter1").write_text("years of work")
    with pytest.raises(TokenPOError, match="is not a model directory"):
        save(lm, mine)
    assert (mine / "chapter1").read_text() == "years of work"


def test_text_to_tokens_and_back(lm):
    ids = lm.encode("3-9+6=")
    assert lm.decode(ids) == "3-9+6=" and lm.pieces(ids) == list("3-9+6=")
    assert lm.decode([*ids, 1, 0]) == "3-9+6=" and lm.pieces([1]) == ["<eos>"]
    assert lm.encode("3<eos>") == lm.encode("3"), "a prompt is to be continued"
    with pytest.raises(TokenPOError, match="no tokens"):
        lm.encode("")


def test_thinking_is_known_where_a_template_opens_it_and_its_tags_are_special_tokens(lm):
    lm.tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "<pad2>"]})
    think, end, pad = lm.tokenizer.convert_tokens_to_ids(["<think>", "</think>", "<pad2>"])
    four = lm.tokenizer("4")["input_ids"]
    assert lm.decode([think, *four, end, pad, *four, 1]) == "<think>4</think>4"
    lm.tokenizer.chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}<think>{% endif %}"

    class Asked:
        def problems(self, split, start, count):
            return [Problem([{"role": "user", "content": "1+3="}], "4"), Problem("1+3=", "4")]

    problems, prompts = pose(Vocabulary(lm.tokenizer, (1,)), Asked(), "train", 0, 2, len)
    assert prompts[0][-1] == think
    assert [problem.opened("4") for problem in problems] == ["<think>4", "4"]


def test_a_padding_token_that_is_not_embedded_is_never_used(make_model, tmp_path, prompts):
    lm, path = load(make_model()), tmp_path / "odd"
    lm.tokenizer.add_special_tokens({"pad_token": "<none>"})
    save(lm, path)
    odd = load(path)
    assert odd.tokenizer.pad_token_id >= odd.rows > odd.pad_id
    assert torch.equal(sample(odd, prompts, 2, Sampling(6)).mask, sample(lm, prompts, 2, Sampling(6)).mask)


def test_a_chat_has_the_tokens_that_transformers_gives_it(lm):
    with pytest.raises(TokenPOError, match="no chat template"):
        lm.encode([{"role": "user", "content": "1+1="}])
    lm.tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}\n  {%- if loop.first %}[{{ m.role }}]{% endif %}\n  {{ m | tojson }}\n"
        "{% endfor %}{% if add_generation_prompt %}#{% endif %}"
    )
    for text in ("1+1=", "ü\u2028 <b>'\"\\", "a" * 5000, ""):
        chat = [{"role": "system", "content": text}, {"role": "user", "content": [{"type": "text", "text": text}]}]
        theirs = lm.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert lm.encode(chat) == theirs


def test_a_last_message_of_the_assistant_is_continued(lm):
    turns = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
    lm.tokenizer.chat_template = turns + "{% if add_generation_prompt %}[assistant]{% endif %}"
    asked, begun = {"role": "user", "content": "1+1="}, {"role": "assistant", "content": "1+"}
    text = lm.tokenizer.decode
    assert text(lm.encode([asked])) == text(lm.tokenizer("[user]1+1=;[assistant]")["input_ids"])
    assert text(lm.encode([asked, begun])) == text(lm.tokenizer("[user]1+1=;[assistant]1+")["input_ids"])


def test_a_text_that_begins_with_bos_gets_no_second_one(lm):
    words, plain = Vocabulary(lm.tokenizer, (1,)), lm.encode("1+1=")
    lm.tokenizer.add_special_tokens({"bos_token": "<s>"})
    bos = lm.tokenizer.bos_token_id
    assert words.encode("<s>1+1=") == [bos, *plain]  # by a tokenizer that adds none
    lm.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    assert words.encode("1+1=") == words.encode("<s>1+1=") == [bos, *plain]


def test_variables_of_a_chat_template_are_saved_with_the_model(lm, tmp_path):
    thinking = "{% if thinks is defined %}{{ thinks }}{{ 1 if thinks else 2 }}{% endif %}{{ end }}"
    lm.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}" + thinking
    asked = [{"role": "user", "content": "1+1="}]
    vocabulary.set_variables(lm.tokenizer, {"thinks": False, "end": '"7\\8\nü'})
    save(lm, tmp_path / "model")
    for words in (lm, load(tmp_path / "model")):
        assert words.encode(asked) == lm.tokenizer('1+1=False2"7\\8\nü')["input_ids"]
    with pytest.raises(TokenPOError, match="reads no 'think': leave out model"):
        vocabulary.set_variables(lm.tokenizer, {"think": True})


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        (ENDLESS, "it does not end within 0.5 seconds"),
        ("{{ 'a' * 2000000000 }}", "more memory than it may"),
        ("{{ ''.__class__.__mro__ }}", "is unsafe"),
    ],
)
def test_a_chat_template_that_fails_is_named_with_its_prompt(lm, make_model, template, message, monkeypatch):
    limit = 0.5 if template == ENDLESS else 120
    pool = Pool(Path(vocabulary.__file__).with_name("template.py"), "render", 1, limit=limit)
    monkeypatch.setattr(vocabulary, "_template_pool", lambda: pool)
    monkeypatch.setattr(vocabulary, "CHAT_SECONDS", limit)
    lm.tokenizer.chat_template = template
    with pytest.raises(TokenPOError, match=message) as caught:
        lm.encode([{"role": "user", "content": "1+1="}])
    text = str(caught.value)
    assert f"the chat template of {make_model()} fails on the prompt" in text and "1+1=" in text and "\n" not in text


@peft
def test_lora_trains_only_adapters_and_saves_merged(make_model, tmp_path, prompts):
    plain = load(make_model())
    lm = load(make_model(), lora=LoraOptions(rank=4, targets=("q_proj", "up_proj")))
    trained = [name for name, p in lm.model.named_parameters() if p.requires_grad]
    assert trained and all("lora_" in name for name in trained)
    torch.manual_seed(0)
    for name, parameter in lm.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    samples = sample(lm, prompts, 2, Sampling(12))
    policy = score(lm, prompts, samples.prompt, samples.token_ids, samples.mask)
    torch.testing.assert_close(policy.logprob, samples.logprob, rtol=1e-5, atol=1e-5)
    policy.logprob.sum().backward()
    assert all(p.grad is not None for p in lm.model.parameters() if p.requires_grad)

    save(lm, tmp_path / "merged")
    merged = load(tmp_path / "merged")
    assert set(merged.model.state_dict()) == set(plain.model.state_dict())
    with torch.no_grad():
        of_merged = score(merged, prompts, samples.prompt, samples.token_ids, samples.mask).logprob
        of_plain = score(plain, prompts, samples.prompt, samples.token_ids, samples.mask).logprob
    torch.testing.assert_close(of_merged, samples.logprob, rtol=1e-4, atol=1e-4)
    assert (of_plain - samples.logprob).abs().max() > 0.1
    assert lm.adapter is not None and any("lora_A" in name for name, _ in lm.model.named_parameters())


DIALS = DialSum(operands=8)


@pytest.fixture(scope="module")
def shipped() -> LanguageModel:
    return load(ASSETS)


def accuracy(lm: LanguageModel, count: int, group: int, temperature: float) -> tuple[float, float]:
    """Share right, and mean response length, on held-out problems."""
    problems = DIALS.problems("test", 0, count)
    prompts = [lm.encode(problem.prompt) for problem in problems]
    samples = sample(lm, prompts, group, Sampling(max_new_tokens=48, temperature=temperature, seed=0))
    lengths = samples.mask.sum(1)
    texts = [lm.decode(ids[:n].tolist()) for ids, n in zip(samples.token_ids, lengths, strict=True)]
    repeated = [problems[i] for i in samples.prompt.tolist()]
    scores = DIALS.score(repeated, texts, [[]] * len(texts))
    return sum(score.correct for score in scores) / len(scores), lengths.float().mean().item()


def test_shipped_model_is_right_about_as_often_as_stated(shipped):
    greedy, short = accuracy(shipped, 200, 1, 0.0)
    sampled, longer = accuracy(shipped, 50, 8, 1.0)
    assert 0.15 < greedy < 0.32
    assert 0.22 < sampled < 0.42
    assert short < 22 < 26 < longer < 31, "greedily it leaps all the way; sampled, it steps now and then"


@pytest.mark.slow
def test_the_command_makes_what_is_shipped(tmp_path, shipped):
    """The same bytes where the arithmetic is the same; the same accuracy where it is not."""
    main([str(tmp_path / "tiny")])
    made = load(tmp_path / "tiny")
    for count, group, temperature in ((200, 1, 0.0), (50, 8, 1.0)):
        again, ours = (accuracy(lm, count, group, temperature)[0] for lm in (made, shipped))
        assert again == pytest.approx(ours, abs=0.1)
