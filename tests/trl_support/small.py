"""Small settings, prompts and a reward for TRL's trainer on the CPU. Imports TRL."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback

from tokenpo.hosts.trl import TokenPOConfig, TokenPOTrainer
from tokenpo.train.tasks import make_task

# What a trainer of TRL's own is asked beside ours (test_beside.py); `fused_objective` is ours alone.
STALE = {"loss_type": "grpo", "steps_per_generation": 2, "gradient_accumulation_steps": 1, "num_iterations": 2}
BESIDE: dict[str, dict[str, Any]] = {
    "unscored": {"num_iterations": 2},
    "loss": {"loss_type": "grpo"},
    "reference": {"beta": 0.3, "num_iterations": 2},
    "own pass": {"beta": 0.3, "num_iterations": 2, "fused_objective": False},
    "moving reference": {"beta": 0.3, "sync_ref_model": True, "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.5},
    "temperature": {"temperature": 1.3, "num_iterations": 2},
    "two rewards": {"reward_weights": [1.0, 0.5]},
    "stale": STALE,
    "rows": {"loss_type": "grpo", "gradient_accumulation_steps": 1, "generation_batch_size": 16, "num_iterations": 2},
    "off policy": {**STALE, "off_policy_mask_threshold": 1e-3},
    "truncated": {"mask_truncated_completions": True, "num_iterations": 2},
    "all truncated": {"mask_truncated_completions": True, "generation_kwargs": {"min_new_tokens": 8}},
}
BACKEND = {"ddp_backend": "gloo"} if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {}


class Gradients(TrainerCallback):
    """Those of all parameters before each optimiser step, in one row."""

    def __init__(self) -> None:
        self.rows: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **named: Any) -> None:
        self.rows.append(torch.cat([x.grad.flatten().clone() for x in model.parameters() if x.grad is not None]))


def config(out: Path, **settings: Any) -> TokenPOConfig:
    usual: dict[str, Any] = {
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "num_generations": 4, "seed": 3,
        "per_device_train_batch_size": 4, "max_completion_length": 8, "report_to": "none", "save_strategy": "no",
        "learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1,
        "disable_tqdm": True, "trace_every": 1, "max_steps": 2, "method": "grpo", **BACKEND,
    }  # fmt: skip
    return TokenPOConfig(str(out), **(usual | settings))


def even(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    return [float(sum(ids) % 2 == 0) for ids in completion_ids]


def prompts(count: int = 32) -> Dataset:
    return Dataset.from_dict({"prompt": [f"{i}+{i % 7}=" for i in range(count)]})


def sums(count: int = 32) -> Dataset:
    """Problems that the tiny model solves now and then, with their answers."""
    problems = make_task("dial_sum", {}, 0).problems("train", 0, count)
    return Dataset.from_list([{"prompt": one.prompt, "answer": one.reference} for one in problems])


def right(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(text.rpartition("#")[2] == it) for text, it in zip(completions, answer, strict=True)]


LORA = LoraConfig(lora_dropout=0.1, target_modules=["q_proj"], task_type="CAUSAL_LM")


def trainer(model: Any, out: Path, given: Mapping[str, Any] = {}, /, **settings: Any) -> TokenPOTrainer:
    """A trainer with these settings and arguments of its constructor."""
    settings = {"method": None} | settings if "method" in given else settings
    return TokenPOTrainer(model, even, config(out, **settings), **{"train_dataset": prompts(), **given})


def dropped(model: Path, out: Path, **settings: Any) -> None:
    """Two passes of one model over the same tokens, each without other units."""
    trainer(str(model), out, model_init_kwargs={"attention_dropout": 0.9}, **settings).train()
