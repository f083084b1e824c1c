"""Recipes that TRL trains in several processes, each with all weights or, by FSDP2, with a shard of them.

    sharded_run.py whole|sharded OUT CASE...

accelerate shards on GPUs alone; it is told here that the processors are some.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType

from tokenpo.engines.trl import main

SHARDS = {
    "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}  # fmt: skip
CASES = {
    "hapo": ["evaluate.problems=4", "output.checkpoint_every=1", "rollout.dynamic_sampling=true"],
    "kl_cov": [],
    "adv_reweight": ["model.lora.rank=2"],
}
# An eps that is large beside gradients: AdamW by itself makes whole steps of rounding.
SMALL = [
    "train.steps=2", "train.eps=1", "train.lr=0.05", "rollout.prompts=4", "train.minibatches=2", "evaluate.every=0",
    "evaluate.problems=0", "output.checkpoint_every=0",
]  # fmt: skip


def shard() -> None:
    """Makes accelerate shard on the processor."""

    def on_the_processor(state: PartialState) -> None:
        state.device = torch.device("cpu")

    os.environ.update(SHARDS)
    PartialState._prepare_backend = lambda *told, **more: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = on_the_processor


def run(sharded: bool, out: Path, cases: list[str]) -> None:
    trained, kind = main._trainer, DistributedType.FSDP if sharded else DistributedType.MULTI_CPU

    def looked_at(*told: object) -> object:
        trainer = trained(*told)
        assert trainer.accelerator.distributed_type == kind
        return trainer

    main._trainer = looked_at
    for case in cases:
        settings = [*SMALL, *CASES[case], f"model.device={'auto' if sharded else 'cpu'}"]
        told = [part for setting in settings for part in ("--set", setting)]
        assert main.main(["quickstart", "--method", case, "--out", str(out / case), *told]) == 0


if __name__ == "__main__":
    if sys.argv[1] == "sharded":
        shard()
    run(sys.argv[1] == "sharded", Path(sys.argv[2]), sys.argv[3:])
