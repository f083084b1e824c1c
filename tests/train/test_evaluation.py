from __future__ import annotations

import random

import pytest
import torch

from tokenpo.intervals import interval, wilson
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
    monkeypatch.setattr("tokenpo.responses.Draw.correct", lambda piece: torch.zeros(len(piece.problems) * 2))
    result = evaluate(engine)
    assert (result.average_low, result.average_high) == wilson(0, 4)
    assert result.average_high > 0.4


def test_the_interval_over_problems_is_that_of_the_package(small, coin, tmp_path, monkeypatch):
    """Resampled by the seed of the run, exact thirds, and no random number of anybody else's is drawn."""
    engine = build_engine(small(tmp_path, evaluate={"problems": 4, "samples": 3, "rows": 6}))
    right = iter([torch.tensor([1.0, 0, 0, 1, 1, 1]), torch.tensor([0.0, 0, 0, 1, 0, 0])])
    monkeypatch.setattr("tokenpo.responses.Draw.correct", lambda piece: next(right))
    assert engine.config.seed == 5
    states = torch.get_rng_state(), random.getstate()
    result = evaluate(engine)
    expected = interval([1 / 3, 1, 0, 1 / 3], 5)
    assert (result.average_low, result.average_high) == (expected.low, expected.high)
    assert result.average == pytest.approx(5 / 12, abs=1e-15)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
