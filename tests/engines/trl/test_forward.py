"""Which models and settings have their head left to us, and that a model is itself again afterwards. Imports TRL."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from foreign_support import need

need("trl", "trl is not installed: the adapter to it was not tested")

from accelerate.utils import DistributedType  # noqa: E402
from transformers import (  # noqa: E402
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tokenpo.engines.trl.forward import has_whole_plain_head, head_work, wants_head  # noqa: E402

SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def qwen(**more: Any) -> Any:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SMALL, num_key_value_heads=1, head_dim=8, **more))


def trainer(model: Any, kind: str = "NO", precision: str = "no", **args: Any) -> Any:
    """As much of a trainer as is asked."""
    accelerator = SimpleNamespace(
        distributed_type=DistributedType(kind), mixed_precision=precision, unwrap_model=lambda model: model,
        device=torch.device(args.pop("device", "cpu")), autocast=lambda: torch.autocast("cpu", enabled=False),
    )  # fmt: skip
    settings = SimpleNamespace(**({"torch_compile": False, "fused_objective": None} | args))
    return SimpleNamespace(model=model, accelerator=accelerator, args=settings)


@pytest.mark.parametrize("kind", ["NO", "MULTI_CPU", "MULTI_GPU"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_plain_head_fits(kind: str, tied: bool) -> None:
    model = qwen(tie_word_embeddings=tied).train()
    assert has_whole_plain_head(trainer(model, kind))
    assert model.training


def test_a_head_with_a_bias_fits() -> None:
    assert has_whole_plain_head(trainer(PhiForCausalLM(PhiConfig(**SMALL)), precision="bf16"))


def test_adapters_elsewhere_leave_the_head_plain_and_one_on_it_does_not() -> None:
    peft = pytest.importorskip("peft")
    elsewhere = peft.LoraConfig(target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    assert has_whole_plain_head(trainer(peft.get_peft_model(qwen(), elsewhere)))
    for config in (
        peft.LoraConfig(target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM"),
        peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM"),
    ):
        assert not has_whole_plain_head(trainer(peft.get_peft_model(qwen(tie_word_embeddings=False), config)))


def test_a_soft_cap_and_a_scale_do_not_fit() -> None:
    gemma = Gemma2Config(**SMALL, num_key_value_heads=1, head_dim=8, final_logit_softcapping=30.0)
    assert not has_whole_plain_head(trainer(Gemma2ForCausalLM(gemma)))
    assert not has_whole_plain_head(trainer(CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.25))))


def test_a_head_with_a_forward_of_its_own_does_not_fit() -> None:
    """As under TRL's cast_lm_head_to_fp32: the very same numbers here, others under autocast."""
    model = qwen()
    model.lm_head.forward = lambda hidden: nn.functional.linear(hidden.float(), model.lm_head.weight.float())
    assert not has_whole_plain_head(trainer(model))


@pytest.mark.parametrize("given", [
    {"kind": "FSDP"}, {"kind": "DEEPSPEED"}, {"precision": "fp16"}, {"torch_compile": True},
])  # fmt: skip
def test_split_or_compiled_models_and_float16_do_not_fit(given: dict[str, Any]) -> None:
    assert not has_whole_plain_head(trainer(qwen(), **given))


def test_float16_weights_a_quantised_weight_and_two_devices_do_not_fit() -> None:
    assert not has_whole_plain_head(trainer(qwen().half()))
    odd = qwen(tie_word_embeddings=False)
    odd.lm_head.weight = type("Quantised", (nn.Parameter,), {})(odd.lm_head.weight.detach())
    assert not has_whole_plain_head(trainer(odd))
    apart = qwen()
    apart.model.norm = apart.model.norm.to("meta")
    assert not has_whole_plain_head(trainer(apart))


def test_models_that_see_more_than_text_do_not_fit() -> None:
    model = qwen()
    model.config.get_text_config = lambda *_, **__: Qwen3Config(**SMALL)
    assert not has_whole_plain_head(trainer(model))


@pytest.mark.parametrize(("asked", "device", "wanted"), [
    (None, "cpu", True), (None, "cuda", False), (True, "cuda", True), (False, "cpu", False),
])  # fmt: skip
def test_the_switch(asked: bool | None, device: str, wanted: bool) -> None:
    assert wants_head(trainer(qwen(), fused_objective=asked, device=device)) is wanted


def test_hidden_states_are_those_before_each_token_and_the_model_is_itself_again() -> None:
    model = qwen().eval()
    ids = torch.arange(3, 15).view(2, 6)
    inputs = {
        "prompt_ids": ids[:, :2], "completion_ids": ids[:, 2:], "prompt_mask": torch.ones(2, 2).long(),
        "completion_mask": torch.ones(2, 4).long(),
    }  # fmt: skip
    expected = model(input_ids=ids).logits
    got = head_work(trainer(model), model, inputs, lambda hidden, head: head(hidden))
    torch.testing.assert_close(got, expected[:, 1:-1])
    with pytest.raises(ZeroDivisionError):
        head_work(trainer(model), model, inputs, lambda hidden, head: 1 / 0)
    assert "forward" not in vars(model)
    model.forward = patched = model.forward
    head_work(trainer(model), model, inputs, lambda hidden, head: None)
    assert vars(model)["forward"] is patched
    torch.testing.assert_close(model(input_ids=ids).logits, expected)


def test_the_benchmark_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    script = importlib.import_module("trl_head")
    line = "--vocabulary 40 --hidden 16 --rows 8 --length 4 --rounds 1"
    script.main(line.split())
    script.main([*line.split(), "--memory"])
    said = capsys.readouterr().out
    assert "TRL's pass / in the head" in said and said.count(" MB") == 2
