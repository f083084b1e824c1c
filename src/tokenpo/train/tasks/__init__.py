"""Verifiable tasks and their verifiers; `TASKS` maps names to builders."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from ...base.errors import choose
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


def make_task(name: str, options: Mapping[str, Any], seed: int) -> Task:
    """The task called `name`; `seed` decides the order of its problems. "none" is None for options of that default.

    Raises:
        UnknownName: no such task or option; the message names the nearest.
        TokenPOError: a required option is missing, of a wrong type or out of range.
    """
    from ...methods.from_text import read  # imports torch

    return read(f"task {name!r}", partial(builder(name), seed=seed), options)


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
