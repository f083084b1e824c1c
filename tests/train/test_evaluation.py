from __future__ import annotations

import pytest
import torch

from tokenpo.intervals import wilson
from tokenpo.train.engine import build_engine
from tokenpo.train.evaluation import evaluate


def test_evaluation_is_on_the_test_split_and_repeats_itself(small, coin, tmp_path):
    engine = build_engine(small(tmp_path, evaluate={"problems": 7, "samples": 4, "rows": 8}))
    first, second = evaluate(engine), evaluate(engine)
    assert first == second
    assert {split for split, _, _ in coin.seen} == {"test"}
    assert coin.seen[:5] == [("test", 0, 7), ("test", 0, 2), ("test", 2, 2), ("test", 4, 2), ("test", 6, 1)]
    assert first.low <= first.accuracy <= first.high
    assert (first.problems, first.k) == (7, 4)
    assert first.average * 28 == pytest.approx(round(first.average * 28))
    assert first.metrics()["eval/avg"] == first.average
    whole = build_engine(small(tmp_path, evaluate={"problems": 7, "samples": 4, "rows": 1000}))
    assert evaluate(whole) == first


def test_greedy_alone_is_possible(small, coin, tmp_path):
    result = evaluate(build_engine(small(tmp_path, evaluate={"problems": 3, "samples": 0})))
    assert set(result.metrics()) == {"eval/accuracy", "eval/low", "eval/high", "eval/length"}
    assert "avg@" not in str(result)


def test_a_finite_test_split_is_not_counted_twice(small, coin, tmp_path):
    engine = build_engine(small(tmp_path, evaluate={"problems": 50, "samples": 2}))
    object.__setattr__(engine.task, "test_size", 4)
    result = evaluate(engine)
    assert result.problems == 4
    assert (result.low, result.high) == wilson(round(result.accuracy * 4), 4)


def test_problems_that_agree_are_no_proof(small, coin, tmp_path, monkeypatch):
    """0 of 4: the spread over problems is 0, the interval of a proportion is not."""
    engine = build_engine(small(tmp_path, evaluate={"problems": 4, "samples": 2}))
    monkeypatch.setattr("tokenpo.train.evaluation._mean_and_error", lambda rates: (0.0, 0.0))
    monkeypatch.setattr("tokenpo.responses.Draw.correct", lambda piece: torch.zeros(len(piece.problems) * 2))
    result = evaluate(engine)
    assert (result.average_low, result.average_high) == wilson(0, 4)
    assert result.average_high > 0.4
