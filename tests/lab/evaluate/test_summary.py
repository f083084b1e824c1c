"""Numbers over prompts, by hand, with what is undefined left out and named. The estimators."""

import io
import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest

from tokenpo.base.intervals import bootstrap, effective, wilson
from tokenpo.lab.evaluate.summary import (
    METRICS,
    Estimate,
    Sample,
    Vote,
    avg_at_k,
    maj_at_k,
    pass_at_k,
    pass_hat_k,
    show,
    summarise,
)


def samples(*prompts, answer=True):
    """One prompt per word, one sample per letter: capital is right, and letters are the answers."""
    return [
        Sample(f"p{i}", i, Vote(letter.lower() if answer else None, letter.isupper()))
        for i, word in enumerate(prompts)
        for letter in word
    ]


def number(summary, metric, k):
    [found] = [n for n in summary.numbers if (n.metric, n.k) == (metric, k)]
    return found


def shown(summary, title="x"):
    stream = io.StringIO()
    show(summary, title, stream)
    return stream.getvalue()


def test_by_hand():
    """Prompts AAbb, Abbb, cdef: 2, 1, 0 of 4 right.

    avg: (1/2 + 1/4 + 0) / 3 = 1/4.
    pass@2: 1 - C(2,2)/6 = 5/6; 1 - C(3,2)/6 = 1/2; 0: mean 4/9.
    pass^2: 1/6; 0; 0: mean 1/18.
    maj@4: AAbb ties, 1/2; Abbb lost; cdef lost: mean 1/6. At the ends all values are 0 or 1 but for maj.
    """
    result = summarise(samples("AAbb", "Abbb", "cdef"), [1, 2, 4], seed=3)
    assert (result.prompts, result.samples, result.correct) == (3, 12, 3)
    close = pytest.approx
    assert [number(result, "avg@k", k).value for k in (1, 2, 4)] == close([0.25] * 3, rel=1e-14)
    assert number(result, "pass@k", 2).value == close(4 / 9, rel=1e-14)
    assert number(result, "pass^k", 2).value == close(1 / 18, rel=1e-14)
    assert number(result, "maj@k", 4).value == close(1 / 6, rel=1e-13)
    at_four = number(result, "pass@k", 4)
    assert (at_four.value, at_four.kind, (at_four.low, at_four.high)) == (close(2 / 3), "wilson", close(wilson(2, 3)))
    mixed = number(result, "pass@k", 2)
    assert (mixed.kind, (mixed.low, mixed.high)) == ("effective", close(effective([5 / 6, 1 / 2, 0.0])))
    assert result.sentences == ()
    assert [(p["problem"], p["samples"], p["correct"]) for p in result.per_prompt] == [(0, 4, 2), (1, 4, 1), (2, 4, 0)]
    assert [p["pass@2"] for p in result.per_prompt] == close([5 / 6, 1 / 2, 0])
    assert [p["maj@4"] for p in result.per_prompt] == close([1 / 2, 0, 0])


def test_ks_that_some_or_all_prompts_lack_are_nan_and_a_sentence():
    assert [n.k for n in summarise(samples("Ab", "Abc")).numbers if n.metric == "avg@k"] == [1, 2]  # the default
    result = summarise(samples("Ab", "AA"), [1, 4])
    for metric in METRICS:
        missing = number(result, metric, 4)
        assert math.isnan(missing.value) and math.isnan(missing.low) and math.isnan(missing.high)
        assert (missing.kind, missing.prompts) == ("", 0)
        assert math.isnan(result.per_prompt[1][metric.replace("k", "4")])
    assert result.sentences == ("k = 4 is NaN: no prompt has more than 2 samples, draw at least 4 per prompt.",)
    assert "k = 2 is NaN: no prompt has more than 1 sample, draw" in summarise(samples("A", "b"), [2]).sentences[0]
    # Ab and Acd and B: avg over three prompts (1/2 + 1/3 + 1)/3; at k = 2 over two, at k = 3 over one.
    result = summarise(samples("Ab", "Acd", "B"), [1, 2, 3])
    assert number(result, "avg@k", 1).value == pytest.approx((1 / 2 + 1 / 3 + 1) / 3)
    assert [number(result, "pass@k", k).value for k in (2, 3)] == pytest.approx([(1 + 2 / 3) / 2, 1.0])
    assert [number(result, "pass@k", k).prompts for k in (2, 3)] == [2, 1]
    assert result.sentences == (
        "The prompts have 1 to 3 samples; every prompt counts alike, estimated from its own.",
        "k = 2 is over the 2 of 3 prompts that have as many samples.",
        "k = 3 is over the 1 of 3 prompts that have as many samples.",
    )


