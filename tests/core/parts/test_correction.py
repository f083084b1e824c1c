"""Rollout correction by hand: what the bounds do to single tokens and to whole responses."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import Sample, ragged, run
from tokenpo import TokenPOError
from tokenpo.core.parts import Aggregate, PromptMean, Strayed, TokenMean, Weight
from tokenpo.core.parts.correction import Criterion, EachToken, Every, Mean, Rejection, RolloutCorrection, RolloutMean
from tokenpo.core.parts.loss import K3
from tokenpo.core.parts.weights import Drop, NormalisedWeight
from tokenpo.methods.from_text import criterion

LOG = torch.tensor([[0.5, 3.0, 1.0], [2.0, 0.25, 9.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, True], [True, True, False]])


def _of(weight: Weight) -> list[list[float]]:
    """Of tokens that the old policy finds exp(LOG) times as likely as the sampler did."""
    sampled = torch.full((2, 3), -3.0, dtype=torch.float64)
    rollouts = tokenpo.Rollouts(
        MASK,
        torch.zeros(2),
        torch.tensor([0, 0]),
        (sampled + LOG).masked_fill(~MASK, torch.nan),
        rollout_logprob=sampled.masked_fill(~MASK, torch.nan),
    )
    objective = dataclasses.replace(tokenpo.method("gpg"), weights=(weight,))
    credit = objective.prepare(rollouts)
    batch = tokenpo.Batch(rollouts, credit, tokenpo.Policy(sampled))
    found = objective.loss(batch, tokenpo.Totals.of(rollouts)).terms["weight"]
    return [row[kept].tolist() for row, kept in zip(found, MASK, strict=True)]


def test_a_mean_of_the_rollout_batch_normalises() -> None:
    """Tokens, at most 2: (0.5 + 2 + 1 + 2 + 0.25) / 5 = 1.15. Responses, 1.5 and 0.5: 1."""
    token, sequence = RolloutCorrection(), RolloutCorrection(sequence=True, cap=1.25)
    over = [[0.5, 2, 1], [2, 0.25]]
    got = _of(NormalisedWeight(token, RolloutMean(token)))
    assert got == [pytest.approx([x / 1.15 for x in row]) for row in over]
    got = _of(NormalisedWeight(sequence, RolloutMean(sequence)))
    assert got == [pytest.approx([1.25 / 0.875] * 3), pytest.approx([0.5 / 0.875] * 2)]
    with pytest.raises(TokenPOError, match="current=False"):
        RolloutMean(RolloutCorrection(current=True))


def test_every_response_counts_once_in_the_mean() -> None:
    """One with a tool's token inside, one of a single token: ρ = 1/2 · 3 and 1/4, mean 7/8."""
    mask = torch.tensor([[True, False, True], [True, False, False]])
    sampled = torch.full((2, 3), -3.0, dtype=torch.float64)
    log = torch.tensor([[0.5, 1.0, 3.0], [0.25, 1.0, 1.0]], dtype=torch.float64).log()
    rollouts = tokenpo.Rollouts(mask, torch.zeros(2), torch.tensor([0, 0]), sampled + log, rollout_logprob=sampled)
    assert RolloutMean(RolloutCorrection(sequence=True))(rollouts)[mask].tolist() == pytest.approx([7 / 8] * 3)


def test_the_current_policy_can_take_the_place_of_the_old() -> None:
    """lp − lp_roll = log 4 at every token, whatever the old policy says."""
    sample = ragged(0).alive()
    sample = sample.but(logprob=np.where(sample.mask, sample.rollout_logprob + np.log(4), 0))
    plain = dataclasses.replace(tokenpo.method("gpg"))
    got = run(dataclasses.replace(plain, weights=(RolloutCorrection(cap=3.0, current=True),)), sample)
    np.testing.assert_allclose(got.gradient, 3 * run(plain, sample).gradient, rtol=1e-12)
    rejected = Rejection((Criterion(high=3.9),), current=True)
    assert not run(dataclasses.replace(plain, weights=(rejected,)), sample).gradient.any()


# What is rejected and the denominators --------------------------------------------------------------------------


OUT = Criterion(Every(), 0.99, 1.01)


def _rejecting(name: str, *, leaves: bool) -> tokenpo.Objective:
    return dataclasses.replace(tokenpo.method(name), weights=(Rejection((OUT,), leaves=leaves),))


