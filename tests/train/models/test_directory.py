"""Model directories: found by the names that users give, and refused in one sentence where something is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tokenpo.base.errors import TokenPOError
from tokenpo.train.models import load, locate
from tokenpo.train.models.directory import ASSETS, check_directory, declared_rows, identity, is_local
from tokenpo.train.models.model import _load_tokenizer, _load_weights

MARK = "executed"
WEIGHTS, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
CONFIG, TOKENIZER, SETTINGS = "config.json", "tokenizer.json", "tokenizer_config.json"
GENERATION, ADDED = "generation_config.json", "added_tokens.json"
FAR = 2**31  # the tokenizers' library prints every number without a token, up to the largest

Change = Callable[[Path], Any]


@pytest.fixture
def model(make_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private copy of a good directory, to be spoilt."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(make_model("qwen2"), tmp_path / "model"))


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path(MARK),))


def edit(name: str, **values: Any) -> Change:
    """Sets keys of a JSON file; `...` removes one."""

    def change(directory: Path) -> None:
        content = json.loads((directory / name).read_text()) | values
        (directory / name).write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))

    return change


def text(name: str, content: str | bytes) -> Change:
    return lambda d: (d / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def cut(name: str, size: int) -> Change:
    return lambda d: (d / name).write_bytes((d / name).read_bytes()[:size])


def without(pattern: str) -> Change:
    return lambda d: [file.unlink() for file in d.glob(pattern)]


def pipe(name: str) -> Change:
    return lambda d: ((d / name).unlink(missing_ok=True), os.mkfifo(d / name))


def device(name: str) -> Change:
    return lambda d: ((d / name).unlink(missing_ok=True), (d / name).symlink_to("/dev/zero"))


def grown(part: str, inner: str) -> Change:
    """Five replacements of a letter by ten."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    return edit(TOKENIZER, **{part: {"type": "Sequence", inner: [step] * 5}})


def endless(name: str) -> Change:
    """The size of ten machines' memory, and hardly a block on the disk."""
    return lambda d: os.truncate(d / name, 2**40)


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    def rewrite(directory: Path) -> None:
        content = load_file(directory / WEIGHTS)
        change(content)
        save_file(content, directory / WEIGHTS, metadata={"format": "pt"})

    return rewrite


def indexed(name: str, write: Any = save_file) -> Change:
    """The weights under another name, which an index gives."""

    def move(directory: Path) -> None:
        content = load_file(directory / WEIGHTS)
        (directory / WEIGHTS).unlink()
        (directory / name).parent.mkdir(exist_ok=True)
        write(content, directory / name, **({"metadata": {"format": "pt"}} if write is save_file else {}))
        index = {"metadata": {}, "weight_map": dict.fromkeys(content, name)}
        (directory / INDEX).write_text(json.dumps(index))

    return move


def weights_above(directory: Path) -> None:
    (directory / WEIGHTS).rename(directory.parent / "w.safetensors")
    edit(CONFIG, transformers_weights="../w.safetensors")(directory)


def lost_shard(directory: Path) -> None:
    (directory / WEIGHTS).rename(directory / "a.safetensors")
    (directory / INDEX).write_text('{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}')


def token(number: int, file: str = TOKENIZER) -> Change:
    """A token of that number."""

    def add(directory: Path) -> None:
        flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False) | {"special": True}
        if file == TOKENIZER:
            content = json.loads((directory / file).read_text())
            added = [*content["added_tokens"], {"id": number, "content": "<far>", **flags}]
            edit(file, added_tokens=added)(directory)
        else:
            edit(file, added_tokens_decoder={str(number): {"content": "<far>", **flags}})(directory)

    return add


def vocabulary_entry(directory: Path) -> None:
    content = json.loads((directory / TOKENIZER).read_text())["model"]
    content["vocab"]["<far>"] = FAR
    edit(TOKENIZER, model=content)(directory)


def tokenizer_above(**settings: Any) -> Change:
    def move(directory: Path) -> None:
        shutil.copy(directory / TOKENIZER, directory.parent / "tokenizer.4.0.0.json")
        edit(SETTINGS, **settings)(directory)

    return move


def evil_pickle(name: str) -> Change:
    return lambda d: ((d / WEIGHTS).unlink(), (d / name).write_bytes(pickle.dumps(Evil())))


def no_end(directory: Path) -> None:
    for file, key in ((CONFIG, "eos_token_id"), (GENERATION, "eos_token_id"), (SETTINGS, "eos_token")):
        edit(file, **{key: None})(directory)


def contents(directory: Path) -> dict[str, bytes]:
    files = [file for file in directory.glob("*") if file.is_file() and file.stat().st_size < 2**30]
    return {file.name: file.read_bytes() for file in files}


