"""Reward functions of the user: both signatures, and every way to get them wrong."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName, Unsupported
from tokenpo.train.tasks.rewards import UserReward
from tokenpo.train.tasks.types import Problem, Score

FUNCTIONS = """
import numpy, torch

def trl(prompts, completions, completion_ids, level, trainer_state=None, missing=5):
    assert trainer_state is None and missing == 5 and len(prompts) == len(completion_ids)
    return [float(len(c)) * l if isinstance(c, str) else c for c, l in zip(completions, level)]

def everything(completions, **columns):
    return [len(columns) + (sorted(columns) != ["answer", "completion_ids", "level", "prompts", "trainer_state"])] * 2

def chat(completions, **_):
    return [c[0]["content"] == "ab" and c[0]["role"] == "assistant" for c in completions]

def kinds(completions):
    return torch.tensor([1.0, 0.5])

def mixed(completions):
    return [None, numpy.float32(2)]

def lazy(completions):
    return (1.0 for _ in completions)


def short(completions): return [1.0]
def raising(completions): raise ZeroDivisionError("oops")
def greedy(completions, levle): return [0.0, 0.0]
async def later(completions): return [0.0, 0.0]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "mine" and extra_info == {"index": 1}
    return float(solution_str == ground_truth)

def verl_dict(data_source, solution_str, ground_truth, extra_info, **kwargs):
    assert not kwargs
    return {"score": -1.0, "acc": solution_str == "ab"}

def verl_bad(solution_str, ground_truth): return {"reward": 1}
def verl_raising(solution_str, ground_truth): return 1 / (len(solution_str) - 3)
def hanging(completions):
    while True: pass
def dying(completions):
    import os
    os._exit(3)
def verl_slow(solution_str, ground_truth):
    import time
    print("a reward function may print", solution_str)
    time.sleep(60 * (len(solution_str) == 3))
    return 1.0
def huge(completions): return [1e300, 3.4e38]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_rewards.py").write_text(FUNCTIONS)
    (tmp_path / "my_broken.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scored(path: str, columns: Any = None, prompt: Any = "p", seconds: float = 0.0, on_error="stop") -> list[Score]:
    problems = [Problem(prompt, "ab", columns or {"prompt": "p", "answer": "ab", "level": i}) for i in (1, 2)]
    with contextlib.closing(UserReward(path, 1.0, seconds, on_error)) as reward:
        return reward(problems, ["ab", "abc"], [[1], [2]])


@pytest.mark.parametrize("place", ["my_rewards", "my_rewards.py"])
def test_trl_functions_get_what_they_name(place: str) -> None:
    assert scored(f"{place}:trl") == [Score(2.0, True), Score(6.0, True)]
    assert scored(f"{place}:everything") == [Score(5.0, True)] * 2
    assert scored(f"{place}:kinds") == [Score(1.0, True), Score(0.5, False)]
    assert scored(f"{place}:mixed") == [Score(0.0, False, "not applicable"), Score(2.0, True)]
    assert scored(f"{place}:chat", prompt=[{"role": "user", "content": "p"}]) == [Score(1.0, True), Score(0.0, False)]


def test_verl_functions_are_told_by_their_arguments() -> None:
    columns = {"data_source": "mine", "extra_info": {"index": 1}, "prompt": "p"}
    assert scored("my_rewards.py:compute_score", columns) == [Score(1.0, True), Score(0.0, False)]
    assert scored("my_rewards.py:verl_dict", columns) == [Score(-1.0, True), Score(-1.0, False)]


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("my_rewards.py:lazy", TokenPOError, "gave one generator for 2 completions: give a list with one number each"),
        ("my_rewards.py:greedy", TokenPOError, r"wants the argument 'levle'.*did you mean 'level'"),
        ("my_rewards.py:later", Unsupported, "async"),
        ("my_rewards:trll", UnknownName, "did you mean 'trl'"),
        ("my_broken.py:f", TokenPOError, "No module named 'no_such_package'"),
    ],
)
def test_errors_name_the_function(path: str, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        scored(path)


@pytest.mark.parametrize(
    ("name", "notes", "words"),
    [
        ("raising", ["error: ZeroDivisionError"] * 2, "raised ZeroDivisionError at my_rewards.py"),
        ("hanging", ["timeout"] * 2, r"took more than reward_seconds = 0\.5"),
        ("dying", ["crash"] * 2, r"broke off \(crash\)"),
        ("short", ["wrong length"] * 2, "1 rewards for 2 completions"),
        ("huge", ["not finite", ""], r"gave 1e\+300 on row 0: give a number of at most 3\.4e\+38 in size, or None"),
        ("mixed", ["not applicable", ""], None),
        ("verl_bad", ["not a number"] * 2, "gave {.reward.: 1} on row 0: give a number, or verl"),
        ("verl_raising", ["", "error: ZeroDivisionError"], "on row 1"),
        ("verl_slow", ["", "timeout"], r"reward_seconds = 0\.5 on row 1"),
    ],
)
def test_what_goes_wrong_stops_or_is_counted(name: str, notes: list[str], words: str | None, here: Path) -> None:
    """In a process with half a second for a call; the worker that was killed is replaced for the next call."""
    fast = FUNCTIONS.replace("import numpy, torch", "class numpy:\n    float32 = float")  # torch takes a second to load
    (here / "quick.py").write_text(fast)
    path = f"quick.py:{name}"
    scores = scored(path, seconds=0.5, on_error="zero")
    assert [score.note for score in scores] == notes
    assert all(score.reward == 0 and not score.correct for score in scores if score.note)
    if words is not None:
        with pytest.raises(TokenPOError, match=words.replace("my_rewards", "quick")) as caught:
            scored(path, seconds=0.5)
        assert "\n" not in str(caught.value)


def test_it_keeps_its_process_until_that_hangs(here: Path) -> None:
    import os

    body = "import os, time\ndef f(completions):\n    time.sleep(60 * (completions[0] == 'sleep'))\n"
    (here / "quick.py").write_text(body + "    return [os.getpid()] * len(completions)\n")
    reward = UserReward("quick.py:f", seconds=0.5, on_error="zero")
    first, again, hung, after = (reward([Problem("p", "a")], [text], [[1]])[0] for text in ("a", "b", "sleep", "c"))
    assert first.reward == again.reward != os.getpid()
    assert hung.note == "timeout"
    assert after.reward not in (0.0, first.reward)
    reward.close()
