"""Work inside a model's forward pass, on its last hidden states and its head, in place of the logits.

The end of the pass is replaced while it lasts. So whatever wraps the model (DDP, PEFT, autocast) sees the head used
where it always is, and what comes of it as the output of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...models.score import probe_head

Found = TypeVar("Found")


def wants_head(trainer: Any) -> bool:
    """Whether the settings ask for it: by default on a CPU, the one place where it was measured."""
    setting = trainer.args.fused_objective
    return trainer.accelerator.device.type == "cpu" if setting is None else setting


def has_whole_plain_head(trainer: Any) -> bool:
    """Whether logits are nothing but the product of hidden states and a head that lies whole in every process.

    Not so: a soft cap, a scale, an adapter or a cast on the head; FSDP, DeepSpeed and tensor parallelism, which split
    it; models that see more than text. Compiled models are left as they are, and so is float16, whose loss scale would
    come too late for gradients that are known with the loss. To be asked before the model is wrapped.
    """
    accelerator, model = trainer.accelerator, base_of(trainer)
    kind = accelerator.distributed_type.value
    if not (kind == "NO" or kind.startswith("MULTI_")) or trainer.args.torch_compile:
        return False
    if accelerator.mixed_precision == "fp16" or model.config.get_text_config() is not model.config:
        return False
    weight = getattr(model.get_output_embeddings(), "weight", None)
    ordinary = type(weight) is nn.Parameter and weight.dtype != torch.float16
    return ordinary and len({x.device for x in model.parameters()}) == 1 and probe_head(model)


def head_work(trainer: Any, model: Any, inputs: Mapping[str, Any], work: Callable[[Tensor, nn.Linear], Found]) -> Found:
    """What `work` makes of the hidden states [M, T, H] that predict the completions, and of the head.

    Args:
        model: the trainer's, as it is wrapped.
        inputs: prompt_ids, prompt_mask, completion_ids, completion_mask.
    """
    length = inputs["completion_ids"].shape[1]

    def ended(hidden: Tensor, head: nn.Linear) -> Found:
        # What predicts a token stands one place before it.
        return work(hidden[:, -length - 1 : -1], head)

    with trainer.accelerator.autocast(), _ending(base_of(trainer), ended):
        return model(**texts(inputs))


@contextmanager
def _ending(base: Any, work: Callable[[Tensor, nn.Linear], Any]) -> Iterator[None]:
    """While it lasts, a model of transformers ends with `work` on hidden states [M, L, H] in place of logits."""
    before = vars(base).get("forward")

    def forward(*args: Any, labels: Any = None, **named: Any) -> Any:
        body = base.base_model(*args, **{**named, "use_cache": False})
        return work(body.last_hidden_state, base.get_output_embeddings())

    base.forward = forward
    try:
        yield
    finally:
        if before is None:
            del base.forward
        else:
            base.forward = before


def base_of(trainer: Any) -> Any:
    """The model of transformers inside of whatever wraps the trainer's."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def texts(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Prompts and completions as a model takes them, [M, L] each."""
    return {
        "input_ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
    }
