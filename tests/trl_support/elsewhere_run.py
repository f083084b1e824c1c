"""Runs of the trainer in two processes, with all weights in each, or by FSDP2 a shard of them.

    elsewhere_run.py whole|sharded OUT CASE...

accelerate shards on GPUs alone; it is told here that the processors are some.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from peft import LoraConfig

from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.train.models import locate
from trl_support import leave
from trl_support.small import config, right, sums

SHARDS = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}
# Case -> its further settings.
MORE: dict[str, dict[str, Any]] = {"hapo": {"save_strategy": "steps", "save_steps": 2, "dynamic_sampling": True}}
# Two rollout batches of four prompts, two updates each. An eps that is large beside gradients: AdamW by itself makes
# whole steps of rounding.
SMALL: dict[str, Any] = {
    "max_steps": 4, "adam_epsilon": 1.0, "learning_rate": 0.05, "max_grad_norm": 1.0, "num_generations": 8,
    "per_device_train_batch_size": 8, "max_completion_length": 48, "model_init_kwargs": {"dtype": "float32"},
    "steps_per_generation": 2, "gradient_accumulation_steps": 1,
}  # fmt: skip
KINDS = {"whole": DistributedType.MULTI_CPU, "sharded": DistributedType.FSDP}


def shard() -> None:
    """Makes accelerate shard on the processor."""

    def on_the_processor(state: PartialState) -> None:
        state.device = torch.device("cpu")

    os.environ.update(SHARDS)
    PartialState._prepare_backend = lambda *told, **more: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = on_the_processor


def run(where: str, out: Path, cases: list[str]) -> None:
    for case in cases:
        lora = LoraConfig(r=2, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = TokenPOTrainer(
            str(locate("tiny")),
            right,
            config(out / case, method=case, use_cpu=where == "whole", **SMALL, **MORE.get(case, {})),
            train_dataset=sums(),
            peft_config=lora if case == "adv_reweight" else None,
        )
        assert trainer.accelerator.distributed_type == KINDS[where]
        assert trainer.forward_passes.in_head == (where == "whole")
        trainer.train()
        trainer.save_model(str(out / case / "model"))


if __name__ == "__main__":
    if sys.argv[1] == "sharded":
        shard()
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    leave()