DAMAGE: dict[str, tuple[Change, str]] = {
    "missing": (shutil.rmtree, "there is no directory"),
    "no config": (without(CONFIG), r"has no config\.json"),
    "an adapter alone": (lambda d: (d / CONFIG).rename(d / "adapter_config.json"), "holds a LoRA adapter .*: merge it"),
    "an adapter beside": (text("adapter_config.json", "{}"), "or move it away from weights"),
    "config is a list": (text(CONFIG, "[]"), "must hold a JSON object"),
    "config is cut": (cut(CONFIG, 40), "is not valid JSON"),
    "config is no text": (text(CONFIG, b"\xff\x00"), "is not valid JSON"),
    "endless nesting": (text(SETTINGS, "[" * 10**5), "is not valid JSON"),
    "a pipe": (pipe(GENERATION), r"generation_config\.json cannot be read: it is not a regular file"),
    "a pipe that no loader needs": (pipe("merges.txt"), "it is not a regular file"),
    "a device behind the config": (device(CONFIG), r"has no config\.json|not a regular file"),
    "a device behind the template": (device("chat_template.jinja"), "it is not a regular file"),
    "a tokenizer without end": (endless(TOKENIZER), "bytes, of which 67,108,864 are the most"),
    "a decoder that grows": (grown("decoder", "decoders"), "its decoder can make a text 100,000 times as long"),
    "a normalizer that grows": (grown("normalizer", "normalizers"), "its normalizer can make a text 100,000 times"),
    "own code": (edit(CONFIG, auto_map={"AutoModelForCausalLM": "evil.Model"}), "brings its own Python code"),
    "no such architecture": (edit(CONFIG, model_type="nonesuch", architectures=["X"]), "cannot load .*`nonesuch`"),
    "no model type": (edit(CONFIG, model_type=...), "cannot load"),
    "attention of the hub": (edit(CONFIG, attn_implementation="somebody/kernel"), "code from the hub"),
    "attention of the hub, kept": (edit(CONFIG, _attn_implementation="somebody/kernel"), "code from the hub"),
    "experts of the hub, inside": (
        edit(CONFIG, text_config={"_experts_implementation_internal": "somebody/kernel"}), "code from the hub",
    ),
    "a pickle in the index": (indexed("w.bin", torch.save), r"index\.json names the weight file 'w\.bin'"),
    "a directory below": (indexed("sub/w.safetensors"), "names the weight file 'sub/w"),
    "a directory above": (indexed("../w.safetensors"), r"names the weight file '\.\./w"),
    "weights above by the config": (weights_above, r"config\.json names the weight file '\.\./w"),
    "a number in the index": (text(INDEX, '{"weight_map": {"a": 1}}'), "names the weight file 1"),
    "an index without files": (text(INDEX, '{"weight_map": {"a": "b"}}'), "names the weight file 'b'"),
    "an empty index": (text(INDEX, "{}"), "not a valid index"),
    "an index of nothing": (text(INDEX, "[1]"), "must hold a JSON object"),
    "a lost shard": (lost_shard, r"lacks the weight file b\.safetensors"),
    "no weights": (without(WEIGHTS), r"has no weights: expected model\.safetensors"),
    "a pickle alone": (evil_pickle(PICKLE), r"pickled \(pytorch_model\.bin\)"),
    "a pickle as safetensors": (evil_pickle(WEIGHTS), "cannot load a causal language model"),
    "a torch archive": (lambda d: torch.save({"a": Evil()}, d / WEIGHTS), "cannot load a causal language model"),
    "empty weights": (text(WEIGHTS, b""), "cannot load a causal language model"),
    "cut weights": (cut(WEIGHTS, -100), "cannot load a causal language model"),
    "a header of lies": (text(WEIGHTS, b"\xff" * 8 + b"{}"), "cannot load a causal language model"),
    "another width": (edit(CONFIG, intermediate_size=64), r"do not fit config\.json: .*up_proj.* another shape"),
    "a width of text": (edit(CONFIG, hidden_size="wide"), "cannot load"),
    "no layers": (edit(CONFIG, num_hidden_layers=-1), "."),
    "a smaller vocabulary": (edit(CONFIG, vocab_size=10), "do not fit"),
    "a tensor less": (
        weights(lambda t: t.pop("model.layers.1.mlp.up_proj.weight")), r"layers\.1.*up_proj\.weight are missing",
    ),
    "a tensor's shape": (weights(lambda t: t.update({"lm_head.weight": torch.zeros(3, 8)})), "do not fit"),
    "no tokenizer": (without("*token*"), "has no tokenizer"),
    "an empty tokenizer": (text(TOKENIZER, "{}"), "cannot load a tokenizer"),
    "a cut tokenizer": (cut(TOKENIZER, 400), "is not valid JSON"),
    "a tokenizer elsewhere": (tokenizer_above(tokenizer_file="../tokenizer.4.0.0.json"), "in tokenizer_file"),
    "tokenizers elsewhere": (tokenizer_above(fast_tokenizer_files=["../tokenizer.4.0.0.json"]), "fast_tokenizer_files"),
    "a far token": (vocabulary_entry, f"gives the token '<far>' the number {FAR}"),
    "a far added token": (token(FAR, SETTINGS), f"gives the token .* the number {FAR}"),
    "a far added token, kept": (text(ADDED, f'{{"far": {FAR}}}'), f"the number {FAR}"),
    "a token of text": (text(ADDED, '{"far": "one"}'), "the number 'one'"),
    "a longest text of letters": (edit(SETTINGS, model_max_length="x"), "model_max_length is 'x'"),
    "a longest text of a list": (edit(SETTINGS, model_max_length=[]), "model_max_length is"),
    "padding at the top": (edit(SETTINGS, padding_side="up"), "padding_side is 'up'"),
    "inputs that are a number": (edit(SETTINGS, model_input_names=5), "model_input_names is 5"),
    "an end beyond the vocabulary": (edit(GENERATION, eos_token_id=[2, 22]), "names the end-of-sequence token"),
    "an end that is no machine's number": (edit(CONFIG, eos_token_id=2**70), "names the end-of-sequence token"),
    "an end that is text": (edit(GENERATION, eos_token_id="two"), "."),
    "no end": (no_end, "names no end-of-sequence token"),
}  # fmt: skip


