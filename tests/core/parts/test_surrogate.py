"""Surrogates and what stands around them, by hand; what the oracles of the methods reach is theirs."""

import dataclasses
import math
from dataclasses import dataclass

import pytest
import torch

import tokenpo
from tokenpo import Batch, Objective, Policy, Rollouts, Totals, check_method
from tokenpo.core.parts import Aggregate, HighInResponse, Unclipped
from tokenpo.core.parts.credit import GroupAdvantage, GroupOverlong, SoftOverlong
from tokenpo.core.parts.entropy import CurrentEntropyQuantile, HighInBatch, OldEntropyQuantile
from tokenpo.core.parts.loss import PerGroupToken, PromptMean, TokenMean, TokenSum
from tokenpo.core.parts.part import BatchSignal, Signal
from tokenpo.core.parts.surrogate import DetachedClip, FixedBounds, Region, SelectedBounds, TokenRatio
from tokenpo.core.parts.weights import Keep, NormalisedWeight, RowNormalised


def _slope(ratio, step) -> list[float]:
    """d/dlp of the sum of the ratio over the tokens, each token of row 0 counted once."""
    (gradient,) = torch.autograd.grad(torch.where(step.mask, ratio, 0).sum(), step.policy.logprob)
    return gradient[step.mask].tolist()


def test_ratios_are_bounded(batch) -> None:
    """e^±30 is held at e^±20, without gradient."""
    step = batch([[torch.e**30, torch.e**-30]], [1.0], old=1e-20)
    seen = TokenRatio()(step)
    assert seen.log()[0].tolist() == pytest.approx([20, -20], rel=1e-14)
    assert _slope(seen, step) == [0, 0]


RATIOS = [[0.5, 1.0, 1.5], [0.5, 1.0, 1.5, 5.0]]
A = [2.0, -3.0]


def _gradient(trust, batch) -> list[float]:
    kept = torch.where(batch.mask, trust.value, 0).sum()
    (gradient,) = torch.autograd.grad(kept, batch.policy.logprob)
    return gradient.flatten().tolist()


@dataclass(frozen=True)
class NotFirst(Region):
    """Lets every token in but the first of a response."""

    def __call__(self, batch):
        return (torch.arange(batch.mask.shape[1]) > 0).expand(batch.mask.shape)


def test_a_region_cuts_tokens_off(batch) -> None:
    step = batch(RATIOS, [2.0, 0.0])
    trust = DetachedClip(FixedBounds(0.25, 0.25), region=NotFirst())(step)
    assert _gradient(trust, step) == pytest.approx([0, 2, 2.5, 0, 0, 0, 0, 0], rel=1e-14)
    assert trust.clipped.tolist() == [[True, False, False, False], [False] * 4]  # without advantage nothing is cut


