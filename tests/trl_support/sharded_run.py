"""Recipes that TRL trains in several processes, each with all weights or, by FSDP2, with a shard of them.

    sharded_run.py whole|sharded OUT CASE...

accelerate shards on GPUs alone; it is told here that the processors are some.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SHARDS = {
    "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}  # fmt: skip
sharded, out, cases = sys.argv[1] == "sharded", Path(sys.argv[2]), sys.argv[3:]
if sharded:
    os.environ |= SHARDS

import torch  # noqa: E402
from accelerate import PartialState  # noqa: E402
from accelerate.utils import DistributedType  # noqa: E402

from tokenpo.adapters.trl import main  # noqa: E402

CASES = {
    "hapo": ["evaluate.problems=4", "output.checkpoint_every=1", "rollout.dynamic_sampling=true"],
    "kl_cov": [],
    "adv_reweight": ["model.lora.rank=2"],
}
# An eps that is large beside gradients: AdamW by itself makes whole steps of rounding.
SMALL = [
    "train.steps=2", "train.eps=1", "train.lr=0.05", "rollout.prompts=4", "train.minibatches=2", "evaluate.every=0",
    "evaluate.problems=0", "output.checkpoint_every=0", f"model.device={'auto' if sharded else 'cpu'}",
]  # fmt: skip


def on_the_processor(state: PartialState) -> None:
    state.device = torch.device("cpu")


if sharded:
    PartialState._prepare_backend = lambda *told, **more: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = on_the_processor

trained = main._trainer


def looked_at(*told: object) -> object:
    trainer = trained(*told)
    wanted = DistributedType.FSDP if sharded else DistributedType.MULTI_CPU
    assert trainer.accelerator.distributed_type == wanted
    return trainer


main._trainer = looked_at
for case in cases:
    settings = [part for setting in (*SMALL, *CASES[case]) for part in ("--set", setting)]
    assert main.main(["quickstart", "--method", case, "--out", str(out / case), *settings]) == 0