def _rollouts(sample: Sample) -> tokenpo.Rollouts:
    names = ("mask", "reward", "group", "old_logprob", "rollout_logprob")
    return tokenpo.Rollouts(**{name: torch.tensor(getattr(sample, name)) for name in names})


@pytest.mark.parametrize("name", ["dapo", "grpo"])
def test_what_is_rejected_stays_in_the_denominators_unless_it_leaves(name: str) -> None:
    """Rows are dropped whole: the loss of the rows that stay, over all tokens (rows), or over those that stayed."""
    sample = ragged(0)
    staying, leaving = (run(_rejecting(name, leaves=leaves), sample) for leaves in (False, True))
    x = sample.old_logprob - sample.rollout_logprob
    inside = (x >= np.log(0.99)) & (x <= np.log(1.01))
    kept = sample.mask & inside.all(1, where=sample.mask, keepdims=True)
    count = (lambda mask: mask.sum()) if name == "dapo" else (lambda mask: mask.any(1).sum())
    share = count(sample.mask) / count(kept)
    assert share > 1.2
    np.testing.assert_allclose(leaving.gradient, staying.gradient * share, rtol=1e-12)
    assert leaving.value == pytest.approx(staying.value * share, rel=1e-12)
    np.testing.assert_array_equal(staying.gradient[~kept], 0)


def test_a_learner_takes_what_leaves_out_of_the_denominators() -> None:
    sample = ragged(0)
    objective = _rejecting("dapo", leaves=True)
    rollouts = _rollouts(sample)
    (update,) = tokenpo.Learner(objective, length=9, ratio=None).begin(rollouts).updates()
    policy = tokenpo.Policy(torch.tensor(sample.logprob).requires_grad_())
    _, loss = update.evaluate(policy.rows(update.rows))
    assert loss.value.item() == pytest.approx(run(objective, sample).value, rel=1e-12)
    assert update.totals.tokens == int(objective.counted(rollouts).mask.sum()) < int(rollouts.mask.sum())


def test_what_leaves_is_not_forgotten_in_a_mask() -> None:
    """Totals that counted it would be silently wrong."""
    sample, objective = ragged(0), _rejecting("grpo", leaves=True)
    rollouts = _rollouts(sample)
    batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), tokenpo.Policy(rollouts.old_logprob))
    with pytest.raises(TokenPOError, match=r"leaves the denominators.*objective.counted\(rollouts\)"):
        objective.loss(batch, tokenpo.Totals.of(rollouts))


# The sampler in the place of the old policy ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grpo", "gspo", "tr_grpo", "kl_cov", "gmpo"])
def test_bypass_is_the_method_on_rollouts_whose_old_policy_is_the_sampler(name: str) -> None:
    sample = ragged(0)
    bypass = dataclasses.replace(tokenpo.method(name), bypass=True)
    expected = run(tokenpo.method(name), sample.but(old_logprob=sample.rollout_logprob))
    got = run(bypass, sample)
    assert got.value == expected.value
    np.testing.assert_array_equal(got.gradient, expected.gradient)
    assert "rollout_logprob" in bypass.needs
    assert "bypass      the old policy is the one that sampled" in str(bypass)


# Wrong responses that the policy has left -----------------------------------------------------------------------


def test_off_policy_sequence_mask_by_hand() -> None:
    """Rewards 1, 0, 0 and lp_old − lp = 1, 1, 0.5 on average: of the two far ones only the wrong one is dropped.

    At exactly delta it is not far.
    """
    old = torch.full((3, 2), -1.0, dtype=torch.float64)
    lp = torch.tensor([[-2.0, -2.0], [-3.0, -1.0], [-1.5, -1.5]], dtype=torch.float64)
    rollouts = tokenpo.Rollouts(
        torch.ones(3, 2, dtype=torch.bool), torch.tensor([1.0, 0, 0]), torch.zeros(3, dtype=torch.long), old
    )
    for delta, dropped in ((0.9, 0.0), (1.0, 1.0), (1.1, 1.0)):
        objective = dataclasses.replace(tokenpo.method("grpo"), weights=(Drop(Strayed(delta)),))
        batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), tokenpo.Policy(lp))
        weight = objective.loss(batch, tokenpo.Totals.of(rollouts)).terms["weight"]
        assert weight.tolist() == [[1, 1], [dropped, dropped], [1, 1]]
    assert Strayed(0.5).idle_on_policy and not Strayed(0.5, sampler=True).idle_on_policy
    assert Strayed(0.5, sampler=True).reads == {"rollout_logprob"}


