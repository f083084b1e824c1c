"""Which models and settings have their head left to us, and that a model is itself again afterwards. Imports TRL."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import tokenpo
from tokenpo.hosts.trl.forward import Forward, head_work

SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {"num_key_value_heads": 1, "head_dim": 8}


def qwen(**more: Any) -> Any:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SMALL, **GROUPED, **more))


def untied() -> Any:
    return qwen(tie_word_embeddings=False)


def adapted(model: Any, *targets: str, **more: Any) -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=[*targets], task_type="CAUSAL_LM", **more))


def trainer(model: Any, kind: str = "NO", precision: str = "no", **args: Any) -> Any:
    """As much of a trainer as is read."""
    accelerator = SimpleNamespace(
        distributed_type=DistributedType(kind),
        mixed_precision=precision,
        unwrap_model=lambda model: model,
        device=torch.device(args.pop("device", "cpu")),
        autocast=lambda: torch.autocast("cpu", enabled=False),
    )
    settings = SimpleNamespace(**({"torch_compile": False, "fused_objective": None} | args))
    experts = settings.__dict__.pop("experts", False)
    return SimpleNamespace(model=model, accelerator=accelerator, args=settings, aux_loss_enabled=experts)


PLAIN: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    **{
        f"{make.__name__} {kind}": (make, {"kind": kind})
        for make in (qwen, untied)
        for kind in ("NO", "MULTI_CPU", "MULTI_GPU")
    },
    "a bias": (lambda: PhiForCausalLM(PhiConfig(**SMALL)), {"precision": "bf16"}),
    "an adapter elsewhere": (lambda: adapted(qwen(), "q_proj", "down_proj"), {}),
    "asked for on a GPU": (qwen, {"fused_objective": True, "device": "cuda"}),
}
OTHERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "an adapter on it": (lambda: adapted(untied(), "q_proj", "lm_head"), {}),
    "one trained beside an adapter": (lambda: adapted(untied(), "q_proj", modules_to_save=["lm_head"]), {}),
    "a soft cap": (lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, **GROUPED, final_logit_softcapping=30.0)), {}),
    "a scale": (lambda: CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.25)), {}),
    "FSDP": (qwen, {"kind": "FSDP"}),
    "DeepSpeed": (qwen, {"kind": "DEEPSPEED"}),
    "float16": (qwen, {"precision": "fp16"}),
    "float16 weights": (lambda: qwen().half(), {}),
    "compiled": (qwen, {"torch_compile": True}),
    "not measured on a GPU": (qwen, {"device": "cuda"}),
    "switched off": (qwen, {"fused_objective": False}),
    "an auxiliary loss": (qwen, {"experts": True}),
}


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_the_head_is_used_where_it_is_plain_and_whole(name: str) -> None:
    make, settings = {**PLAIN, **OTHERS}[name]
    model = make().train()
    assert Forward.of(trainer(model, **settings), tokenpo.method("grpo")).in_head == (name in PLAIN)
    assert model.training


def test_hidden_states_are_those_before_each_token_and_the_model_is_itself_again() -> None:
    model = qwen().eval()
    ids = torch.arange(3, 15).view(2, 6)
    inputs = {
        "prompt_ids": ids[:, :2],
        "completion_ids": ids[:, 2:],
        "prompt_mask": torch.ones(2, 2).long(),
        "completion_mask": torch.ones(2, 4).long(),
    }
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