@pytest.mark.parametrize("fault", DAMAGE)
def test_a_damaged_directory_is_one_sentence_and_nothing_in_it_is_run_or_changed(model: Path, fault: str) -> None:
    spoil, message = DAMAGE[fault]
    (model / "evil.py").write_text(f"open({MARK!r}, 'w')")
    spoil(model)
    before = contents(model)
    with pytest.raises(TokenPOError, match=message) as caught:
        load(model)
    assert str(model) in str(caught.value) and "\n" not in str(caught.value)
    assert not Path(MARK).exists()
    assert contents(model) == before


def test_the_loaders_themselves_run_no_code_and_take_no_pickle(model: Path) -> None:
    """A hub model's big files are not looked through beforehand: there the loader refuses."""
    harmless = load_file(model / WEIGHTS)
    (model / "evil.py").write_text(f"open({MARK!r}, 'w')")
    names = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    edit(SETTINGS, auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})(model)
    kept = (model / CONFIG).read_bytes()
    edit(CONFIG, auto_map=names, model_type="nonesuch")(model)
    for loader in (lambda: _load_weights(str(model), torch.float32), lambda: _load_tokenizer(str(model))):
        with contextlib.suppress(TokenPOError):
            loader()
        assert not Path(MARK).exists()
    (model / CONFIG).write_bytes(kept)
    (model / WEIGHTS).unlink()
    torch.save(harmless, model / PICKLE)
    with pytest.raises(TokenPOError, match="cannot load a causal language model"):
        _load_weights(str(model), torch.float32)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (indexed("w.bin", torch.save), r"index\.json names the weight file 'w\.bin'"),
        (vocabulary_entry, f"gives the token '<far>' the number {FAR}"),
        (edit(CONFIG, attn_implementation="somebody/kernel"), "code from the hub"),
        (lambda d: None, None),
    ],
)
def test_a_model_of_the_hub_is_checked_before_it_is_loaded(
    model: Path, monkeypatch: pytest.MonkeyPatch, spoil: Change, message: str | None
) -> None:
    """From the hub's cache; the hub is not asked."""
    import huggingface_hub.constants

    spoil(model)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for module in (huggingface_hub.constants, transformers.utils.hub):
        monkeypatch.setattr(module, "HF_HUB_CACHE", str(model.parent / "cache"), raising=False)
    kept, commit = model.parent / "cache" / "models--some--model", "0" * 40
    shutil.copytree(model, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    if message is None:
        assert load("some/model").encode("1+1=")
    else:
        with pytest.raises(TokenPOError, match=message):
            load("some/model")


def test_a_hub_that_cannot_be_asked_and_a_mistyped_path(tmp_path: Path, monkeypatch, capsys) -> None:
    """The user reads that the hub is asked, and what was probably meant, before that is tried once."""
    import huggingface_hub.utils

    asked = []

    class Hub:
        def head(self, url: str, **_: object) -> None:
            asked.append((url, capsys.readouterr().err))
            raise TimeoutError("no answer")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(huggingface_hub.utils, "get_session", Hub)
    with pytest.raises(TokenPOError, match=r"^the hub cannot be asked for rnus/tepo \(no answer\): give the direc"):
        load("rnus/tepo")
    [(url, printed)] = asked
    assert url.endswith("/rnus/tepo/resolve/main/config.json")
    assert printed == "there is no directory rnus/tepo here (did you mean 'runs'?): asking the hub for it\n"


def test_names_of_models_are_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("tiny") == ASSETS
    assert locate("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert locate(tmp_path) == tmp_path
    assert not is_local("runs/nope")
    (tmp_path / "runs").mkdir()
    assert is_local("runs/nope") and not is_local("nope")
    (tmp_path / "weights").write_text("")
    with pytest.raises(TokenPOError, match="is a file"):
        load(tmp_path / "weights")
    with pytest.raises(TokenPOError, match="there is no directory no/such/model here"):
        load("./no/such/model")
    for look in (load, locate):
        for name, message in (
            ("runs/nope", r"no directory runs/nope here: .* \(the hub is asked only where runs is"),
            ("~nouser/m", "unknown user"),
            ("m" * 300, "File name too long"),
        ):
            with pytest.raises(TokenPOError, match=message):
                look(name)


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
    with pytest.raises(TokenPOError, match=r"that of step 2, and the run goes on to step 3: .*--resume") as caught:
        locate(tmp_path)
    assert str(caught.value).endswith(f"or give {tmp_path / 'model'}")
    for content in ('{"train": {"steps": 2}}', '{"train": {"steps": 1}}', '{"train": 3}', "{}", "[]", "{", "[" * 10**5):
        config.write_text(content)
        assert locate(tmp_path) == tmp_path / "model"
    config.write_text('{"train": {"steps": 3}}')
    for content in ("", "[]", '{"step": "2"}', '{"weights": "aa"}'):
        record.write_text(content)
        assert locate(tmp_path) == tmp_path / "model"


@pytest.mark.parametrize("name", [WEIGHTS, "part.safetensors", "vocab.bpe", "tokenizer.model", "x.jinja"])
def test_every_file_that_is_read_counts_for_the_identity(model: Path, name: str) -> None:
    if name == "part.safetensors":
        indexed(name)(model)
    elif not (model / name).exists():
        (model / name).write_text("one")
    before = identity(model)
    check_directory(model)
    (model / name).write_bytes((model / name).read_bytes()[:-1] + b"!")
    assert identity(model) != before


@pytest.mark.parametrize(("size", "rows"), [(22, 22), (2**31, None)])
def test_the_declared_vocabulary_is_bounded_by_the_weights(model: Path, size: int, rows: int | None) -> None:
    edit(CONFIG, vocab_size=size)(model)
    assert declared_rows(model) == (rows or (model / WEIGHTS).stat().st_size)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        *((code, f"the hub answers {code} when asked for owner/none: try again later") for code in (429, 500, 503)),
        (200, r"cannot be asked for owner/none \(no answer in 0.5 seconds\): give the"),
    ],
)
def test_a_hub_that_is_busy_broken_or_slow_is_asked_once(code: int, message: str, monkeypatch) -> None:
    """The loader would ask for each of its files six times, for minutes. With 200 a byte comes at a time."""
    asked, ended = [], threading.Event()

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(code)
            if code == 200:
                self.flush_headers()
                with contextlib.suppress(OSError):
                    while not ended.wait(0.02):
                        self.wfile.write(b"x")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr("huggingface_hub.hf_hub_url", lambda *_: f"http://127.0.0.1:{server.server_port}/x")
        if code == 200:
            monkeypatch.setattr("tokenpo.train.models.directory._PATIENCE", 0.5)
        with pytest.raises(TokenPOError, match=message):
            load("owner/none")
        ended.set()
        server.shutdown()
    assert len(asked) == 1