@pytest.mark.parametrize("most", [0.5, math.inf])
def test_selected_bounds(most: float, batch) -> None:
    """Also where the selected ones have no bound above."""
    step = batch(RATIOS, A, old_entropy=[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    lower, upper = SelectedBounds(HighInResponse(0.5), FixedBounds(0.5, most), FixedBounds(0.25, 0.25))(step)
    high = [[False, False, True, False], [False, False, False, True]]  # above the second of three, the third of four
    assert lower.tolist() == [[0.5 if h else 0.75 for h in row] for row in high]
    assert upper.tolist() == [[1 + most if h else 1.25 for h in row] for row in high]


def test_token_sum_grows_with_the_batch() -> None:
    assert TokenSum()(torch.ones(3, 4, dtype=torch.bool), Totals(tokens=20, sequences=4, length=8)) == 1


def test_prompt_mean() -> None:
    """Two groups of two responses with 5 and 2 tokens: 1 / (2 · 5) and 1 / (2 · 2) for a step of both prompts; a step
    of the first alone gives 1 / 5, and one of its responses, half a prompt, 2 / 5. A row without tokens is in no
    group."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    reward, group = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([4, 4, 7, 7])
    rollouts = Rollouts(mask, reward, group, torch.full(mask.shape, -1.0))
    # three responses of two prompts: 3/2 of each
    share = PerGroupToken()(rollouts)
    torch.testing.assert_close(share[:3, 0], torch.tensor([1.5 / 5, 1.5 / 5, 1.5], dtype=torch.float64))
    alone = PerGroupToken()(dataclasses.replace(rollouts, group=torch.tensor([4, 4, 7, 9])))
    assert torch.equal(alone[:3], share[:3]) and alone.isfinite().all()
    objective = dataclasses.replace(tokenpo.method("grpo"), aggregate=PromptMean())
    even = Rollouts(mask[[0, 1, 2, 2]], reward, group, torch.full(mask.shape, -1.0))
    credit = objective.prepare(even)
    for rows, prompts in ((slice(0, 4), 2), (slice(0, 2), 1), (slice(0, 1), 0.5)):
        step = even.rows(rows)
        batch = Batch(step, credit.rows(rows), Policy(step.old_logprob))
        coefficient = objective.loss(batch, Totals.of(step)).terms["coefficient"]
        wanted = step.mask / torch.tensor([5.0, 5.0, 2.0, 2.0])[rows, None] / prompts
        torch.testing.assert_close(coefficient, wanted)
        assert float(coefficient.sum()) == pytest.approx(1 if prompts >= 1 else 4 * 2 / 5)


@pytest.mark.parametrize("aggregate", [PromptMean(), TokenSum()])
def test_the_laws_hold(aggregate: Aggregate) -> None:
    check_method(dataclasses.replace(tokenpo.method("grpo"), name="mine", aggregate=aggregate))


def test_soft_overlong_by_hand(rollouts) -> None:
    """L_max 10, cache 4: free up to 6, then a quarter a token: 7 → -1/4, 9 → -3/4, 10 → -1, 12 → -1; no tokens, 0."""
    facts = rollouts([0, 1, 6, 7, 9, 10, 12], [1.0] * 7, [0] * 7)
    assert SoftOverlong(10, 4)(facts).tolist() == [0, 0, 0, -0.25, -0.75, -1, -1]


def test_group_overlong_by_hand(rollouts) -> None:
    """Group 5: lengths 2, 2, 8, 4 right and 9 wrong, accuracy 4/5.

    L⁺ = max((2 + 8)/2, 16/4) = 5: 8 is 3/5 over, -0.5 · 3/5 = -0.3; the others are within. Wrong 9 pays nothing.
    Group 2: lengths 1, 6, 6 right: L⁺ = max(3.5, 13/3) = 13/3: 6 is (5/3)/(13/3) = 5/13 over: -5/26 twice.
    """
    facts = rollouts([2, 2, 8, 4, 9, 1, 6, 6], [1, 1, 1, 1, 0, 1, 1, 1], [5, 5, 5, 5, 5, 2, 2, 2])
    expected = [0, 0, -0.3, 0, 0, 0, -5 / 26, -5 / 26]
    assert GroupOverlong()(facts).tolist() == pytest.approx(expected, rel=1e-14)


def test_group_overlong_options(rollouts) -> None:
    """Right means reward > threshold: at threshold 0.5 only rows 0 and 1 are right, accuracy 2/3.

    L⁺ = 2: length 3 is 1/2 over: -1/4. With easy = 0.7 the prompt is hard.
    """
    facts = rollouts([1, 3, 8], [1, 1, 0.5], [0, 0, 0])
    assert GroupOverlong(threshold=0.5)(facts).tolist() == [0, -0.25, 0]
    assert not GroupOverlong(threshold=0.5, easy=0.7)(facts).any()
    assert GroupOverlong(threshold=0.5, easy=2 / 3 - 1e-6)(facts).tolist() == [0, -0.25, 0]
    half = rollouts([1, 3, 8, 8], [1, 1, 0, 0], [0] * 4)
    assert GroupOverlong(easy=0.5)(half).tolist() == [0, -0.25, 0, 0]  # exactly as easy as it must be


def test_group_overlong_leaves_out_rows_without_tokens(rollouts) -> None:
    """Row 2 has a reward but no token: lengths 1 and 3 are right, L⁺ = 2; and nobody right gives zeros, not NaN."""
    assert GroupOverlong()(rollouts([1, 3, 0], [1, 1, 1], [0, 0, 0])).tolist() == [0, -0.25, 0]
    seen = GroupOverlong()(rollouts([1, 3], [0, 0], [0, 1]))
    assert torch.equal(seen, torch.zeros(2, dtype=torch.float64))


ONES = [[1.0] * 4, [1.0] * 3]
ENTROPY = [[0.4, 0.1, 0.3, 0.2], [9.0, 8.0, 7.0]]
OTHER = [[0.1, 0.2, 0.3, 0.4], [7.0, 8.0, 9.0]]


@dataclass(frozen=True)
class Marked(Signal):
    """Marks the first tokens, by another number than 1."""

    def __call__(self, rollouts):
        return 3.0 * (torch.arange(rollouts.mask.shape[1]) == 0).expand(rollouts.mask.shape)


@dataclass(frozen=True)
class CurrentlyAbove(BatchSignal):
    """Marks the tokens above a mean that another signal holds."""

    mean: CurrentEntropyQuantile

    def __call__(self, batch, trust, generator):
        return (batch.policy.entropy > batch.signal(self.mean)).double()


def test_response_quantile_is_each_rows_own_and_strict(batch) -> None:
    """Rank round(0.6 · 3) = 2 of four: above 0.3. Rank round(0.6 · 2) = 1 of three: above 8. Padding is never high."""
    step = batch(ONES, [1.0, 1.0], old_entropy=ENTROPY, entropy=OTHER)
    assert HighInResponse(0.6)(step).tolist() == [[True, False, False, False], [True, False, False, False]]
    assert HighInResponse(0.6, current=True)(step).tolist() == [
        [False, False, False, True],
        [False, False, True, False],
    ]
    assert HighInResponse(0.6).reads == {"old_entropy"} and HighInResponse(0.6, current=True).reads == {"entropy"}
    padded = batch([[1.0], [1.0, 1.0]], [1.0, 1.0], old_entropy=[[0.0], [0.0, 0.0]])
    assert not HighInResponse(0.0)(padded).any()


def test_batch_quantile_includes_ties(batch) -> None:
    """Rank round(0.8 · 6) = 5 of seven: from 8 on."""
    step = batch(ONES, [1.0, 1.0], old_entropy=ENTROPY, entropy=OTHER)
    old, current = OldEntropyQuantile(0.8), CurrentEntropyQuantile(0.8)
    seen = step.with_signal(old, old(step.rollouts)).with_signal(current, current(step, None, None))
    assert HighInBatch(old)(seen).tolist() == [[False] * 4, [True, True, False, False]]
    assert HighInBatch(current)(seen).tolist() == [[False] * 4, [False, True, True, False]]


def test_denominators_shrink(batch) -> None:
    """Two of seven tokens are kept: over the step each weighs 7/2; one of four and one of three: 4 and 3."""
    step = batch(ONES, [1.0, 1.0])
    step = step.with_signal(Marked(), Marked()(step.rollouts))
    weight = NormalisedWeight.of(Keep(Marked()))
    seen = step.with_signal(weight.mean, weight.mean(step, None, None))
    assert weight.of_batch(seen)[:, 0].tolist() == pytest.approx([3.5, 3.5], rel=1e-15)
    assert RowNormalised(Keep(Marked())).of_batch(step)[:, 0].tolist() == pytest.approx([4, 3], rel=1e-15)
    assert not weight.of_batch(seen)[:, 1:].any()


def test_signals_may_hold_signals(batch) -> None:
    """The mean of a weight over a signal over a signal: each is observed after those it holds."""
    step = batch(ONES, [1.0, -1.0], entropy=OTHER)
    weight = NormalisedWeight.of(Keep(CurrentlyAbove(CurrentEntropyQuantile(0.5))))
    objective = Objective(GroupAdvantage(), Unclipped(), TokenMean(), weights=(weight,), name="nested")
    loss = objective.loss(objective.observe(step), Totals.of(step.rollouts))
    assert loss.terms["weight"][1, :3].tolist() == pytest.approx([7 / 3] * 3, rel=1e-15)  # above 0.4: three of seven


def test_group_overlong_is_capped_at_twice_the_target(rollouts) -> None:
    """Lengths 1, 1, 1, 1, 1, 1, 15: L⁺ = max(8, 3) = 8, 7/8 over. With scale 2: -7/4.

    More than twice L⁺ = max((min + max)/2, mean) is impossible for max itself, since (min + max)/2 > max/2.
    """
    facts = rollouts([1] * 6 + [15], [1.0] * 7, [0] * 7)
    assert GroupOverlong(scale=2.0)(facts).tolist() == pytest.approx([0] * 6 + [-1.75], rel=1e-14)
