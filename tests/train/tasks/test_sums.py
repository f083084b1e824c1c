"""sums: what is asked, which number is the answer, and that no pair is in both splits."""

import re

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.train.tasks import make_task
from tokenpo.train.tasks.sums import Sums
from tokenpo.train.tasks.types import Problem


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
    assert Sums(seed=1).problems("train", 5, 3) == Sums(seed=1).problems("train", 0, 8)[5:]


@pytest.mark.parametrize(
    ("said", "reward", "note"),
    [
        ("82", 1, ""),
        ("37 + 45 = 82.", 1, ""),
        ("The sum is **82**!", 1, ""),
        ("37 + 45", 0, ""),  # an echo
        ("82 or 83", 0, ""),
        ("182", 0, ""),
        ("82.5", 0, ""),
        ("-82", 0, ""),
        ("eighty-two", 0, "no answer"),
        ("", 0, "no answer"),
    ],
)
def test_the_last_number_is_the_answer(said: str, reward: float, note: str) -> None:
    (score,) = Sums().score([Problem([], "82")], [said], [[]])
    assert (score.reward, score.correct, score.note) == (reward, bool(reward), note)


def test_thousands_may_be_set_apart() -> None:
    assert Sums().judge(Problem([], "1234"), "It is 1,234").correct


@pytest.mark.parametrize("digits", [0, 10, -1])
def test_digits_out_of_range_are_refused(digits: int) -> None:
    with pytest.raises(TokenPOError, match=rf"sums: digits={digits} must be in 1\.\.9"):
        make_task("sums", {"digits": digits}, 0)
