"""What a trainer looks at before its first update: positions under padding, the reference, weights that do not move."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM, Qwen3ForCausalLM

from tokenpo.train.models.directory import ASSETS
from trl_support.small import trainer

HELD: dict[str, Any] = {"beta": 0.1, "learning_rate": 0.0, "max_steps": 1}


def given(**more: Any) -> dict[str, Any]:
    return {"processing_class": AutoTokenizer.from_pretrained(ASSETS), **more}


def gpt2() -> Any:
    return GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=64, n_embd=16, n_layer=2, n_head=2))


def opt() -> Any:
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=259, hidden_size=16, num_hidden_layers=1, ffn_dim=32, num_attention_heads=2,
            word_embed_proj_dim=16, max_position_embeddings=64, dropout=0.0,
        )
    )  # fmt: skip


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("make", [gpt2, opt])
def test_absolute_positions_are_those_of_the_tokens(make: Any, fused: bool, tmp_path: Path) -> None:
    """Prompts of 1, 5 and 9 tokens are scored as each is without padding."""
    torch.manual_seed(0)
    model = make()
    made = trainer(model, tmp_path, given(), disable_dropout=True, fused_objective=fused)
    rows = [(torch.randint(3, 259, (n,)), torch.randint(3, 259, (4,))) for n in (1, 5, 9)]
    inputs = {
        "prompt_ids": torch.stack([torch.cat([torch.zeros(9 - len(p), dtype=torch.long), p]) for p, _ in rows]),
        "prompt_mask": torch.stack([(torch.arange(9) >= 9 - len(p)).long() for p, _ in rows]),
        "completion_ids": torch.stack([c for _, c in rows]),
        "completion_mask": torch.ones(3, 4, dtype=torch.long),
    }
    alone = []
    for prompt, completion in rows:
        logits = model.eval()(torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
        alone.append(logits.log_softmax(-1).gather(1, completion[:, None])[:, 0])
    with torch.no_grad():
        found = made.forward_passes.policy(model, inputs).logprob
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-4, atol=1e-5)


def moved(model: Any) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))


@pytest.mark.parametrize(
    ("change", "adapter", "warned"),
    [(True, None, True), (False, None, False), (False, "pissa", True), (False, True, False)],
    ids=["changed in memory", "as on disk", "PiSSA", "LoRA"],
)
def test_a_reference_that_is_not_the_start(
    change: bool, adapter: Any, warned: bool, model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Qwen3ForCausalLM.from_pretrained(model_dir)
    if change:
        moved(model)
    peft = adapter and LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=adapter)
    made = trainer(model, tmp_path, given(peft_config=peft), **HELD)
    with caplog.at_level(logging.WARNING):
        made.train()
    found = re.findall(r"the reference is (\S+) nats a token from the policy", caplog.text)
    assert bool(found) == warned
    assert not found or float(found[0]) > 0.001


@pytest.mark.parametrize(("dtype", "rate"), [("bfloat16", 1e-6), ("bfloat16", 0.5), ("float32", 1e-6)])
def test_weights_too_coarse_for_the_rate(
    dtype: str, rate: float, model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning's share is the most that can move; Adam's first step is the rate itself."""
    model = Qwen3ForCausalLM.from_pretrained(model_dir, dtype=dtype)
    before = [x.detach().clone() for x in model.parameters()]
    with caplog.at_level(logging.WARNING):
        made = trainer(model, tmp_path, given(), learning_rate=rate, max_steps=1, weight_decay=0.0, ratio_tolerance=9.0)
    found = re.findall(r"of (\d+) weights in bfloat16 .* moves ([\d.]+)%", caplog.text)
    assert bool(found) == (dtype == "bfloat16" and rate < 0.1)
    if found:
        made.train()
        total = sum(x.numel() for x in before)
        changed = sum(int((x != y).sum()) for x, y in zip(before, model.parameters(), strict=True))
        assert int(found[0][0]) == total
        assert 0 < changed / total <= float(found[0][1]) / 100 + 1e-3
