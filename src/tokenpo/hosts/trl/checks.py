"""Checks of a trainer that TRL has made: `CHECKS` are asked together before its first step; each yields sentences."""

import functools
import inspect
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import torch
from accelerate.utils import broadcast_object_list  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

from ...base.errors import TokenPOError
from ...core.request_temperature import PROCESSOR
from .settings import unasked
from .temperature import distance

# Names of TRL's own arguments to a reward function.
GIVEN = {"prompts", "completions", "trainer_state", "log_extra", "log_metric", "environments"}


def _data(trainer: Any) -> Iterator[str]:
    if getattr(trainer._tokenizer, "eos_token_id", None) is None:
        yield (
            "the tokenizer has no end-of-sequence token, so no response ends: set processing_class.eos_token to the "
            "token that ends a response"
        )
    rows, wanted = trainer.train_dataset, trainer.args.generation_batch_size // trainer.num_generations
    columns = getattr(rows, "column_names", None)
    for name in sorted({*columns} & GIVEN) if isinstance(columns, list) else ():  # a stream's are not known yet
        yield (
            f"train_dataset has a column {name!r}, a name under which TRL hands its own to a reward function: rename "
            f"it, dataset.rename_column({name!r}, NAME)"
        )
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
    if not trainer.use_vllm and not trainer.rollout_func:
        yield from unasked(trainer.model.generation_config, trainer.generation_config)


def _saved(trainer: Any) -> Iterator[str]:
    """Files of a checkpoint that cannot be written, which would end the run at its first one."""
    model, args = trainer.model, trainer.args
    things: dict[str, Callable[[Any], object]] = {
        "args (TokenPOConfig)": lambda _: torch.save(args, io.BytesIO()),
        "the tokenizer": trainer.processing_class.save_pretrained,
    }
    if not hasattr(model, "peft_config"):  # of an adapter, only the adapter is saved
        things["model.config"] = model.config.save_pretrained
        things["model.generation_config"] = model.generation_config.save_pretrained
    for what, save in things.items():
        with tempfile.TemporaryDirectory() as directory:
            try:
                save(directory)
            except Exception as error:
                yield f"{what} cannot be saved, so that the first checkpoint would end the run ({error}): mend it"


def _held(trainer: Any) -> Iterator[str]:
    """Optimiser steps that a held KL cannot scale or leave out."""
    args = trainer.args
    if args.kl_hold() is None:
        return
    optim = str(getattr(args.optim, "value", args.optim))
    name = "kl_stop" if args.kl_target is None else "kl_target"
    backward = optim.endswith("_layerwise") or "lomo" in optim
    alone = name == "kl_stop" and trainer.cycle.updates == 1
    for why, applies in {
        "DeepSpeed makes them within its backward pass: train without it": trainer.is_deepspeed_enabled,
        "the loss scale of fp16 wants every step: set bf16=True": trainer.accelerator.mixed_precision == "fp16",
        f"optim = {optim!r} makes them within the backward pass: set optim='adamw_torch'": backward,
        "a batch of one has none to leave out: set num_iterations higher": alone,
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


CHECKS: tuple[Callable[[Any], Iterator[str]], ...] = (_data, _model, _saved, _held, _served)


def checked(functions: Any) -> Any:
    """The same reward functions, which raise a TokenPOError where one does not give a number, or None, for each row."""
    if isinstance(functions, list):
        return [checked(function) for function in functions]
    if not (inspect.isfunction(functions) or inspect.ismethod(functions)):
        return functions

    async def awaited(*given: Any, **named: Any) -> Any:
        return _numbers(functions, await functions(*given, **named), named)

    def called(*given: Any, **named: Any) -> Any:
        return _numbers(functions, functions(*given, **named), named)

    return functools.wraps(functions)(awaited if inspect.iscoroutinefunction(functions) else called)


def _numbers(function: Callable[..., Any], rewards: Any, named: Mapping[str, Any]) -> Any:
    name, rows = function.__name__, named.get("completions", rewards)
    if not isinstance(rewards, Sized) or isinstance(rewards, str | bytes) or len(rewards) != len(rows):
        raise TokenPOError(
            f"reward function {name} gave {rewards!r:.80}: give a list with a number, or None, for each of the "
            f"{len(rows)} completions"
        )
    for row, reward in enumerate(rewards if isinstance(rewards, (list, tuple)) else ()):
        if isinstance(reward, (str, bytes)):
            raise TokenPOError(f"reward function {name} gave {reward!r:.80} on row {row}: give a number, or None")
    return rewards


def require_room(trainer: Any, longest: int) -> None:
    """Raises TokenPOError if a prompt of `longest` tokens plus the longest response exceeds the model's positions."""
    positions = getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None)
    new = trainer.max_completion_length or 0
    if positions is not None and longest + new > positions:
        raise TokenPOError(
            f"a prompt of {longest} tokens and {new} new ones exceed the model's {positions} positions: lower "
            "max_completion_length, or leave such prompts out of train_dataset"
        )


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
