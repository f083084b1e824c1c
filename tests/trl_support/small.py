"""Small settings, prompts and a reward for TRL's trainer on the CPU. Imports TRL."""

import os
from pathlib import Path
from typing import Any

from datasets import Dataset

from tokenpo.engines.trl import TokenPOConfig
from tokenpo.tasks import make_task

BACKEND = {"ddp_backend": "gloo"} if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {}


def config(out: Path, **settings: Any) -> TokenPOConfig:
    usual: dict[str, Any] = {
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "num_generations": 4, "seed": 3,
        "per_device_train_batch_size": 4, "max_completion_length": 8, "report_to": "none", "save_strategy": "no",
        "learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1,
        "disable_tqdm": True, "trace_every": 1, "max_steps": 2, **BACKEND,
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
