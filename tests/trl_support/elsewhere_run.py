"""Runs of the trainer on the processor or on a device beside it, in one process or more, with all weights in each, or
by FSDP2 a shard of them.

    elsewhere_run.py cpu|standin|whole|sharded OUT CASE...

On the stand-in TRL's own pass scores, as by default on a GPU. accelerate shards on GPUs alone; it is told here that the
processors are some.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from peft import LoraConfig
from transformers import TrainingArguments

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
# Case -> further settings of a run in several processes.
SEVERAL: dict[str, dict[str, Any]] = {"hapo": {"save_strategy": "steps", "save_steps": 2, "dynamic_sampling": True}}
# Two rollout batches of four prompts, two updates each. An eps that is large beside gradients: AdamW by itself makes
# whole steps of rounding.
SMALL: dict[str, Any] = {
    "max_steps": 4, "adam_epsilon": 1.0, "learning_rate": 0.05, "max_grad_norm": 1.0, "num_generations": 8,
    "per_device_train_batch_size": 8, "max_completion_length": 48, "model_init_kwargs": {"dtype": "float32"},
}  # fmt: skip
KINDS = {"whole": DistributedType.MULTI_CPU, "sharded": DistributedType.FSDP}


def shard() -> None:
    """Makes accelerate shard on the processor."""

    def on_the_processor(state: PartialState) -> None:
        state.device = torch.device("cpu")

    os.environ.update(SHARDS)
    PartialState._prepare_backend = lambda *told, **more: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = on_the_processor


def beside() -> contextlib.AbstractContextManager[None]:
    """Makes accelerate and transformers find what they would on a machine that has the device; enter it there."""
    # Not above: torch would know of the device in the other runs too, and sharding would meet it.
    from device.stand_in import DEVICE, stand_in

    def chosen(arguments: TrainingArguments) -> object:
        _ = arguments._setup_devices
        return DEVICE

    PartialState.default_device = property(lambda state: DEVICE)
    TrainingArguments.device = property(chosen)
    return stand_in()


def run(where: str, out: Path, cases: list[str]) -> None:
    several = where in KINDS
    given = {**SMALL, "use_cpu": where in ("cpu", "whole"), "steps_per_generation": 2 if several else 4}
    given["gradient_accumulation_steps"] = given["steps_per_generation"] // 2
    for case in cases:
        more = SEVERAL.get(case, {}) if several else {}
        lora = LoraConfig(r=2, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = TokenPOTrainer(
            str(locate("tiny")),
            right,
            config(out / case, method=case, **given, **more),
            train_dataset=sums(),
            peft_config=lora if several and case == "adv_reweight" else None,
        )
        assert trainer.accelerator.distributed_type == KINDS.get(where, DistributedType.NO)
        assert trainer.forward_passes.in_head == (where in ("cpu", "whole"))
        trainer.train()
        trainer.save_model(str(out / case / "model"))


if __name__ == "__main__":
    if sys.argv[1] == "sharded":
        shard()
    with beside() if sys.argv[1] == "standin" else contextlib.nullcontext():
        run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    leave()
