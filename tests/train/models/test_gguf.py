"""GGUF files written here become model directories with the file's weights and tokenizer, and models such files."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gguf")

from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, RopeScalingType, TokenType
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.train.models import load
from tokenpo.train.models.gguf import export_gguf, import_gguf

WIDTH, HEADS, HEAD, LAYERS = 64, 4, 16, 2
KINDS: dict[str, Any] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}<|im_start|>"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXT = [*"abtehd12345678 '\n".replace(" ", "Ġ").replace("\n", "Ċ"), "12", "th", "the", "Ġthe", "ĊĊ"]
MERGES = ["1 2", "t h", "th e", "Ġ the", "Ċ Ċ"]
TOKENS = [*CONTROL, "<kept>", *TEXT]
IDS = {token: i for i, token in enumerate(TOKENS)}


def small(kind: str, **more: Any) -> Any:
    """A model of transformers with weights that differ everywhere."""
    torch.manual_seed(0)
    config = KINDS[kind](
        vocab_size=len(TOKENS), hidden_size=WIDTH, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, head_dim=HEAD, max_position_embeddings=128,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500.0}, **more,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    return model


def pairs(weight: np.ndarray) -> np.ndarray:
    """Each head's rows in rotary pairs, as llama.cpp's converter writes queries and keys of `llama`."""
    heads = weight.reshape(-1, 2, HEAD // 2, *weight.shape[1:])
    return heads.swapaxes(1, 2).reshape(weight.shape)


def eighths(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q8_0 by its definition: blocks of 32, a scale in half precision and whole numbers; the bytes and the values."""
    blocks = x.reshape(-1, 32).astype(np.float32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    whole = np.rint(blocks / scale.astype(np.float32)).astype(np.int8)
    data = np.concatenate([scale.view(np.uint8), whole.view(np.uint8)], 1)
    return data.reshape(*x.shape[:-1], -1), (whole * scale.astype(np.float32)).reshape(x.shape)


def write(path: Path, model: Any, kind: str, stored: str = "F32", drop: str = "", **fields: Any) -> dict[str, Any]:
    """Writes the model as GGUF; returns the weights that the file holds, by transformers' name."""
    writer, held = GGUFWriter(path, kind), {}
    for name, tensor in model.state_dict().items():
        stem, _, end = name.rpartition(".")
        block = stem.removeprefix("model.layers.").partition(".")
        source = NAMES[stem] if stem in NAMES else f"blk.{block[0]}.{NAMES[block[2]]}"
        if (name.startswith("lm_head") and model.config.tie_word_embeddings) or source == drop:
            continue
        values = tensor.numpy().copy()
        turn = pairs if kind == "llama" and source.endswith(("attn_q", "attn_k")) else lambda x: x
        if stored == "Q8_0" and values.ndim == 2:
            data, held[name] = eighths(values)
            writer.add_tensor(f"{source}.{end}", turn(data), raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            held[name] = values if values.ndim == 1 or stored == "F32" else values.astype(np.float16)
            writer.add_tensor(f"{source}.{end}", np.ascontiguousarray(turn(held[name])))
    config = model.config
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    writer.add_license("apache-2.0")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(fields.pop("pre", "smollm"))
    writer.add_token_list(TOKENS)
    kinds = [TokenType.CONTROL] * 3 + [TokenType.USER_DEFINED] + [TokenType.NORMAL] * len(TEXT)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for key, value in fields.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


@pytest.mark.parametrize("stored", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize(
    ("kind", "more"), [("llama", {}), ("llama", {"tie_word_embeddings": True}), ("qwen2", {}), ("qwen3", {})]
)
def test_the_model_is_the_one_in_the_file(kind: str, more: dict, stored: str, tmp_path: Path) -> None:
    model = small(kind, **more)
    held = write(tmp_path / "m.gguf", model, kind, stored)
    model.load_state_dict({name: torch.from_numpy(x.astype(np.float32)) for name, x in held.items()}, strict=False)
    import_gguf(tmp_path / "m.gguf", tmp_path / "model")
    made = load(tmp_path / "model")
    ids = torch.arange(len(TOKENS))[None]
    torch.testing.assert_close(made.model(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-6)
    assert made.model.config.tie_word_embeddings == bool(more)
    assert (made.eos_ids, made.pad_id, made.model.generation_config.bos_token_id) == ((2,), 2, 1)


@pytest.fixture(scope="module")
def llama() -> Any:
    return small("llama")


def imported(llama: Any, tmp_path: Path, **fields: Any) -> Any:
    write(tmp_path / "m.gguf", llama, "llama", **fields)
    import_gguf(tmp_path / "m.gguf", tmp_path / "model")
    return load(tmp_path / "model")


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("smollm", "the 12", ["the", "Ġ", "1", "2"]),
        ("gpt-2", "the 12", ["the", "Ġ", "12"]),
        ("qwen2", "the 12", ["the", "Ġ", "1", "2"]),
        ("llama-bpe", "the 1234", ["the", "Ġ", "12", "3", "4"]),
        ("gpt-2", "\n\nthe", ["Ċ", "Ċ", "the"]),  # the last blank goes apart, so that the pair is not merged
        ("qwen2", "\n\nthe", ["ĊĊ", "the"]),
        ("smollm", "<|im_start|>a<kept>b the", ["<|im_start|>", "a", "<kept>", "b", "Ġthe"]),
    ],
)
def test_a_text_is_cut_by_the_rule_that_the_file_names(llama, pre, text, tokens, tmp_path) -> None:
    made = imported(llama, tmp_path, pre=pre, add_bos_token=False)
    assert made.encode(text) == [IDS[token] for token in tokens]
    assert made.tokenizer.decode(made.encode(text)) == text
    assert made.decode(made.encode("<|im_start|>a<kept>")) == "a<kept>"  # a user's token is text


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({}, []),
        ({"add_bos_token": True}, [1]),
        ({"pre": "llama-bpe"}, [1]),
        ({"pre": "llama-bpe", "add_bos_token": False}, []),
    ],
)
def test_bos_is_put_where_the_file_or_its_rule_wants_it(llama, fields, first, tmp_path) -> None:
    assert imported(llama, tmp_path, **fields).encode("the") == [*first, IDS["the"]]