def test_a_tokenizer_that_panics_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """A panic of the tokenizers' library is no Exception, and prints where in Rust it arose."""
    model = Path(shutil.copytree(ASSETS, tmp_path / "model"))
    pattern = {"type": "Split", "pattern": {"Regex": "(1+)+(1+)+(1+)+b"}, "behavior": "Isolated", "invert": False}
    edit(TOKENIZER, pre_tokenizer=pattern)(model)
    with pytest.raises(TokenPOError, match=r"the tokenizer of .*model fails on the text '1111.*Regex search error"):
        load(model).encode("1" * 40)
    edit(TOKENIZER, pre_tokenizer=None, decoder={"type": "Strip", "content": "1", "start": 0, "stop": 5})(model)
    lm = load(model)
    ids = lm.encode("1+1=")
    for read in (lm.decode, lm.pieces, lambda _: lm.tokens_ending("1")):
        with pytest.raises(TokenPOError, match=r"the tokenizer of .*model fails on .*tokens.*index out of bounds"):
            read(ids)
    assert capfd.readouterr().err == ""


def test_a_token_without_an_embedding_is_refused_in_a_prompt(model: Path) -> None:
    token(22)(model)
    lm = load(model)
    assert lm.encode("1+1=")
    with pytest.raises(TokenPOError, match="has the token '<far>' with the number 22, but the model embeds 22"):
        lm.encode("1<far>1")
