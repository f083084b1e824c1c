"""Verifiable tasks and their verifiers; `TASKS` maps names to builders."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from ...base.errors import TokenPOError, UnknownName, choose, nearest
from .types import Problem, Score, Split, Task, ToolTask, Turn

__all__ = [
    "TASKS", "Problem", "Score", "Split", "Task", "ToolTask", "Turn", "builder", "held_out", "make_task", "options",
]  # fmt: skip

# name -> "module:builder"; the builder's keyword arguments other than `seed` and `name` are the task's options.
TASKS: Mapping[str, str] = MappingProxyType(
    {
        "dial_sum": "generated:DialSum",
        "dial_calculator": "generated:DialCalculator",
        "sums": "generated:Sums",
        "files": "files:files",
    }
)

_CHECKED = {"int": int, "float": (int, float), "bool": bool, "str": str}


def make_task(name: str, options: Mapping[str, Any], seed: int) -> Task:
    """The task called `name`; `seed` decides the order of its problems. "none" is None for options of that default.

    Raises:
        UnknownName: no such task or option; the message names the nearest.
        TokenPOError: a required option is missing, of a wrong type or out of range.
    """
    build = builder(name)
    known = _options(build)
    absent = {option for option, parameter in known.items() if parameter.default is None}
    options = {option: None if value == "none" and option in absent else value for option, value in options.items()}
    for option, value in options.items():
        if option not in known:
            raise UnknownName(f"task {name!r} has no option {option!r}: {nearest(option, known)}")
        # A builder checks options of more than one type itself.
        annotation = getattr(known[option].annotation, "__name__", str(known[option].annotation))
        expected = _CHECKED.get(annotation)
        if expected and (not isinstance(value, expected) or (isinstance(value, bool) and annotation != "bool")):
            raise TokenPOError(f"task {name!r}: option {option} = {value!r} must be of type {annotation}")
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise TokenPOError(f"task {name!r} needs the option {option!r}")
    try:
        return build(seed=seed, **options)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TokenPOError):
            raise
        raise TokenPOError(f"task {name!r} cannot be made with {dict(options)!r:.200}: {error}") from error


def held_out(task: Task, count: int) -> int:
    """`count`, or the size of the test split if that is smaller: repeated problems would make intervals too narrow."""
    return min(count, getattr(task, "test_size", None) or count)


def options(name: str) -> dict[str, Any]:
    """The options of a task with their defaults; `...` marks the required ones."""
    known = _options(builder(name))
    return {option: ... if p.default is p.empty else p.default for option, p in known.items()}


def builder(name: str) -> Callable[..., Task]:
    """The class or function that makes a task; its keyword arguments are the options. Raises UnknownName."""
    module, _, attribute = choose("task", name, TASKS).partition(":")
    return getattr(import_module(f".{module}", __name__), attribute)


def _options(build: Callable[..., Task]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(build).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in ("seed", "name")}
