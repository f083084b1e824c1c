"""Loading and saving: what comes back is what was saved; text, chats and adapters."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import torch

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.base.pool import Pool
from tokenpo.base.silence import muted
from tokenpo.models import LoraOptions, Sampling, load, sample, save, score, vocabulary
from tokenpo.models.model import _load_weights

peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is optional")


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_unknown_dtype_and_device(make_model):
    with pytest.raises(UnknownName, match="did you mean 'bfloat16'"):
        load(make_model(), dtype="bfloat")
    with pytest.raises(TokenPOError, match="device 'nosuch' cannot be used"):
        load(make_model(), device="nosuch")
    assert load(make_model(), device="auto").device.type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_nothing_that_native_code_prints_reaches_the_terminal(capfd: pytest.CaptureFixture) -> None:
    with muted():
        os.write(1, b"from below")
        os.write(2, b"from below")
    print("after")
    assert capfd.readouterr() == ("after\n", "")


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


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.9, "top_p": 0.6}, {"early_stopping": True}, {"output_scores": True}, {"typical_p": 0.5}],
)
def test_generation_settings_that_transformers_loads_but_does_not_save_stay(make_model, tmp_path, settings):
    path = Path(shutil.copytree(make_model(), tmp_path / "model"))
    file = path / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    lm = load(path)
    save(lm, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()).items() >= settings.items()
    assert load(tmp_path / "out").model.generation_config.to_dict() == lm.model.generation_config.to_dict()


def test_save_replaces_a_model_whole_and_spares_anything_else(lm, tmp_path, monkeypatch):
    """A disk with room for 1 KiB files: tokenizer.json is longer, and its library writes it itself."""
    target = tmp_path / "model"
    save(lm, target)
    (target / "stale").write_text("")
    save(lm, target)
    assert not (target / "stale").exists() and [p.name for p in tmp_path.iterdir()] == ["model"]
    before, write, rename = content(target), type(lm.tokenizer).save_pretrained, Path.rename
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_a_small_disk(self, directory):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
        try:
            return write(self, directory)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def only_aside(self, place):
        if Path(place) == target and self.name != f".old-{target.name}":
            raise OSError("the name is taken")
        return rename(self, place)

    for owner, name, broken, message in (
        (type(lm.tokenizer), "save_pretrained", on_a_small_disk, r"the tokenizer cannot be saved: .*File too large"),
        (Path, "rename", only_aside, "the name is taken"),
    ):
        with monkeypatch.context() as patch, pytest.raises(OSError, match=message):
            patch.setattr(owner, name, broken)
            save(lm, target, {"step": 1})
        assert content(target) == before and list(tmp_path.iterdir()) == [target]

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


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].name.first }}", "has no attribute 'name'"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        (ENDLESS, "it does not end within 0.5 seconds"),
        ("{{ 'a' * 2000000 }}", "a prompt of 2,000,000 characters, of which 1,000,000 are the most"),
        ("{{ 'a' * 2000000000 }}", "more memory than it may"),
        ("{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "memory"),
        ("{{ ''.__class__.__mro__ }}", "is unsafe"),
    ],
)
def test_a_chat_template_that_fails_is_named_with_its_prompt(lm, make_model, template, message, monkeypatch):
    if template == ENDLESS:
        short = Pool(Path(vocabulary.__file__).with_name("template.py"), "render", 1, limit=0.5)
        monkeypatch.setattr(vocabulary, "_template_pool", lambda: short)
        monkeypatch.setattr(vocabulary, "CHAT_SECONDS", 0.5)
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


@peft
def test_adapters_that_are_refused(make_model, tmp_path):
    """From the hub, where there is no directory to look into before it is loaded; and on unknown layers."""
    path = Path(shutil.copytree(make_model(), tmp_path / "model"))
    load(path, lora=LoraOptions(rank=2, targets=("q_proj",))).adapter.save_pretrained(path)
    with pytest.raises(TokenPOError, match=r"holds a LoRA adapter, which is never applied here: merge it"):
        _load_weights(str(path), torch.float32)
    with pytest.raises(TokenPOError, match="LoRA targets"):
        load(make_model(), lora=LoraOptions(targets=("nowhere",)))


@peft
@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_lora_on_weights_that_two_layers_share(make_model, target):
    """A layer of its own may be adapted; where head and embedding are one, the merged model could not hold it."""
    with pytest.raises(TokenPOError, match=rf"targets .*{target}.* are tied .*leave it out of model\.lora\.targets"):
        load(make_model("qwen3"), lora=LoraOptions(targets=("q_proj", target)))
    load(make_model("qwen2"), lora=LoraOptions(targets=("q_proj", target)))
