"""The generated tasks: their arithmetic, worked solutions, order and splits of problems, and what is paid."""

import hashlib
import itertools
import re
from collections import Counter

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.train.tasks import TASKS, Task, Turn, make_task
from tokenpo.train.tasks.generated import DialCalculator, DialSum, Sums, evaluate
from tokenpo.train.tasks.types import Problem


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"files"}))
def test_every_generated_task_keeps_the_protocol(name: str) -> None:
    task = make_task(name, {}, seed=5)
    assert isinstance(task, Task) and task.name == name
    for split in ("train", "test"):
        problems = task.problems(split, 3, 4)
        assert problems[2:] == task.problems(split, 5, 2) == make_task(name, {}, seed=5).problems(split, 5, 2)
        assert problems != make_task(name, {}, seed=6).problems(split, 3, 4)
        wrong = task.score(problems, ["nonsense", "", "\ud800 <answer></answer>", "#"], [[]] * 4)
        assert [(score.reward, score.correct, score.note) for score in wrong] == [(0.0, False, "no answer")] * 4
    train, test = ({str(p.prompt) for p in task.problems(split, 3, 9)} for split in ("train", "test"))
    assert not train & test
    task.close()


@pytest.mark.parametrize(
    ("name", "given", "kind", "words"),
    [
        ("dialsum", {}, UnknownName, "did you mean 'dial_sum'"),
        ("dial_sum", {"modulo": 3}, UnknownName, "did you mean 'modulus'"),
        ("dial_sum", {"modulus": True}, TokenPOError, "modulus = True must be a whole number"),
        ("files", {}, TokenPOError, "missing 1 required keyword-only argument: 'path'"),
    ],
)
def test_errors_name_the_thing_and_the_nearest(name: str, given: dict, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        make_task(name, given, seed=0)


def straight_line(expression: str, modulus: int) -> int:
    """Left to right with Python's own arithmetic: brackets from the left, the remainder at the end."""
    code = ""
    for operator, digit in re.findall(r"([-+*]?)([0-9a-z])", expression):
        code = f"({code}{operator}{int(digit, 36)})"
    return eval(code) % modulus


@pytest.mark.parametrize(("operands", "modulus"), [(2, 2), (8, 10), (8, 36), (64, 7)])
def test_answers_are_pythons_answers(operands, modulus):
    for problem in DialSum(operands=operands, modulus=modulus).problems("train", 0, 50):
        expression = problem.prompt.removesuffix("=")
        assert len(expression) == 2 * operands - 1
        assert int(problem.answer, 36) == straight_line(expression, modulus) == evaluate(expression, modulus)


def test_known_problem():
    problem = Problem(prompt="3-9+6*6-1*8*8-9=", answer="7")
    assert DialSum(leap=0.0).solution(problem) == "3-9=4;4+6=0;0*6=0;0-1=9;9*8=2;2*8=6;6-9=7#7"
    assert DialSum(leap=1.0).solution(problem) == "3-9+6*6-1*8*8-9#7"


def test_every_statement_of_a_solution_is_true_and_the_answer_is_last():
    task = DialSum(operands=(2, 12), modulus=13)
    for problem in task.problems("train", 0, 200):
        text, answer = task.solution(problem).split("#")
        assert answer == problem.answer
        *steps, last = text.split(";")
        value = None
        for step in [*steps, last]:
            left, _, right = step.partition("=")
            assert value in (None, left[0]), "a step goes on from the result before it"
            assert right == "" or int(right, 36) == evaluate(left, 13)
            value = right
        assert value or int(answer, 36) == evaluate(last, 13)
        first, *rest = (step.split("=")[0] for step in (*steps, last))
        assert "".join([first, *(step[1:] for step in rest)]) == problem.prompt.removesuffix("=")


def test_the_first_problems_of_every_recorded_run():
    assert [p.prompt for p in DialSum().problems("train", 0, 2)] == ["8-8-7*3*1-2*9-4=", "5+6*3+3*3+5+3-7="]
    lengths = Counter(len(p.prompt) // 2 for p in DialSum(operands=(4, 6)).problems("train", 0, 600))
    assert sorted(lengths) == [4, 5, 6] and min(lengths.values()) > 150


def test_no_expression_is_in_both_splits_whatever_the_seed():
    train = {p.prompt for seed in range(3) for p in DialSum(operands=3, seed=seed).problems("train", 0, 1500)}
    test = {p.prompt for seed in range(3, 6) for p in DialSum(operands=3, seed=seed).problems("test", 0, 300)}
    assert train.isdisjoint(test)
    assert len(test) > 300


@pytest.mark.parametrize(("operands", "modulus", "size"), [(2, 10, 29), (2, 5, 6), ((2, 3), 3, 7)])
def test_a_small_test_split_holds_each_problem_once(operands, modulus, size):
    """Its size is that of the held-out share of all expressions, written out here with itertools."""
    digits = "123456789"[: modulus - 1]
    counts = (operands,) if isinstance(operands, int) else operands
    spaces = [[digits, *["+-*", digits] * (count - 1)] for count in counts]
    every = ["".join(parts) for space in spaces for parts in itertools.product(*space)]
    held_out = [text for text in every if hashlib.blake2b(text.encode(), digest_size=1).digest()[0] < 26]
    task = DialSum(operands=operands, modulus=modulus)
    assert task.test_size == size == len(held_out)
    whole = [problem.prompt for problem in task.problems("test", 0, size)]
    assert sorted(whole) == sorted(f"{text}=" for text in held_out)
    assert [p.prompt for p in task.problems("test", 1, size - 1)] == whole[1:]
    with pytest.raises(TokenPOError, match=f" has {size} held-out problems, not the {size + 1} asked for: ask for"):
        task.problems("test", 1, size)


@pytest.mark.parametrize(
    ("completion", "correct", "note"),
    [
        ("#7", True, ""), ("3-9=4;4+6=0#7", True, ""), ("#3 no: #7", True, ""), ("#3", False, ""),
        ("#7 ", False, "no answer"), ("#77", False, "no answer"), ("#", False, "no answer"), ("7", False, "no answer"),
        ("", False, "no answer"), ("#7#", False, "no answer"),
    ],
)  # fmt: skip
def test_verifier_takes_the_exact_final_answer_only(completion, correct, note):
    score = DialSum().score([Problem(prompt="", answer="7")], [completion], [[]])[0]
    assert (score.correct, score.reward, score.note) == (correct, float(correct), note)
    assert score.answer == (None if note else completion[-1])


@pytest.mark.parametrize(
    "options", [{"operands": 1}, {"operands": 65}, {"operands": (5, 3)}, {"operands": "8"}, {"operands": (2, 3, 4)},
                {"modulus": 1}, {"modulus": 37}, {"leap": 1.5}, {"leap": -0.1}, {"digits": 0}, {"digits": 10}]
)  # fmt: skip
def test_bad_options_name_themselves(options):
    task = Sums if "digits" in options else DialSum
    with pytest.raises(TokenPOError, match=f"sums?: {next(iter(options))}="):
        task(**options)


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


def pair(problem: Problem) -> tuple[int, int]:
    ((role, content),) = [(m["role"], m["content"]) for m in problem.prompt]
    found = re.fullmatch(r"What is (\d+) \+ (\d+)\? Give only the number\.", content)
    assert role == "user" and found
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_answers_are_sums_of_numbers_with_so_many_digits(digits: int) -> None:
    problems = make_task("sums", {"digits": digits}, 3).problems("train", 0, 200)
    for problem in problems:
        a, b = pair(problem)
        assert len(str(a)) == len(str(b)) == digits and problem.answer == str(a + b)
    assert len({pair(problem) for problem in problems}) > (40 if digits == 1 else 150)


def test_no_pair_is_in_both_splits_whatever_the_seed() -> None:
    test = Sums().problems("test", 0, Sums().test_size)
    assert len({pair(p) for p in test}) == len(test) == Sums().test_size
    trained = {pair(p) for seed in (1, 2) for p in Sums(seed=seed).problems("train", 0, 1000)}
    assert not trained & {pair(p) for p in test}
    assert len(trained) + len(test) > 1500


def test_the_last_number_is_the_answer() -> None:
    for said, right in (("82", 1), ("The sum is **82**!", 1), ("8,2", 1), ("37 + 45", 0), ("182", 0), ("82.5", 0),
                        ("-82", 0), ("eighty-two", 0)):  # fmt: skip
        (score,) = Sums().score([Problem([], "82")], [said], [[]])
        assert (score.reward, score.correct) == (right, bool(right)), said
        assert score.note == ("no answer" if said == "eighty-two" else "")