def test_one_right_sample_without_an_answer_leaves_no_majority():
    """AAA is solved but for a lost answer; over the other prompts alone maj@1 would be 1/4."""
    others = samples("Abb", "bbb", "Abb", "bcd")
    result = summarise([*others, *(Sample("p9", 9, Vote(answer, True)) for answer in ("a", "a", None))], [1, 3])
    assert all(math.isnan(number(result, "maj@k", k).value) for k in (1, 3))
    assert result.sentences == ("maj@k is NaN: 1 of the 5 right samples have no answer to vote with.",)
    assert [p["maj@1"] for p in result.per_prompt[:2]] == pytest.approx([1 / 3, 0])
    # Wrong ones may be silent: they vote for nothing.
    result = summarise([*others, *(Sample("p9", 9, Vote(a, a == "a")) for a in ("a", "a", None))], [1, 3])
    assert number(result, "maj@k", 1).value == pytest.approx((1 / 3 + 1 / 3 + 2 / 3) / 5)
    assert (number(result, "maj@k", 3).prompts, result.sentences) == (5, ())


def rewarded(*rewards):
    """One prompt per tuple; right is what has reward 1."""
    return [
        Sample(f"p{i}", i, Vote(None, reward == 1), reward=reward) for i, some in enumerate(rewards) for reward in some
    ]


def test_graded_rewards_have_a_mean_over_prompts():
    """(0.3 + 0.5)/2 = 0.4, (-1 + 1)/2 = 0, 1 alone: every prompt counts alike, mean 1.4/3."""
    result = summarise(rewarded((0.3, 0.5), (-1.0, 1.0), (1.0,)), [1], seed=4)
    expected = bootstrap([0.4, 0.0, 1.0], 4)
    assert result.reward is not None
    assert result.reward == Estimate("reward", 1, pytest.approx(1.4 / 3), *map(pytest.approx, expected), "bootstrap", 3)
    assert f"Mean reward of a sample: 0.467, {expected[0]:.3f} to {expected[1]:.3f} b.\n" in shown(result)
    assert "Mean reward of a sample: 0.300.\n" in shown(summarise(rewarded((0.3,), (0.3, 0.3))))
    # Those that are the verdicts, or are not known, have none.
    for none in (rewarded((0.0, 1.0), (1.0,)), rewarded((0.3, None), (1.0,)), samples("Ab")):
        assert summarise(none).reward is None and "reward" not in shown(summarise(none))


def over_subsets(samples: list, k: int, statistic: Callable[[tuple], Fraction]) -> Fraction:
    """Mean of the statistic over all subsets of k samples, in exact arithmetic."""
    values = [statistic(subset) for subset in itertools.combinations(samples, k)]
    return sum(values, Fraction(0)) / len(values)


def share_right(subset: tuple) -> Fraction:
    return Fraction(sum(correct for _, correct in subset), len(subset))


def majority(subset: tuple, share: dict[str, Fraction]) -> Fraction:
    counts = {answer: sum(a == answer for a, _ in subset) for answer, _ in subset if answer is not None}
    if not counts:
        return Fraction(0)
    winners = [answer for answer, count in counts.items() if count == max(counts.values())]
    return sum((share[answer] for answer in winners), Fraction(0)) / len(winners)


def shares(votes: list[Vote]) -> dict[str, Fraction]:
    """Of each answer, the share of its samples that are right."""
    return {
        answer: Fraction(sum(v.correct for v in votes if v.answer == answer), sum(v.answer == answer for v in votes))
        for answer in {v.answer for v in votes if v.answer is not None}
    }


@pytest.mark.parametrize("n", range(1, 8))
def test_avg_and_both_passes_are_the_mean_over_all_subsets(n):
    for c in range(n + 1):
        samples = [("x", i < c) for i in range(n)]
        for k in range(1, n + 1):
            assert avg_at_k(n, c, k) == pytest.approx(float(over_subsets(samples, k, share_right)), rel=1e-15)
            assert pass_at_k(n, c, k) == float(over_subsets(samples, k, lambda s: Fraction(any(r for _, r in s))))
            assert pass_hat_k(n, c, k) == float(over_subsets(samples, k, lambda s: Fraction(all(r for _, r in s))))


@pytest.mark.parametrize("seed", range(40))
def test_maj_is_the_mean_over_all_subsets(seed):
    draw = random.Random(seed)
    answers = draw.choice([["a"], ["a", "b"], ["a", "b", "c", "d"], ["a", "b", None], list("abcdefghi"), [None]])
    mixed = draw.random() < 0.3
    votes = []
    for answer in draw.choices(answers, k=draw.randint(1, 9)):
        right = answer is not None and (draw.random() < 0.5 if mixed else answer in ("a", "d"))
        votes.append(Vote(answer, right))
    for k in range(1, len(votes) + 1):
        expected = float(over_subsets(votes, k, lambda subset: majority(subset, shares(votes))))
        assert maj_at_k(votes, k) == pytest.approx(expected, abs=1e-12)
