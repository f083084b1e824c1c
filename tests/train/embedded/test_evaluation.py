import dataclasses

import pytest

from tokenpo.base.intervals import mean_of_numbers, wilson
from tokenpo.core.seeds import keyed_seed
from tokenpo.train.models import Sampling
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local
from tokenpo.train.run.evaluation import Evaluation
from tokenpo.train.run.rollout import draw


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


def test_graded_rewards_have_a_mean_beside_accuracy(small, coin, tmp_path, monkeypatch):
    """0.1 a token: the mean greedy reward is a tenth of the mean length. Samples: the mean of the problems' means."""
    graded(monkeypatch, coin, lambda length: length / 10)
    engine = Local.open(Plan(small(tmp_path, evaluate={"problems": 5, "samples": 3, "rows": 6})))
    lengths = [
        draw(engine.lm, coin, "test", i, 1, 3, Sampling(6, 1.0, keyed_seed(5, "evaluation"))).mask.sum(1)
        for i in range(5)
    ]
    means = [float(of_problem.double().mean()) / 10 for of_problem in lengths]
    result = evaluate(engine)
    assert result.reward is not None and result.sampled_reward is not None
    assert result.reward.value == pytest.approx(result.length / 10, rel=1e-12)
    assert result.sampled_reward.value == pytest.approx(sum(means) / 5, rel=1e-12)
    expected = mean_of_numbers(means, 5)
    assert expected.kind == "bootstrap"
    ends = (result.sampled_reward.low, result.sampled_reward.high)
    assert ends == pytest.approx((expected.low, expected.high), rel=1e-12)
    told = result.metrics()
    assert (told["eval/avg_reward"], told["eval/avg_reward_low"], told["eval/avg_reward_high"]) == (
        result.sampled_reward.value,
        *ends,
    )
    assert told["eval/reward"] == result.reward.value
    assert f"greedy reward {result.reward.value:.3f}" in str(result)
    assert f"sampled reward {result.sampled_reward.value:.3f} ({ends[0]:.3f} to {ends[1]:.3f})" in str(result)
    greedy = evaluate(Local.open(Plan(small(tmp_path, evaluate={"problems": 5, "samples": 0}))))
    assert greedy.reward == result.reward and greedy.sampled_reward is None
    assert "eval/avg" not in greedy.metrics() and "avg@" not in str(greedy)
