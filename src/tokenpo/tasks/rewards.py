"""Reward functions of the user, by dotted path: TRL's signature, or verl's `compute_score`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import TokenPOError, UnknownName, Unsupported, nearest
from .types import Problem, Score

_VERL = {"solution_str", "ground_truth"}


class UserReward:
    """A reward function of the user.

    TRL's signature: `f(prompts, completions, completion_ids, <every data column>, trainer_state=None)`, lists in, a
    list of numbers out, None where it doesn't apply (reward 0, note "not applicable"). It is given only the arguments
    it names, or all if it takes `**kwargs`. A chat's completion comes as `[{"role": "assistant", "content": ...}]`.

    verl's signature, told by its arguments `solution_str` and `ground_truth`: `compute_score(data_source,
    solution_str, ground_truth, extra_info)` per answer; out comes a number, or a dict with "score" (and maybe "acc",
    which then counts as correct).

    Args:
        path: "package.module:function" or "path/to/file.py:function"; its module is executed.
        correct_at: least reward that counts as correct.

    Raises:
        UnknownName: there is no such module or function.
        Unsupported: it is async.
        TokenPOError: while scoring: it raises, or gives a wrong number of rewards or one that isn't a finite number.
    """

    needs_answer = False

    def __init__(self, path: str, correct_at: float = 1.0) -> None:
        self.path, self._correct_at = path, correct_at
        self._function = load_function(path)
        if inspect.iscoroutinefunction(self._function):
            raise Unsupported(f"reward function {path} is async: give a plain function")
        self._parameters = inspect.signature(self._function).parameters
        self._is_verl = set(self._parameters) >= _VERL

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        rewards = self._verl(problems, completions) if self._is_verl else self._trl(problems, completions, ids)
        return [self._score(reward, row) for row, reward in enumerate(rewards)]

    def close(self) -> None:
        """Nothing to end."""

    def _trl(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Any]:
        chats = [isinstance(problem.prompt, list) for problem in problems]
        said = [[{"role": "assistant", "content": t}] if c else t for t, c in zip(completions, chats, strict=True)]
        names = dict.fromkeys(name for problem in problems for name in problem.columns if name != "prompt")
        given = {name: [problem.columns.get(name) for problem in problems] for name in names}
        given |= {"prompts": [problem.prompt for problem in problems], "completions": said, "completion_ids": ids}
        rewards = self._call(0, self._chosen(given | {"trainer_state": None}))
        rewards = rewards.tolist() if hasattr(rewards, "tolist") else rewards
        if not isinstance(rewards, (list, tuple)) or len(rewards) != len(completions):
            got = f"{len(rewards)} rewards" if isinstance(rewards, (list, tuple)) else f"a {type(rewards).__name__}"
            raise TokenPOError(f"reward function {self.path} gave {got} for {len(completions)} completions: one each")
        return list(rewards)

    def _verl(self, problems: list[Problem], completions: list[str]) -> list[Any]:
        rewards = []
        for row, (problem, text) in enumerate(zip(problems, completions, strict=True)):
            given = {name: problem.columns.get(name) for name in ("data_source", "extra_info")}
            given |= {"solution_str": text, "ground_truth": problem.answer}
            rewards.append(self._call(row, self._chosen(given)))
        return rewards

    def _chosen(self, given: dict[str, Any]) -> dict[str, Any]:
        """What of `given` the function takes; raises where it asks for more."""
        if any(p.kind is p.VAR_KEYWORD for p in self._parameters.values()):
            return given
        named = {name: p for name, p in self._parameters.items() if p.kind is not p.VAR_POSITIONAL}
        for name, parameter in named.items():
            if name not in given and parameter.default is parameter.empty:
                remedy = f"no column is called so ({nearest(name, given)})"
                raise TokenPOError(f"reward function {self.path} wants the argument {name!r}: {remedy}")
        return {name: given[name] for name in named if name in given}

    def _call(self, row: int, arguments: dict[str, Any]) -> Any:
        try:
            return self._function(**arguments)
        except Exception as error:
            where = f" on row {row}" if self._is_verl else ""
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            raise TokenPOError(
                f"reward function {self.path} raised {type(error).__name__}{where} at {place}: {error}"
            ) from error

    def _score(self, reward: Any, row: int) -> Score:
        correct = None
        if isinstance(reward, dict):
            if "score" not in reward:
                raise TokenPOError(f"reward function {self.path} gave a dict without 'score' on row {row}")
            correct, reward = reward.get("acc"), reward["score"]
        if reward is None:
            return Score(0.0, False, "not applicable")
        try:
            value = float(reward)
        except (TypeError, ValueError) as error:
            raise TokenPOError(f"reward function {self.path} gave {reward!r} on row {row}: give a number") from error
        if not math.isfinite(value):
            raise TokenPOError(f"reward function {self.path} gave {value} on row {row}: give a finite number, or None")
        return Score(value, value >= self._correct_at if correct is None else bool(correct))


def load_function(path: str) -> Callable[..., Any]:
    """The function at "package.module:function" or "file.py:function"; modules of the working directory are found.

    Raises:
        UnknownName: there is no such module or function.
        TokenPOError: the module raises while it is imported.
    """
    place, _, name = path.rpartition(":")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    except Exception as error:
        missing = isinstance(error, FileNotFoundError) or (
            isinstance(error, ModuleNotFoundError) and error.name is not None and place.startswith(error.name)
        )
        kind = UnknownName if missing else TokenPOError
        raise kind(f"reward function {path}: can't import {place!r} ({type(error).__name__}: {error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownName(f"reward function {path}: {place!r} has no function {name!r}: {nearest(name, known)}")
    return function


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"tokenpo reward {path}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look their own module up; the name is one that no import can clash with.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> Any:
    with _working_directory_last():
        return importlib.import_module(name)


@contextmanager
def _working_directory_last() -> Iterator[None]:
    """An installed command doesn't look for modules where it is started; last, so that nothing is shadowed."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
