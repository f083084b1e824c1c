"""Loading and saving: what comes back is what was saved, and every bad directory gets its own sentence."""

from __future__ import annotations

import importlib.util
import json
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.base.pool import Pool
from tokenpo.models import LoraOptions, Sampling, load, locate, sample, save, score, vocabulary
from tokenpo.models.directory import ASSETS, is_local
from tokenpo.models.model import _load_weights

peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is optional")


@pytest.fixture
def broken(make_model, tmp_path) -> Path:
    """A private copy of a good directory, to be spoilt."""
    return Path(shutil.copytree(make_model(), tmp_path / "model"))


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def pickle_only(path: Path) -> None:
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def lost_shard(path: Path) -> None:
    (path / "model.safetensors").rename(path / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def adapter_only(path: Path) -> None:
    (path / "config.json").rename(path / "adapter_config.json")


def no_tokenizer(path: Path) -> None:
    for file in path.glob("*token*"):
        file.unlink()


def drop_weight(path: Path) -> None:
    weights = load_file(path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path / "model.safetensors", {"format": "pt"})


SPOILS = {
    r"there is no directory": lambda path: shutil.rmtree(path),
    r"has no config\.json": lambda path: (path / "config.json").unlink(),
    r"holds a LoRA adapter .*: merge it": adapter_only,
    r"LoRA adapter .* or move it away from weights": lambda path: (path / "adapter_config.json").write_text("{}"),
    r"is not valid JSON": lambda path: (path / "config.json").write_text("{"),
    r"must hold a JSON object": lambda path: (path / "config.json").write_text("[]"),
    r"brings its own Python code": lambda path: edit(path / "config.json", auto_map={"AutoModel": "evil.Model"}),
    r"pickled \(pytorch_model\.bin\)": pickle_only,
    r"has no weights: expected model\.safetensors": lambda path: (path / "model.safetensors").unlink(),
    r"lacks the weight file model-00002-of-00002": lost_shard,
    r"not a valid index": lambda path: (path / "model.safetensors.index.json").write_text("{}"),
    r"has no tokenizer": no_tokenizer,
    r"cannot load a tokenizer": lambda path: (path / "tokenizer.json").write_text("{}"),
    r"cannot load a causal language model": lambda path: (path / "model.safetensors").write_bytes(b"nonsense" * 9),
    r"cannot load .* `nosuchtype`": lambda path: edit(path / "config.json", model_type="nosuchtype"),
    r"do not fit config\.json: .*up_proj.* another shape": lambda path: edit(
        path / "config.json", intermediate_size=64
    ),
    r"do not fit config\.json: .*layers\.1.*up_proj\.weight are missing": drop_weight,
}


@pytest.mark.parametrize("message", SPOILS)
def test_a_bad_directory_is_named_with_its_fault(broken, message):
    SPOILS[message](broken)
    with pytest.raises(TokenPOError, match=message) as caught:
        load(broken)
    assert str(broken) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_and_a_missing_path_given_as_text(tmp_path):
    (tmp_path / "weights").write_text("")
    with pytest.raises(TokenPOError, match="is a file"):
        load(tmp_path / "weights")
    with pytest.raises(TokenPOError, match="there is no directory no/such/model here"):
        load("./no/such/model")


def test_a_path_below_a_directory_of_here_is_not_asked_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not is_local("runs/nope")
    (tmp_path / "runs").mkdir()
    assert is_local("runs/nope") and not is_local("nope")
    for ask in (load, locate):
        with pytest.raises(
            TokenPOError, match=r"no directory runs/nope here: .* \(the hub is asked only where runs is"
        ):
            ask("runs/nope")


def test_a_hub_id_that_cannot_be_had(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(TokenPOError, match=r"^the hub cannot be asked for tokenpo/no-such-model \(.*: give the direc"):
        load("tokenpo/no-such-model")


def test_a_mistyped_path_says_so_before_the_hub_is_asked_once(tmp_path, monkeypatch, capsys):
    import huggingface_hub.utils

    asked = []

    class Hub:
        def head(self, url: str, **_: object) -> None:
            asked.append((url, capsys.readouterr().err))
            raise TimeoutError("no answer")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(huggingface_hub.utils, "get_session", Hub)
    with pytest.raises(TokenPOError, match=r"the hub cannot be asked for rnus/tepo \(no answer\)"):
        load("rnus/tepo")
    [(url, said)] = asked
    assert url.endswith("/rnus/tepo/resolve/main/config.json")
    assert said == "there is no directory rnus/tepo here (did you mean 'runs'?): asking the hub for it\n"


def test_unknown_dtype_and_device(make_model):
    with pytest.raises(UnknownName, match="did you mean 'bfloat16'"):
        load(make_model(), dtype="bfloat")
    with pytest.raises(TokenPOError, match="device 'nosuch' cannot be used"):
        load(make_model(), device="nosuch")


def test_the_device_may_be_found(make_model):
    assert load(make_model(), device="auto").device.type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_what_the_user_calls_a_model_is_located(tmp_path):
    assert locate("tiny") == ASSETS
    assert locate("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert locate(tmp_path) == tmp_path
    (tmp_path / "objective.txt").touch()
    with pytest.raises(TokenPOError, match="has no model yet: let it finish"):
        locate(tmp_path)
    (tmp_path / "model").mkdir()
    assert locate(str(tmp_path)) == tmp_path / "model"


@pytest.mark.parametrize(("name", "said"), [("~nouser/m", "unknown user"), ("m" * 300, "File name too long")])
@pytest.mark.parametrize("look", [locate, load])
def test_a_name_that_cannot_be_looked_up(look, name, said):
    with pytest.raises(TokenPOError, match=said):
        look(name)


def test_the_model_of_a_run_that_goes_on_is_not_its_last(tmp_path):
    """Made by 2 steps; the run is to make 3. Where either number is not known, the model is taken as it is."""
    (tmp_path / "objective.txt").touch()
    (tmp_path / "model").mkdir()
    record, config = tmp_path / "model" / "trained.json", tmp_path / "config.json"
    record.write_text('{"step": 2, "weights": "aa"}')
    config.write_text('{"train": {"steps": 3}}')
    with pytest.raises(TokenPOError, match=r"that of step 2, and the run goes on to step 3: .*--resume") as caught:
        locate(tmp_path)
    assert str(caught.value).endswith(f"or give {tmp_path / 'model'}")
    for text in ('{"train": {"steps": 2}}', '{"train": {"steps": 1}}', '{"train": 3}', "{}", "[]", "{", "[" * 10**5):
        config.write_text(text)
        assert locate(tmp_path) == tmp_path / "model"
    config.write_text('{"train": {"steps": 3}}')
    for text in ("", "[]", '{"step": "2"}', '{"weights": "aa"}'):
        record.write_text(text)
        assert locate(tmp_path) == tmp_path / "model"


def test_no_end_of_sequence_token(broken):
    edit(broken / "config.json", eos_token_id=None)
    edit(broken / "generation_config.json", eos_token_id=None)
    edit(broken / "tokenizer_config.json", eos_token=None)
    with pytest.raises(TokenPOError, match="names no end-of-sequence token"):
        load(broken)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_saved_comes_back(make_model, tmp_path, prompts, dtype):
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
def test_generation_settings_that_transformers_loads_but_does_not_save_stay(broken, tmp_path, settings):
    edit(broken / "generation_config.json", **settings)
    lm = load(broken)
    save(lm, tmp_path / "out")
    saved = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert saved.items() >= settings.items()
    again = load(tmp_path / "out")
    assert again.eos_ids == lm.eos_ids
    assert again.model.generation_config.to_dict() == lm.model.generation_config.to_dict()


def test_save_replaces_a_model_whole_and_spares_anything_else(lm, tmp_path, monkeypatch):
    target = tmp_path / "model"
    save(lm, target)
    (target / "stale").write_text("")
    save(lm, target)
    assert not (target / "stale").exists() and [p.name for p in tmp_path.iterdir()] == ["model"]

    def fail(*args, **kwargs):
        raise OSError("disk full")

    before = (target / "model.safetensors").read_bytes()
    monkeypatch.setattr(lm.tokenizer, "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        save(lm, target)
    assert (target / "model.safetensors").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["model"]

    rename = Path.rename

    def only_aside(self, place):
        if Path(place) == target and self.name != f".old-{target.name}":
            raise OSError("the name is taken")
        return rename(self, place)

    monkeypatch.undo()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="the name is taken"):
        patch.setattr(Path, "rename", only_aside)
        save(lm, target)
    assert (target / "model.safetensors").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["model"]

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
    assert odd.tokenizer.pad_token_id >= odd.model.get_input_embeddings().weight.shape[0] > odd.pad_id
    assert torch.equal(sample(odd, prompts, 2, Sampling(6)).mask, sample(lm, prompts, 2, Sampling(6)).mask)


def test_a_chat_has_the_tokens_that_transformers_gives_it(lm):
    lm.tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}\n  {%- if loop.first %}[{{ m.role }}]{% endif %}\n  {{ m | tojson }}\n"
        "{% endfor %}{% if add_generation_prompt %}#{% endif %}"
    )
    for text in ("1+1=", "ü\u2028 <b>'\"\\", "a" * 5000, ""):
        chat = [{"role": "system", "content": text}, {"role": "user", "content": [{"type": "text", "text": text}]}]
        theirs = lm.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert lm.encode(chat) == theirs


def test_chat_messages_need_a_template(lm):
    messages = [{"role": "user", "content": "1+1="}]
    with pytest.raises(TokenPOError, match="no chat template"):
        lm.encode(messages)
    lm.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}#{% endif %}"
    )
    assert lm.decode(lm.encode(messages)) == "1+1=;#"


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].name.first }}", "has no attribute 'name'"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        (ENDLESS, "it does not end within 0.5 seconds"),
        ("{{ 'a' * 200000000 }}", "a prompt of 200,000,000 characters, of which 16,000,000 are the most"),
        ("{{ 'a' * 2000000000 }}", "more memory than it may"),
        ("{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "memory"),
        ("{{ ''.__class__.__mro__ }}", "is unsafe"),
    ],
)
def test_a_chat_template_that_fails_is_named_with_its_prompt(lm, make_model, template, said, monkeypatch):
    if template == ENDLESS:
        short = Pool(Path(vocabulary.__file__).with_name("template.py"), "render", 1, limit=0.5)
        monkeypatch.setattr(vocabulary, "_template_pool", lambda: short)
        monkeypatch.setattr(vocabulary, "CHAT_SECONDS", 0.5)
    lm.tokenizer.chat_template = template
    with pytest.raises(TokenPOError, match=said) as caught:
        lm.encode([{"role": "user", "content": "1+1="}])
    text = str(caught.value)
    assert f"the chat template of {make_model()} fails on the prompt" in text and "1+1=" in text and "\n" not in text


