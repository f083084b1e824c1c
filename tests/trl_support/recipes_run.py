"""Recipes that TRL trains: on the processor or on a device beside it, in one process or more, with all weights in each
or, by FSDP2, with a shard of them.

    recipes_run.py cpu|standin|standin_head|whole|sharded OUT CASE...

On the stand-in TRL's own pass scores, as by default on a GPU, or the model's head. accelerate shards on GPUs alone; it
is told here that the processors are some.
"""

import contextlib
import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from transformers import TrainingArguments

from tokenpo.engines.trl import forward, main
from trl_support import leave

SHARDS = {
    "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}  # fmt: skip
# Case -> further settings of a run in several processes.
SEVERAL = {
    "hapo": ["evaluate.problems=4", "output.checkpoint_every=1", "rollout.dynamic_sampling=true"],
    "adv_reweight": ["model.lora.rank=2"],
}
# An eps that is large beside gradients: AdamW by itself makes whole steps of rounding.
SMALL = [
    "train.steps=2", "train.eps=1", "train.lr=0.05", "rollout.prompts=4", "evaluate.every=0", "evaluate.problems=0",
    "output.checkpoint_every=0", "output.rollouts_every=0",
]  # fmt: skip
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
    trained = main._trainer

    def looked_at(*told: object) -> object:
        trainer = trained(*told)
        assert trainer.accelerator.distributed_type == KINDS.get(where, DistributedType.NO)
        assert trainer.forward_passes.in_head == (where in ("cpu", "standin_head", "whole"))
        return trainer

    main._trainer = looked_at
    for case in cases:
        processes = ["train.minibatches=2", *SEVERAL.get(case, [])] if where in KINDS else []
        settings = [*SMALL, *processes, f"model.device={'cpu' if where in ('cpu', 'whole') else 'auto'}"]
        told = [part for setting in settings for part in ("--set", setting)]
        assert main.main(["quickstart", "--method", case, "--out", str(out / case), *told]) == 0


if __name__ == "__main__":
    if sys.argv[1] == "sharded":
        shard()
    if sys.argv[1] == "standin_head":
        forward.IN_HEAD_BY_DEFAULT = frozenset({"standin"})
        # A weight there is of a tensor class of its own, as one that is quantised.
        forward.has_whole_plain_head = lambda trainer: forward.probe_head(forward.base_of(trainer))
    with beside() if sys.argv[1].startswith("standin") else contextlib.nullcontext():
        run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    leave()
