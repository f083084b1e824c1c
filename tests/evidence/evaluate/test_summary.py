"""Numbers over prompts, by hand, with what is undefined left out and named."""

from __future__ import annotations

import io
import math
from itertools import pairwise

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.base.intervals import bootstrap, effective, wilson
from tokenpo.evidence.evaluate.samples import Sample
from tokenpo.evidence.evaluate.summary import METRICS, Estimate, Vote, show, summarise


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


def test_intervals_of_shares_are_not_resampled():
    """So that they do not depend on the seed; rewards are. One sample a prompt has Wilson's."""
    words = ["A" * right + "b" * (7 - right) for right in (0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 7, 2, 1)]
    at = [number(summarise(samples(*words), [1], seed), "avg@k", 1) for seed in (0, 3)]
    assert at[0] == at[1] and at[0].kind == "effective"
    assert (at[0].low, at[0].high) == pytest.approx(effective([word.count("A") / 7 for word in words]), rel=1e-12)
    result = summarise(samples("A", "A", "b", "A", "b"))
    for metric in METRICS:
        only = number(result, metric, 1)
        assert (only.value, only.kind) == (pytest.approx(0.6, rel=1e-14), "wilson")
        assert (only.low, only.high) == pytest.approx(wilson(3, 5), rel=1e-12)


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


def test_votes_need_answers():
    """Without them only prompts that are never solved have a value, 0: their mean would say that nothing is solved."""
    result = summarise(samples("Ab", "bb", answer=False), [1, 2])
    for k in (1, 2):
        missing = number(result, "maj@k", k)
        assert math.isnan(missing.value) and math.isnan(missing.low) and math.isnan(missing.high)
        assert (missing.kind, missing.prompts) == ("", 0)
    assert (number(result, "avg@k", 1).value, number(result, "avg@k", 1).prompts) == (0.25, 2)
    assert math.isnan(result.per_prompt[0]["maj@1"]) and result.per_prompt[1]["maj@1"] == 0
    assert result.sentences == ("maj@k is NaN: no sample has an answer to vote with.",)


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


def test_pass_grows_and_pass_hat_falls_with_k():
    result = summarise(samples("AbbbAAbb", "Abbbbbbb", "AAAAAAAb"), range(1, 9))
    for metric, sign in (("pass@k", 1), ("pass^k", -1)):
        values = [number(result, metric, k).value for k in range(1, 9)]
        assert all(sign * (b - a) > 0 for a, b in pairwise(values))
    with pytest.raises(TokenPOError, match="there are no samples"):
        summarise([])


def test_the_table_shows_values_intervals_and_what_one_should_know():
    notes = [Sample("p9", 9, Vote(None, False), "no answer", tokens, tokens < 9) for tokens in (3, 9)]
    text = shown(summarise([*samples("Ab", "AA"), *notes], [1, 4]), "[bold]m[/bold] on <b>")
    assert "[bold]m[/bold] on <b>: 3 prompts, 6 samples, 3 right" in text
    assert "k = 1" in text and "k = 4" in text and "NaN" in text
    assert "0.500" in text and " to " in text
    assert "Samples: mean length 6.0 tokens, 50.0% cut at the length limit, 33.3% no answer." in text
    assert "k = 4 is NaN" in text


def test_notes_of_a_file_can_not_steer_the_terminal():
    message = [f"{'x' * 50}\x1b[2J\n{i}" for i in range(9)]
    text = shown(summarise([Sample("p", 0, Vote(None, False), note) for note in message for _ in range(2)]))
    line = text[text.index("Samples: ") :].replace("\n", " ")
    assert "\x1b" not in text
    assert line.count("x" * 40) == 5 and "x" * 41 not in line
