"""The user's reward functions, by dotted path: TRL's signature, or verl's `compute_score`."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from ...base import user_code
from ...base.errors import TokenPOError, Unsupported, choose, nearest, require_loaded
from ...base.pool import Outcome, Pool
from ...base.user_code import Loaded
from .types import Problem, Score, Verifier

_VERL = {"solution_str", "ground_truth"}
_LARGEST = (2 - 2**-23) * 2.0**127  # of float32, in which rewards are stored


class UserReward(Verifier):
    """A reward function of the user, in a process of its own, which is killed and restarted if a call is too long.

    TRL's signature: `f(prompts, completions, completion_ids, <every data column>, trainer_state=None)`. It gets lists
    and returns a list of numbers, with None where it doesn't apply (reward 0, note "not applicable"). It gets only the
    arguments it names, or all if it takes `**kwargs`. A chat's completion is `[{"role": "assistant", "content": ...}]`.

    verl's signature, recognised by its arguments `solution_str` and `ground_truth`: `compute_score(data_source,
    solution_str, ground_truth, extra_info)` per answer; it returns a number, or a dict with "score" (and maybe "acc",
    which then counts as correct).

    Args:
        path: "package.module:function" or "path/to/file.py:function"; its module is executed.
        correct_at: least reward that counts as correct.
        seconds: wall-clock limit of a call; 0 calls it in this process, without a limit.
        on_error: for a failed call: "stop" raises TokenPOError, "zero" gives its answers reward 0 and a note:
            "timeout", "crash", "error: <exception>", "wrong length", "not finite", "not a number".
    """

    needs_answer, gives_away, reads_answers = False, False, False  # the columns that a function reads are not known
    accepts = ("correct_at", "reward_seconds", "reward_errors")

    def __init__(self, path: str, correct_at: float = 1.0, seconds: float = 300.0, on_error: str = "stop") -> None:
        self.path, self._correct_at, self._seconds = path, correct_at, seconds
        self._lenient = choose("reward_errors", on_error, {"stop": False, "zero": True})
        # Modules are found as in this process; the working directory comes last.
        search = [*(entry for entry in sys.path if entry), str(Path.cwd())]
        self._pool: Pool | None = None
        if seconds:  # one worker: a function may keep state, and calls never overlap
            self._pool = Pool(Path(user_code.__file__), "serve", 1, seconds, 0, users=(path, *search))
        else:
            self._loaded = Loaded(path, search)
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            (started,) = self._run([()])
            if started.note:
                raise self._error(f" did not start ({started.note})")
            about = started.value
            require_loaded(f"reward function {path}", about)
            if about["async"]:
                raise Unsupported(f"reward function {path} is async: give a plain function")
            failed.pop_all()
        # Name -> (has a default, is **kwargs).
        self._parameters = {name: (optional, takes_all) for name, optional, takes_all in about["parameters"]}
        self.source = about["source"]
        self._is_verl = set(self._parameters) >= _VERL

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        return self._verl(problems, completions) if self._is_verl else self._trl(problems, completions, ids)

    def close(self) -> None:
        if self._pool:
            self._pool.close()

    def _trl(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        replies = [
            [{"role": "assistant", "content": text}] if isinstance(problem.prompt, list) else text
            for problem, text in zip(problems, completions, strict=True)
        ]
        names = dict.fromkeys(name for problem in problems for name in problem.columns if name != "prompt")
        arguments = {name: [problem.columns.get(name) for problem in problems] for name in names}
        prompts = [problem.prompt for problem in problems]
        arguments |= {"prompts": prompts, "completions": replies, "completion_ids": ids}
        (outcome,) = self._run([(self._accepted(arguments | {"trainer_state": None}),)])
        rewards = self._value(outcome, "")
        if isinstance(rewards, Score):
            return [rewards] * len(completions)
        several = isinstance(rewards, (list, tuple))
        if not several or len(rewards) != len(completions):
            given = f"{len(rewards)} rewards" if several else f"one {outcome.value['kind']}"
            text = f"gave {given} for {len(completions)} completions: give a list with one number each"
            return [self._fault("wrong length", text)] * len(ids)
        return [self._score(reward, row) for row, reward in enumerate(rewards)]

    def _verl(self, problems: list[Problem], completions: list[str]) -> list[Score]:
        calls = [
            {name: problem.columns.get(name) for name in ("data_source", "extra_info")}
            | {"solution_str": text, "ground_truth": problem.answer}
            for problem, text in zip(problems, completions, strict=True)
        ]
        outcomes = self._run([(self._accepted(call),) for call in calls])
        values = [self._value(outcome, f" on row {row}") for row, outcome in enumerate(outcomes)]
        return [value if isinstance(value, Score) else self._score(value, row) for row, value in enumerate(values)]

    def _accepted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if any(takes_all for _, takes_all in self._parameters.values()):
            return arguments
        required = (name for name, (optional, _) in self._parameters.items() if not optional)
        if lacks := next((name for name in required if name not in arguments), ""):
            hint = nearest(lacks, arguments)
            raise self._error(f" wants the argument {lacks!r}: no column is called so ({hint})")
        return {name: arguments[name] for name in self._parameters if name in arguments}

    def _run(self, jobs: list[tuple[dict[str, Any], ...]]) -> list[Outcome]:
        """One outcome for each job: the arguments of a call, or () for facts about the function."""
        if self._pool is None:
            return [Outcome(self._loaded(*job)) for job in jobs]
        try:
            return self._pool.map(jobs)
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, TokenPOError):
                raise
            remedy = "set reward_seconds = 0, which calls it in this one without a time limit"
            raise self._error(f": its arguments cannot be handed to a process ({error}): {remedy}") from error

    def _value(self, outcome: Outcome, where: str) -> Any:
        """The value that a call returned, or the Score of a failed call."""
        if not outcome.note and "raised" not in outcome.value:
            return outcome.value["value"]
        if not outcome.note:
            answer = outcome.value
            text = f"raised {answer['raised']}{where} at {answer['place']}: {answer['text']}"
            return self._fault(f"error: {answer['raised']}", text, answer.get("error"))
        late = f"took more than reward_seconds = {self._seconds:g}{where}"
        return self._fault(outcome.note, late if outcome.note == "timeout" else f"broke off{where} ({outcome.note})")

    def _score(self, reward: Any, row: int) -> Score:
        correct = None
        if isinstance(reward, dict):
            correct, reward = reward.get("acc"), reward.get("score", reward)
        if reward is None:
            return Score(0.0, False, "not applicable")
        try:
            if isinstance(reward, (str, bytes)):  # float would read a number in it
                raise TypeError
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            return self._fault("not a number", f"gave {reward!r:.80} on row {row}: give a number, or verl's 'score'")
        if not abs(value) <= _LARGEST:
            remedy = f"give a number of at most {_LARGEST:.1e} in size, or None"
            return self._fault("not finite", f"gave {value} on row {row}: {remedy}")
        return Score(value, value >= self._correct_at if correct is None else bool(correct))

    def _fault(self, note: str, text: str, cause: BaseException | None = None) -> Score:
        if self._lenient:
            return Score(0.0, False, note)
        raise self._error(f" {text}") from cause

    def _error(self, text: str) -> TokenPOError:
        return TokenPOError(f"reward function {self.path}{text}")
