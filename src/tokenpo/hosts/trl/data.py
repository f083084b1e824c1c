"""Checks of data, reward functions and lengths on which TRL fails obscurely, or trains without a warning."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sized
from typing import Any

from torch import nn

from ...base.errors import TokenPOError, nearest

# Arguments that TRL gives a reward function in addition to the columns, and the columns that it leaves out.
_GIVEN = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
_KEPT = {"prompt", "completion"}


def require_data(bound: Mapping[str, Any], functions: Any) -> None:
    """Raises TokenPOError if a column is missing, or a reward function cannot be called with these columns.

    Args:
        bound: the arguments of TRL's trainer.
    """
    columns = getattr(bound.get("train_dataset"), "column_names", None)
    if not isinstance(columns, list):  # a stream: columns are not known yet
        return
    if "prompt" not in columns and not bound.get("environment_factory"):  # which may give the prompts
        raise TokenPOError(
            f"train_dataset has no column 'prompt' ({nearest('prompt', columns)}): rename the one that holds the "
            "prompts, dataset.rename_column(NAME, 'prompt')"
        )
    for function in functions if isinstance(functions, list) else [functions]:
        if callable(function) and not isinstance(function, nn.Module):
            # A rollout_func may add columns, whose names are not known yet.
            _require_callable(function, _GIVEN | {*columns} - _KEPT, more=bool(bound.get("rollout_func")))


def _require_callable(function: Callable[..., Any], given: set[str], *, more: bool) -> None:
    name, kinds = _name(function), inspect.Parameter
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in has none
        return
    for parameter in parameters:
        variable = parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        if parameter.default is kinds.empty and not variable and parameter.name not in given and not more:
            raise TokenPOError(
                f"reward function {name} wants the argument {parameter.name!r}: no column of train_dataset is called "
                f"so ({nearest(parameter.name, given)})"
            )
    untaken = given - {"environments"} - {parameter.name for parameter in parameters}
    if untaken and not any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters):
        raise TokenPOError(
            f"reward function {name} does not take all that TRL hands to it ({', '.join(sorted(untaken))}): add "
            "**kwargs to its arguments"
        )


def checked(functions: Any) -> Any:
    """The same reward functions, which raise a TokenPOError where one gives text for a number."""
    if isinstance(functions, list):
        return [checked(function) for function in functions]
    if not (inspect.isfunction(functions) or inspect.ismethod(functions)):
        return functions

    async def awaited(*given: Any, **named: Any) -> Any:
        return _numbers(functions, await functions(*given, **named))

    def called(*given: Any, **named: Any) -> Any:
        return _numbers(functions, functions(*given, **named))

    return functools.wraps(functions)(awaited if inspect.iscoroutinefunction(functions) else called)


def _numbers(function: Callable[..., Any], rewards: Any) -> Any:
    for row, reward in enumerate(rewards if isinstance(rewards, (list, tuple)) else ()):
        if isinstance(reward, (str, bytes)):
            raise TokenPOError(
                f"reward function {_name(function)} gave {reward!r:.80} on row {row}: give a number, or None"
            )
    return rewards


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def require_prompts(trainer: Any) -> None:
    """Raises TokenPOError if train_dataset is shorter than a rollout batch, of which TRL's sampler makes no step."""
    rows, wanted = trainer.train_dataset, trainer.args.generation_batch_size // trainer.num_generations
    if isinstance(rows, Sized) and len(rows) < wanted:
        raise TokenPOError(
            f"train_dataset has {len(rows)} prompts and a rollout batch takes {wanted}, so TRL would train nothing: "
            "give more rows, or lower steps_per_generation or per_device_train_batch_size"
        )


def require_end(tokenizer: Any) -> None:
    """Raises TokenPOError if the tokenizer has no end-of-sequence token."""
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise TokenPOError(
            "the tokenizer has no end-of-sequence token, so no response ends: set processing_class.eos_token to the "
            "token that ends a response"
        )


def require_room(trainer: Any, longest: int) -> None:
    """Raises TokenPOError if a prompt of `longest` tokens plus the longest response exceeds the model's positions."""
    positions = getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None)
    new = trainer.max_completion_length or 0
    if positions is not None and longest + new > positions:
        raise TokenPOError(
            f"a prompt of {longest} tokens and {new} new ones exceed the model's {positions} positions: lower "
            "max_completion_length, or leave such prompts out of train_dataset"
        )
