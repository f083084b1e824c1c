"""Model directories with something wrong: one sentence that names the place, and nothing in them is run or changed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tokenpo.base.errors import TokenPOError
from tokenpo.base.silence import muted
from tokenpo.models import load
from tokenpo.models.directory import check_directory, declared_rows, identity
from tokenpo.models.model import _load_tokenizer, _load_weights
from tokenpo.models.tiny import tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    directory = tmp_path_factory.mktemp("whole")
    config = Qwen3Config(
        vocab_size=259,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=16,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    load(directory)
    return directory


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path(MARK),))


MARK = "unpickled"


def changed(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text())
    content.update(values)
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def tensors(directory: Path, change: Any) -> None:
    file = directory / "model.safetensors"
    content = load_file(file)
    change(content)
    save_file({name: x.contiguous() for name, x in content.items()}, file, metadata={"format": "pt"})


def extra_token(directory: Path) -> None:
    changed(
        directory / "tokenizer.json",
        added_tokens=[
            *json.loads((directory / "tokenizer.json").read_text())["added_tokens"],
            {
                "id": 400,
                "content": "<more>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            },
        ],
    )


def elsewhere(directory: Path, name: str, write: Any = save_file) -> None:
    """The weights under another name, which an index gives."""
    weights = directory / "model.safetensors"
    content = load_file(weights)
    weights.unlink()
    (directory / name).parent.mkdir(exist_ok=True)
    write(content, directory / name, **({"metadata": {"format": "pt"}} if write is save_file else {}))
    index = {"metadata": {}, "weight_map": dict.fromkeys(content, name)}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def named_by_config(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory.parent / "w.safetensors")
    changed(directory / "config.json", transformers_weights="../w.safetensors")


def tokenizer_elsewhere(directory: Path, **settings: Any) -> None:
    shutil.copy(directory / "tokenizer.json", directory.parent / "tokenizer.4.0.0.json")
    changed(directory / "tokenizer_config.json", **settings)


def far_token(directory: Path) -> None:
    """The library of the tokenizers prints every number that has no token, up to this one."""
    model = json.loads((directory / "tokenizer.json").read_text())["model"]
    model["vocab"]["far"] = 2**31
    changed(directory / "tokenizer.json", model=model)


def far_added_token(directory: Path) -> None:
    token = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word", "special"), False) | {"content": "far"}
    changed(directory / "tokenizer_config.json", added_tokens_decoder={str(2**31): token})


DAMAGE: dict[str, Any] = {
    "an index that names a pickle": lambda d: elsewhere(d, "w.bin", torch.save),
    "an index that names a directory below": lambda d: elsewhere(d, "sub/w.safetensors"),
    "an index that names a directory above": lambda d: elsewhere(d, "../w.safetensors"),
    "an index that names a number": lambda d: (d / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": 1}}'
    ),
    "a config that names weights elsewhere": named_by_config,
    "attention from the hub": lambda d: changed(d / "config.json", attn_implementation="somebody/kernel"),
    "attention from the hub, as it is kept": lambda d: changed(
        d / "config.json", _attn_implementation="somebody/kernel"
    ),
    "experts from the hub, inside": lambda d: changed(
        d / "config.json", text_config={"_experts_implementation_internal": "somebody/kernel"}
    ),
    "a tokenizer file elsewhere": lambda d: tokenizer_elsewhere(
        d, tokenizer_file=str(d.parent / "tokenizer.4.0.0.json")
    ),
    "tokenizer files elsewhere": lambda d: tokenizer_elsewhere(d, fast_tokenizer_files=["../tokenizer.4.0.0.json"]),
    "a token far away": far_token,
    "an added token far away": far_added_token,
    "an added token far away, as it was kept": lambda d: (d / "added_tokens.json").write_text('{"far": 2147483648}'),
    "a longest text of letters": lambda d: changed(d / "tokenizer_config.json", model_max_length="x"),
    "a longest text of a list": lambda d: changed(d / "tokenizer_config.json", model_max_length=[]),
    "padding at the top": lambda d: changed(d / "tokenizer_config.json", padding_side="up"),
    "inputs that are a number": lambda d: changed(d / "tokenizer_config.json", model_input_names=5),
    "an end beyond the vocabulary": lambda d: changed(d / "generation_config.json", eos_token_id=[2, 259]),
    "an end that is no machine's number": lambda d: changed(d / "config.json", eos_token_id=2**70),
    "a token of text": lambda d: (d / "added_tokens.json").write_text('{"far": "one"}'),
    "settings of a tokenizer that are nested without end": lambda d: (d / "tokenizer_config.json").write_text(
        "[" * 10**5
    ),
    "no config": lambda d: (d / "config.json").unlink(),
    "config is a list": lambda d: (d / "config.json").write_text("[]"),
    "config is cut": lambda d: (d / "config.json").write_text((d / "config.json").read_text()[:40]),
    "config is no text": lambda d: (d / "config.json").write_bytes(b"\xff\x00"),
    "no such architecture": lambda d: changed(d / "config.json", model_type="nonesuch", architectures=["NonesuchLM"]),
    "no model type": lambda d: changed(d / "config.json", model_type=...),
    "own code": lambda d: changed(d / "config.json", auto_map={"AutoModelForCausalLM": "evil.Model"}),
    "another width": lambda d: changed(d / "config.json", hidden_size=16),
    "a layer more": lambda d: changed(d / "config.json", num_hidden_layers=2),
    "a width of text": lambda d: changed(d / "config.json", hidden_size="wide"),
    "no layers": lambda d: changed(d / "config.json", num_hidden_layers=-1),
    "smaller vocabulary": lambda d: changed(d / "config.json", vocab_size=100),
    "no weights": lambda d: (d / "model.safetensors").unlink(),
    "empty weights": lambda d: (d / "model.safetensors").write_bytes(b""),
    "cut weights": lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:-100]),
    "a header of lies": lambda d: (d / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}"),
    "a pickle as safetensors": lambda d: (d / "model.safetensors").write_bytes(pickle.dumps(Evil())),
    "a pickle alone": lambda d: (
        (d / "model.safetensors").unlink(),
        (d / "pytorch_model.bin").write_bytes(pickle.dumps(Evil())),
    ),
    "a torch archive as safetensors": lambda d: torch.save({"a": Evil()}, d / "model.safetensors"),
    "a tensor less": lambda d: tensors(d, lambda t: t.pop("lm_head.weight")),
    "a tensor of another shape": lambda d: tensors(d, lambda t: t.update({"lm_head.weight": torch.zeros(3, 8)})),
    "no tokenizer": lambda d: [file.unlink() for file in d.glob("tokenizer*")],
    "a tokenizer that is cut": lambda d: (d / "tokenizer.json").write_text((d / "tokenizer.json").read_text()[:400]),
    "a tokenizer of lies": lambda d: (d / "tokenizer.json").write_text("{}"),
    "an index without files": lambda d: (d / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b"}}'),
    "an index of nothing": lambda d: (d / "model.safetensors.index.json").write_text("[1]"),
    "an end that is text": lambda d: changed(d / "generation_config.json", eos_token_id="two"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_directory_is_one_sentence(whole: Path, tmp_path: Path, monkeypatch, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "model"
    shutil.copytree(whole, directory)
    (directory / "evil.py").write_text(f"open({MARK!r}, 'w')")
    DAMAGE[what](directory)
    before = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}
    with pytest.raises(TokenPOError) as caught:
        load(directory)
    assert str(directory) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / MARK).exists()
    assert {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()} == before


def backtracking(directory: Path) -> None:
    """The library of the tokenizers panics, which is no Exception."""
    pattern = {"type": "Split", "pattern": {"Regex": "(1+)+(1+)+(1+)+b"}, "behavior": "Isolated", "invert": False}
    changed(directory / "tokenizer.json", pre_tokenizer=pattern)


def test_a_tokenizer_that_panics_on_a_text_is_one_sentence(whole: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "model"))
    backtracking(directory)
    with pytest.raises(TokenPOError, match=r"the tokenizer of .*model fails on the text '1111.*Regex search error"):
        load(directory).encode("1" * 40)


def test_nothing_that_native_code_prints_reaches_the_terminal(capfd: pytest.CaptureFixture) -> None:
    with muted():
        os.write(1, b"from below")
        os.write(2, b"from below")
    print("after")
    assert capfd.readouterr() == ("after\n", "")


@pytest.mark.parametrize(("size", "rows"), [(259, 259), (2**31, None)])
def test_what_a_config_says_of_its_vocabulary_is_bounded_by_the_weights(whole, tmp_path, size, rows) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "model"))
    changed(directory / "config.json", vocab_size=size)
    assert declared_rows(directory) == (rows or (directory / "model.safetensors").stat().st_size)


def with_code(directory: Path) -> None:
    """A model and a tokenizer that are what a file beside them says."""
    names = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    changed(directory / "config.json", auto_map=names, model_type="nonesuch")
    changed(directory / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})


def test_the_loaders_themselves_run_no_code(whole: Path, tmp_path: Path, monkeypatch) -> None:
    """A model of the hub is not looked through beforehand: what refuses it is the loader."""
    monkeypatch.chdir(tmp_path)
    directory = Path(shutil.copytree(whole, tmp_path / "model"))
    (directory / "evil.py").write_text(f"open({str(tmp_path / MARK)!r}, 'w')")
    with_code(directory)
    for loader in (lambda: _load_weights(str(directory), torch.float32), lambda: _load_tokenizer(str(directory))):
        with contextlib.suppress(TokenPOError):
            loader()
        assert not (tmp_path / MARK).exists()


def test_the_loader_itself_takes_no_pickle(whole: Path, tmp_path: Path) -> None:
    """Not even one that torch would take for harmless."""
    directory = Path(shutil.copytree(whole, tmp_path / "model"))
    weights = directory / "model.safetensors"
    torch.save(load_file(weights), directory / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(TokenPOError, match="cannot load a causal language model"):
        _load_weights(str(directory), torch.float32)


def of_hub(directory: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which the directory lies in the cache of the hub, which is not asked for anything."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for module in (huggingface_hub.constants, transformers.utils.hub):
        monkeypatch.setattr(module, "HF_HUB_CACHE", str(cache), raising=False)
    commit = "0" * 40
    kept = cache / "models--some--model"
    shutil.copytree(directory, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    return "some/model"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: elsewhere(d, "w.bin", torch.save), r"index\.json names the weight file 'w\.bin'"),
        (far_token, "gives the token 'far' the number 2147483648"),
        (lambda d: changed(d / "config.json", attn_implementation="somebody/kernel"), "code from the hub"),
        (lambda d: None, None),
    ],
)
def test_a_model_of_the_hub_is_looked_through_before_it_is_loaded(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, words: str | None
) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "model"))
    spoil(directory)
    name = of_hub(directory, tmp_path / "cache", monkeypatch)
    if words is None:
        assert load(name).encode("1+1=")
    else:
        with pytest.raises(TokenPOError, match=words):
            load(name)


@pytest.mark.parametrize("name", ["model.safetensors", "part.safetensors", "vocab.bpe", "tokenizer.model", "x.jinja"])
def test_whatever_is_read_tells_a_directory_from_another(whole: Path, tmp_path: Path, name: str) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "model"))
    if name == "part.safetensors":
        elsewhere(directory, name)
    elif not (directory / name).exists():
        (directory / name).write_text("one")
    before = identity(directory)
    check_directory(directory)
    (directory / name).write_bytes((directory / name).read_bytes()[:-1] + b"!")
    assert identity(directory) != before


def test_a_token_without_an_embedding_is_refused_where_a_prompt_has_it(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(whole, directory)
    extra_token(directory)
    lm = load(directory)
    assert lm.encode("1+1=")
    extra = max(lm.tokenizer.get_vocab(), key=lm.tokenizer.get_vocab().__getitem__)
    with pytest.raises(TokenPOError, match="but the model embeds"):
        lm.encode(f"1{extra}1")
