import dataclasses

import pytest

from tokenpo.base.intervals import wilson
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.evaluation import Evaluation


def evaluate(engine: Local) -> Evaluation:
    return engine.evaluate()


def test_evaluation_is_on_the_test_split_and_repeats_itself(small, coin, tmp_path):
    engine = Local.open(Plan(small(tmp_path, evaluate={"problems": 7, "samples": 4, "rows": 8})))
    first, second = evaluate(engine), evaluate(engine)
    assert first == second
    assert {split for split, _, _ in coin.seen} == {"test"}
    assert coin.seen[:5] == [("test", 0, 7), ("test", 0, 2), ("test", 2, 2), ("test", 4, 2), ("test", 6, 1)]
    assert first.greedy.low <= first.greedy.value <= first.greedy.high
    assert (first.problems, first.k) == (7, 4)
    assert first.sampled.value * 28 == pytest.approx(round(first.sampled.value * 28))
    assert first.metrics()["eval/avg"] == first.sampled.value
    whole = Local.open(Plan(small(tmp_path, evaluate={"problems": 7, "samples": 4, "rows": 1000})))
    assert evaluate(whole) == first


def test_a_finite_test_split_is_not_counted_twice(small, coin, tmp_path):
    engine = Local.open(Plan(small(tmp_path, evaluate={"problems": 50, "samples": 2})))
    object.__setattr__(engine.task, "test_size", 4)
    result = evaluate(engine)
    assert result.problems == 4
    assert (result.greedy.low, result.greedy.high) == wilson(round(result.greedy.value * 4), 4)


def graded(monkeypatch, coin, reward):
    """The coin with another reward: `reward(length of the response)`."""
    judged = coin.score
    monkeypatch.setattr(
        coin,
        "score",
        lambda problems, texts, ids: [
            dataclasses.replace(score, reward=reward(len(row)))
            for score, row in zip(judged(problems, texts, ids), ids, strict=True)
        ],
    )