def test_the_files_rule_wins_over_the_architectures(tmp_path) -> None:
    write(tmp_path / "m.gguf", small("qwen2"), "qwen2", pre="gpt-2", add_bos_token=False)
    import_gguf(tmp_path / "m.gguf", tmp_path / "model")
    with pytest.warns(UserWarning, match="Qwen2Tokenizer gives other token ids than"):
        made = load(tmp_path / "model")
    assert made.encode("the 12") == [IDS[token] for token in ("the", "Ġ", "12")]


def test_the_command_writes_licence_and_source(llama, tmp_path, capsys) -> None:
    write(tmp_path / "m.gguf", llama, "llama", name="Small")
    (tmp_path / "LICENSE").write_text("words")
    assert main(["import", str(tmp_path / "m.gguf"), str(tmp_path / "model"), "--dtype", "bfloat16"]) == 0
    card, digest = (
        (tmp_path / "model/README.md").read_text(),
        hashlib.sha256((tmp_path / "m.gguf").read_bytes()).hexdigest(),
    )
    assert card.startswith("---\nlicense: apache-2.0\n") and digest in card and digest in capsys.readouterr().out
    assert (tmp_path / "model/LICENSE").read_text() == "words"
    assert next(load(tmp_path / "model", dtype="bfloat16").model.parameters()).dtype == torch.bfloat16
    assert main(["import", str(tmp_path / "m.gguf"), str(tmp_path / "model")]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pre": "deepseek-llm"}, "the splitting rule of the tokenizer is 'deepseek-llm'; supported are gpt-2"),
        ({"drop": "blk.1.attn_q"}, "lacks tensors of a llama model: blk.1.attn_q"),
        ({"rope_scaling_type": RopeScalingType.YARN}, "with scaled rotary frequencies or experts"),
    ],
)
def test_what_cannot_be_read_is_refused(llama, change, words, tmp_path) -> None:
    write(tmp_path / "m.gguf", llama, **{"kind": "llama", **change})
    with pytest.raises(TokenPOError, match=words):
        import_gguf(tmp_path / "m.gguf", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def content(file: Path) -> tuple[dict[str, Any], dict[str, tuple]]:
    """What a GGUF file holds: fields, and of each tensor its type, shape and bytes."""
    reader = GGUFReader(file)
    tensors = {x.name: (x.tensor_type, [*x.shape], x.data.tobytes()) for x in reader.tensors}
    return {name: field.contents() for name, field in reader.fields.items() if name[:4] != "GGUF"}, tensors


@pytest.mark.parametrize("stored", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize(("kind", "more"), [("llama", {}), ("qwen2", {"tie_word_embeddings": True}), ("qwen3", {})])
def test_an_exported_file_holds_what_the_imported_one_held(kind, more, stored, tmp_path) -> None:
    rule = "qwen2" if kind == "qwen2" else "smollm"
    write(tmp_path / "m.gguf", small(kind, **more), kind, stored, pre=rule, add_bos_token=False)
    import_gguf(tmp_path / "m.gguf", tmp_path / "small")
    export_gguf(tmp_path / "small", tmp_path / "back.gguf", stored.lower())
    (fields, tensors), (given, expected) = content(tmp_path / "back.gguf"), content(tmp_path / "m.gguf")
    assert tensors == expected
    assert {name: fields[name] for name in given} == given
    import_gguf(tmp_path / "back.gguf", tmp_path / "again")
    for name in ("model.safetensors", "config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json"):
        assert (tmp_path / "small" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_the_command_exports_a_run_with_its_licence(llama, tmp_path, capsys) -> None:
    imported(llama, tmp_path)
    asked = ["export", str(tmp_path / "model"), str(tmp_path / "back.gguf")]
    assert main(asked) == 0
    fields, tensors = content(tmp_path / "back.gguf")
    assert (fields["general.license"], fields["general.name"]) == ("apache-2.0", tmp_path.name)
    assert tensors["blk.0.attn_q.weight"][0] == GGMLQuantizationType.F16
    assert tensors["blk.0.attn_norm.weight"][0] == GGMLQuantizationType.F32
    capsys.readouterr()
    assert main(asked) == 2
    assert "back.gguf exists: choose another name" in capsys.readouterr().err
    assert main([*asked[:2], str(tmp_path / "new.gguf"), "--as", "q4_0"]) == 2
    assert "storage='q4_0' is not a choice" in capsys.readouterr().err
