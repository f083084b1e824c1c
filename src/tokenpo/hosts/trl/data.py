"""Checks of data, reward functions and lengths on which TRL fails obscurely, or trains without a warning."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from torch import nn

from ...base.errors import TokenPOError, nearest

# Arguments that TRL gives a reward function in addition to the columns, and the columns that it leaves out.
_GIVEN = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
_KEPT = {"prompt", "completion"}


def data_faults(args: Any, objective: Any, bound: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each column that is missing or in the way, and each reward function that cannot be called.

    Args:
        bound: the arguments of TRL's trainer.
    """
    columns = getattr(bound.get("train_dataset"), "column_names", None)
    if not isinstance(columns, list):  # a stream: columns are not known yet
        return
    if "prompt" not in columns and not bound.get("environment_factory"):  # which may give the prompts
        yield (
            f"train_dataset has no column 'prompt' ({nearest('prompt', columns)}): rename the one that holds the "
            "prompts, dataset.rename_column(NAME, 'prompt')"
        )
        return
    for name in sorted({*columns} & (_GIVEN - {"completion_ids"})):
        yield (
            f"train_dataset has a column {name!r}, a name under which TRL hands its own to a reward function: rename "
            f"it, dataset.rename_column({name!r}, NAME)"
        )
    functions = bound.get("reward_funcs")
    for function in functions if isinstance(functions, list) else [functions]:
        if callable(function) and not isinstance(function, nn.Module):
            # A rollout_func may add columns, whose names are not known yet.
            yield from _uncallable(function, _GIVEN | {*columns} - _KEPT, more=bool(bound.get("rollout_func")))


def _uncallable(function: Callable[..., Any], given: set[str], *, more: bool) -> Iterator[str]:
    name, kinds = _name(function), inspect.Parameter
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in has none
        return
    for parameter in parameters:
        variable = parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        if parameter.default is kinds.empty and not variable and parameter.name not in given and not more:
            yield (
                f"reward function {name} wants the argument {parameter.name!r}: no column of train_dataset is called "
                f"so ({nearest(parameter.name, given)})"
            )
    untaken = given - {"environments"} - {parameter.name for parameter in parameters}
    if untaken and not any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters):
        yield (
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
        return _numbers(functions, await functions(*given, **named), named)

    def called(*given: Any, **named: Any) -> Any:
        return _numbers(functions, functions(*given, **named), named)

    return functools.wraps(functions)(awaited if inspect.iscoroutinefunction(functions) else called)


def _numbers(function: Callable[..., Any], rewards: Any, named: Mapping[str, Any]) -> Any:
    rows = named.get("completions", rewards)
    if not isinstance(rewards, Sized) or isinstance(rewards, str | bytes) or len(rewards) != len(rows):
        raise TokenPOError(
            f"reward function {_name(function)} gave {rewards!r:.80}: give a list with a number, or None, for each of "
            f"the {len(rows)} completions"
        )
    for row, reward in enumerate(rewards if isinstance(rewards, (list, tuple)) else ()):
        if isinstance(reward, (str, bytes)):
            raise TokenPOError(
                f"reward function {_name(function)} gave {reward!r:.80} on row {row}: give a number, or None"
            )
    return rewards


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def require_room(trainer: Any, longest: int) -> None:
    """Raises TokenPOError if a prompt of `longest` tokens plus the longest response exceeds the model's positions."""
    positions = getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None)
    new = trainer.max_completion_length or 0
    if positions is not None and longest + new > positions:
        raise TokenPOError(
            f"a prompt of {longest} tokens and {new} new ones exceed the model's {positions} positions: lower "
            "max_completion_length, or leave such prompts out of train_dataset"
        )
