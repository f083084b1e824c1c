"""Model directories: found by the names that users give, and refused in one sentence for the usual mistakes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tokenpo.base.errors import TokenPOError
from tokenpo.train.models import load, locate
from tokenpo.train.models.directory import ASSETS, identity, is_local

WEIGHTS, CONFIG = "model.safetensors", "config.json"
Change = Callable[[Path], Any]


@pytest.fixture
def model(make_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private copy of a good directory, to be spoilt."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(make_model("qwen2"), tmp_path / "model"))


def edit(name: str, **values: Any) -> Change:
    """Sets keys of a JSON file."""

    def change(directory: Path) -> None:
        (directory / name).write_text(json.dumps(json.loads((directory / name).read_text()) | values))

    return change


def without(pattern: str) -> Change:
    return lambda d: [file.unlink() for file in d.glob(pattern)]


def pickled(directory: Path) -> None:
    torch.save(load_file(directory / WEIGHTS), directory / "pytorch_model.bin")
    (directory / WEIGHTS).unlink()


def a_tensor_less(directory: Path) -> None:
    content = load_file(directory / WEIGHTS)
    del content["model.layers.1.mlp.up_proj.weight"]
    save_file(content, directory / WEIGHTS, metadata={"format": "pt"})


DAMAGE: dict[str, tuple[Change, str]] = {
    "missing": (shutil.rmtree, "there is no directory .*model here"),
    "no config": (without(CONFIG), "cannot load a causal language model"),
    "an adapter": (lambda d: (d / "adapter_config.json").write_text("{}"), "holds a LoRA adapter: merge it"),
    "pickled weights": (pickled, "has pickled weights: convert them"),
    "no tokenizer": (without("*token*"), "has no tokenizer: save"),
    "a tensor less": (a_tensor_less, r"missing: model\.layers\.1.*up_proj\.weight\)"),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_a_mistake_in_a_directory_is_one_sentence(model: Path, fault: str) -> None:
    spoil, message = DAMAGE[fault]
    spoil(model)
    with pytest.raises(TokenPOError, match=message) as caught:
        load(model)
    assert str(model) in str(caught.value) and "\n" not in str(caught.value)


def test_code_from_a_model_directory_is_not_run(model: Path) -> None:
    (model / "evil.py").write_text("open('executed', 'w')")
    edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})(model)
    names = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    edit(CONFIG, auto_map=names, model_type="nonesuch")(model)
    with pytest.raises(TokenPOError, match="cannot load a causal language model"):
        load(model)
    assert not Path("executed").exists()


def test_names_of_models_are_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("tiny") == ASSETS
    assert locate("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert locate(tmp_path) == tmp_path
    assert not is_local("runs/nope")
    (tmp_path / "runs" / "none").mkdir(parents=True)
    assert is_local("runs/nope") and not is_local("nope")
    for look in (load, locate):
        with pytest.raises(TokenPOError, match=r"no directory runs/nope here \(did you mean 'none'\?\)"):
            look("runs/nope")


def test_a_run_stands_for_its_last_model(tmp_path: Path) -> None:
    """Made by 2 steps of 3 it is refused; where either number is not known, the model is taken as it is."""
    (tmp_path / "objective.txt").touch()
    with pytest.raises(TokenPOError, match="has no model yet: let it finish"):
        locate(tmp_path)
    (tmp_path / "model").mkdir()
    assert locate(str(tmp_path)) == tmp_path / "model"
    record, config = tmp_path / "model" / "trained.json", tmp_path / "config.json"
    record.write_text('{"step": 2, "weights": "aa"}')
    config.write_text('{"train": {"steps": 3}}')
    with pytest.raises(TokenPOError, match=r"that of step 2 of 3: .*--resume") as caught:
        locate(tmp_path)
    assert str(caught.value).endswith(f"or give {tmp_path / 'model'}")
    config.write_text('{"train": {"steps": 2}}')
    assert locate(tmp_path) == tmp_path / "model"


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "vocab.bpe", "tokenizer.model", "chat_template.jinja"])
def test_every_file_that_is_read_counts_for_the_identity(model: Path, name: str) -> None:
    if not (model / name).exists():
        (model / name).write_text("one")
    before = identity(model)
    (model / name).write_bytes((model / name).read_bytes()[:-1] + b"!")
    assert identity(model) != before
