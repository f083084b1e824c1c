"""Checks of a trainer that TRL has made: `CHECKS` are asked together before its first step; each yields sentences."""

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import torch
from accelerate.utils import broadcast_object_list  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

from ...core.request_temperature import PROCESSOR
from .temperature import distance


def _data(trainer: Any) -> Iterator[str]:
    rows, wanted = trainer.train_dataset, trainer.args.generation_batch_size // trainer.num_generations
    if isinstance(rows, Sized) and len(rows) < wanted:
        yield (
            f"train_dataset has {len(rows)} prompts and a rollout batch takes {wanted}, so TRL would train nothing: "
            "give more rows, or lower steps_per_generation or per_device_train_batch_size"
        )


def _model(trainer: Any) -> Iterator[str]:
    method = trainer.policy_objective.name
    # The ratio check cannot see dropout where a fresh LoRA still adds nothing.
    dropouts = ((name, part.p) for name, part in trainer.model.named_modules() if isinstance(part, nn.Dropout))
    for name, p in [(name, p) for name, p in dropouts if p > 0][:1]:
        yield (
            f"{method} takes old log-probabilities from a pass of their own in TRL's trainer, and the policy's {name} "
            f"leaves out other units in each pass (p = {p}): set disable_dropout=True, or lora_dropout=0"
        )
    others = {"fused_objective=True"} if trainer.args.fused_objective else set()
    others |= trainer.policy_objective.needs & {"entropy_drift", "teacher_divergence"}
    if trainer.aux_loss_enabled and others:
        yield (
            f"the auxiliary loss of a mixture of experts comes from TRL's own pass, and {method} takes another, for "
            f"{', '.join(sorted(others))}: set router_aux_loss_coef=0.0, or do without"
        )


def _held(trainer: Any) -> Iterator[str]:
    """Optimiser steps that a held KL cannot scale or leave out."""
    args = trainer.args
    if args.kl_hold() is None:
        return
    optim = str(getattr(args.optim, "value", args.optim))
    name = "kl_stop" if args.kl_target is None else "kl_target"
    backward = optim.endswith("_layerwise") or "lomo" in optim
    for why, applies in {
        "DeepSpeed makes them within its backward pass: train without it": trainer.is_deepspeed_enabled,
        "the loss scale of fp16 wants every step: set bf16=True": trainer.accelerator.mixed_precision == "fp16",
        f"optim = {optim!r} makes them within the backward pass: set optim='adamw_torch'": backward,
    }.items():
        if applies:
            yield f"TokenPOConfig.{name} = {getattr(args, name)} leaves out optimiser steps of TRL's, and {why}"


def _served(trainer: Any) -> Iterator[str]:
    """A server without our logits processor would ignore the temperature's rule; all processes must ask."""
    objective, args = trainer.policy_objective, trainer.args
    if objective.temperature is None or not trainer.use_vllm or trainer.vllm_mode != "server":
        return
    runs: list[Any] = [None]
    if trainer.accelerator.is_main_process:
        config = trainer.vllm_generation.vllm_client.get_server_info().get("model_config", {})
        name = PROCESSOR.partition(":")[2]
        runs = [any(name in str(processor) for processor in config.get("logits_processors") or ())]
    broadcast_object_list(runs, from_process=0)
    if not runs[0]:
        yield (
            f"{objective.name} adapts the temperature from token to token, and the vLLM server of TRL's trainer at "
            f"{args.vllm_server_base_url or args.vllm_server_host} runs without tokenpo's logits processor: start it, "
            "where tokenpo is installed, with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL "
            f"--logits-processors {PROCESSOR} --logprobs-mode processed_logprobs "
            """--weight-transfer-config '{"backend": "nccl"}'"""
        )


CHECKS: tuple[Callable[[Any], Iterator[str]], ...] = (_data, _model, _held, _served)


def unmoved(trainer: Any) -> Iterator[str]:
    """Yields a warning if an optimiser step of the learning rate rounds to nothing in most trained weights."""
    rate, trained = trainer.args.learning_rate, [x for x in trainer.model.parameters() if x.requires_grad]
    half = [x.detach() for x in trained if x.dtype in (torch.bfloat16, torch.float16)]
    total = sum(x.numel() for x in half)
    moved = sum(int(((x + rate != x) | (x - rate != x)).sum()) for x in half)
    if rate and total and moved < total / 2:
        yield (
            f"of {total} weights in {str(half[0].dtype).removeprefix('torch.')} a step of learning_rate = {rate:g} "
            f"moves {moved / total:.1%}, and rounds to nothing in the others: load the model in float32, "
            "dtype=torch.float32 (bf16=True still computes in bfloat16), or set a larger learning_rate"
        )


def apart(trainer: Any, rows: Mapping[str, Tensor]) -> Iterator[str]:
    """Yields a warning if the reference is not the policy that the run starts from; `rows` are of the first draw."""
    if "ref_logprob" not in rows:
        return
    mean, tolerance = distance(trainer, rows, "ref_logprob")
    if mean > tolerance:
        start = "the model without its adapter" if hasattr(trainer.model, "peft_config") else "the checkpoint on disk"
        yield (
            f"{trainer.policy_objective.name}: before the first update the reference is {mean:.2g} nats a token from "
            f"the policy, above {tolerance:g}: TRL's reference is {start}, and weights that were changed, merged or "
            "initialised after loading (PiSSA, OLoRA) are not in it: save the model with them and give the path"
        )