def test_a_full_disk_while_the_tokenizer_is_written_leaves_the_model_before(lm, tmp_path, monkeypatch):
    """Files may have 1 KiB from there on: tokenizer.json is longer, and its library writes it itself."""
    path = tmp_path / "saved"
    save(lm, path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    write, (soft, hard) = type(lm.tokenizer).save_pretrained, resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_a_small_disk(self, directory):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
        try:
            return write(self, directory)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(type(lm.tokenizer), "save_pretrained", on_a_small_disk)
    with pytest.raises(OSError, match=r"the tokenizer cannot be saved: .*File too large"):
        save(lm, path, {"step": 1})
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    assert list(tmp_path.iterdir()) == [path]


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
def test_an_adapter_from_the_hub_is_not_applied(broken):
    """There is no directory to look into before it is loaded."""
    adapter = load(broken, lora=LoraOptions(rank=2, targets=("q_proj",))).adapter
    adapter.save_pretrained(broken)
    with pytest.raises(TokenPOError, match=r"holds a LoRA adapter, which is never applied here: merge it"):
        _load_weights(str(broken), torch.float32)


@peft
def test_lora_on_layers_that_do_not_exist(make_model):
    with pytest.raises(TokenPOError, match="LoRA targets"):
        load(make_model(), lora=LoraOptions(targets=("nowhere",)))


@peft
@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_lora_on_weights_that_two_layers_share(make_model, target):
    """A layer of its own may be adapted; where head and embedding are one, the merged model could not hold it."""
    with pytest.raises(
        TokenPOError, match=rf"targets .*{target}.* are tied .*leave it out of model\.lora\.targets"
    ) as caught:
        load(make_model("qwen3"), lora=LoraOptions(targets=("q_proj", target)))
    assert str(make_model("qwen3")) in str(caught.value)
    load(make_model("qwen2"), lora=LoraOptions(targets=("q_proj", target)))