@pytest.mark.parametrize(
    "weight",
    [
        Rejection((OUT, Criterion(Mean(), high=0.01, of=K3()))),
        Rejection((OUT,), leaves=True),
        Drop(Strayed(0.1)),
        Drop(Strayed(0.1, sampler=True)),
        NormalisedWeight(RolloutCorrection(), RolloutMean(RolloutCorrection())),
    ],
)
def test_obeys_the_laws(weight: Weight) -> None:
    tokenpo.check_method(dataclasses.replace(tokenpo.method("grpo"), weights=(weight,)))


def test_long_responses_stay_finite() -> None:
    """400 tokens, each e times likelier than the sampler said, and each e times less likely."""
    sampled = torch.full((2, 400), -3.0, dtype=torch.float64)
    old = sampled + torch.tensor([[1.0], [-1.0]])
    rollouts = tokenpo.Rollouts(
        torch.ones(2, 400, dtype=torch.bool), torch.zeros(2), torch.tensor([0, 0]), old, rollout_logprob=sampled
    )
    batch = tokenpo.Batch(rollouts, tokenpo.Credit(torch.zeros_like(old)), tokenpo.Policy(old))
    weight = RolloutCorrection(sequence=True, cap=1e300).of_batch(batch)
    assert weight[:, 0].tolist() == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-12)


def test_tokens_that_leave_are_not_missed_by_a_number_of_their_response() -> None:
    """Once a token has left, the mean or the product of its response's ratios is another."""
    token, response = Criterion(EachToken(), 0.5, 2.0), Criterion(Mean(), 0.9, 1.1)
    assert Rejection((response, Criterion(Every(), 0.5)), leaves=True) and Rejection((token, token), leaves=True)
    with pytest.raises(TokenPOError, match="criteria of tokens or with criteria of responses, not with both"):
        Rejection((token, response), leaves=True)
    plain, weight = tokenpo.method("dapo"), RolloutCorrection(sequence=True)
    assert dataclasses.replace(plain, weights=(weight, Rejection((response,), leaves=True)))
    for among in ((weight,), (NormalisedWeight(weight, RolloutMean(weight)),)):
        with pytest.raises(TokenPOError, match="a weight of whole responses would lose the tokens that leave"):
            dataclasses.replace(plain, weights=(*among, Rejection((token,), leaves=True)))


@pytest.mark.parametrize("aggregate", [TokenMean(), PromptMean()])
def test_a_mean_is_over_what_has_not_left(aggregate: Aggregate) -> None:
    """Two of the five tokens leave; what the others count for adds up to one."""
    weights = (Rejection((Criterion(high=1.5),), leaves=True),)
    objective = dataclasses.replace(tokenpo.method("dapo"), aggregate=aggregate, weights=weights)
    old = torch.full((2, 3), -3.0, dtype=torch.float64)
    rollouts = tokenpo.Rollouts(
        MASK,
        torch.tensor([1.0, 0.0]),
        torch.tensor([0, 0]),
        old,
        rollout_logprob=old - torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    )
    counted = objective.counted(rollouts)
    assert counted.mask.tolist() == [[True, False, True], [False, True, False]]
    batch = tokenpo.Batch(counted, objective.prepare(rollouts), tokenpo.Policy(old))
    terms = objective.loss(batch, tokenpo.Totals.of(counted)).terms
    assert terms["coefficient"][counted.mask].sum().item() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "distance"),
    [("tv", [0.3, 0.3]), ("binary_kl", [0.8 * np.log(1.6) + 0.2 * np.log(0.4), 0.2 * np.log(0.4) + 0.8 * np.log(1.6)])],
)
def test_distances_of_a_tokens_probabilities(name: str, distance: list[float]) -> None:
    """From 0.8 to 0.5 and from 0.2 to 0.5, of "this token or another"; kept is what is at most the bound."""
    sampled, now, mask = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.5, 0.5]]).log(), torch.ones(1, 2) > 0
    assert criterion("token", name, high=0.0)(now - now, mask, sampled).all(), "equal to the bound"
    for high, kept in [(distance[0] + 1e-6, True), (distance[0] - 1e-6, False)]:
        for over in ("token", "mean", "every"):
            seen = criterion(over, name, high=high)(now - sampled, mask, sampled)
            assert seen.tolist() == [[kept] * 2]
    total = criterion("total", name, high=sum(distance) - 1e-6)(now - sampled, mask, sampled)
    assert not total.any()
