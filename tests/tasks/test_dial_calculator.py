"""dial_calculator: what the calculator answers, and what a response earns turn by turn."""

from __future__ import annotations

import pytest

from tokenpo.base.errors import TokenPOError, Unsupported
from tokenpo.tasks import Problem, ToolTask, Turn, make_task, refuse_tool
from tokenpo.tasks.dial_sum import DialCalculator

PROBLEM = Problem("3-9+6*6=", "0")  # 4, 0, 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("3-9=", "4"), ("3-9+6=", "0"), ("3-9=4;4+6=", "0"), ("7=", "7"), ("=", None), ("3-=", None), ("-3=", None),
        ("3-9=4=", None), ("3--9=", None), ("3-9#4;=", None), ("3-9", None), ("3-a=", None),
    ],
)  # fmt: skip
def test_the_calculator(text, answer):
    """It reads what stands between the last semicolon and the `=`; the `4=` of `3-9=4=` is no expression of its own."""
    assert DialCalculator().reply(PROBLEM, text) == answer


def test_what_a_response_earns():
    """Two right calls and a right answer; a first call that takes up nothing; one that goes astray and stays so."""
    task = DialCalculator(call_reward=0.25)
    texts = ["3-9=4;4+6*6=0#0", "3=3;3-9=4;4+6*6#0", "3+9=2;2+6*6=8#8", "3-9+6*6#1"]
    scores = task.score([PROBLEM] * 4, texts, [[]] * 4)
    assert [score.reward for score in scores] == [1.5, 1.0, 0.0, 0.0]
    assert [score.correct for score in scores] == [True, True, False, False]
    assert scores[0].rewards == {"calls": 0.5, "answer": 1.0}
    assert scores[0].turns == (Turn(0.25, "3-9+6*6="), Turn(0.25, "4+6*6="), Turn(1.0, "0="))
    # A call that takes up nothing leaves the way for good: its expression is not where the work stands.
    assert [turn.reward for turn in scores[1].turns] == [0.0, 0.0, 1.0]
    assert scores[2].turns == (Turn(0.0, "3-9+6*6="), Turn(0.0, "3+9=2"), Turn(0.0, "3+9=2;2+6*6=8"))
    assert scores[3].turns == (Turn(0.0, "3-9+6*6="),)
    for score in scores:
        assert sum(turn.reward for turn in score.turns) == score.reward == sum(score.rewards.values())


def test_its_problems_are_those_of_the_dial():
    ours, dial = make_task("dial_calculator", {"operands": 5}, 3), make_task("dial_sum", {"operands": 5}, 3)
    assert isinstance(ours, ToolTask)
    assert not isinstance(dial, ToolTask)
    for split in ("train", "test"):
        assert ours.problems(split, 7, 20) == dial.problems(split, 7, 20)
    with pytest.raises(TokenPOError, match="call_reward=inf must be a finite number"):
        DialCalculator(call_reward=float("inf"))
    words = "answers its responses while they are sampled, which the TRL engine has no way for: leave out --engine"
    with pytest.raises(Unsupported, match=f"^task 'dial_calculator' {words}$"):
        refuse_tool(ours, "TRL")
    refuse_tool(dial, "TRL")
