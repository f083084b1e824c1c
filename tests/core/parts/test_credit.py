"""Credit by hand: the group advantage, exact zeros where nothing can be learnt, and gains of segments.

Signals and declarations of parts.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import tokenpo
from timing import peak_bytes
from tokenpo.base.errors import TokenPOError
from tokenpo.core.ops.turns import gains
from tokenpo.core.parts import EntropyBonus, GroupAdvantage, RelativeAdvantage, SegmentGain, SoftOverlong
from tokenpo.core.parts.correction import Criterion, Mean, Rejection, RolloutCorrection
from tokenpo.core.parts.credit import BehindToken, Continuations, EqualEntropy, EveryTokens, Improbable, ShrunkAdvantage
from tokenpo.core.parts.part import CreditStage, Part, walk
from tokenpo.core.parts.surrogate import Clip, FixedBounds
from tokenpo.core.parts.weights import Sigmoid
from tokenpo.core.types import Rollouts


def _advantage(stage: CreditStage, rollouts, bonus: list[float] | None = None) -> list[float]:
    extra = torch.zeros_like(rollouts.reward) if bonus is None else torch.tensor(bonus, dtype=rollouts.reward.dtype)
    seen = stage(rollouts, extra)
    assert seen.shape == rollouts.mask.shape
    assert (seen == seen[:, :1]).all()
    return seen[:, 0].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "stage",
    [
        GroupAdvantage(), GroupAdvantage(std=False), GroupAdvantage(eps=0.0), ShrunkAdvantage(eps=0.0),
        RelativeAdvantage("batch", "batch", eps=0.0), RelativeAdvantage("group", "batch", leave_one_out=True, eps=0.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e8 / 3, -0.7])
def test_equal_rewards_give_exactly_zero(rollouts, dtype: torch.dtype, stage: CreditStage, reward: float) -> None:
    """Seven times 0.1 does not average to 0.1 in floating point; the advantage is 0 all the same, and not 0 / 0."""
    facts = rollouts([2] * 7, [reward] * 7, [3] * 7, dtype)
    assert _advantage(stage, facts) == [0.0] * 7


REWARDS, GROUPS = [3.0, 1.0, 2.0, 2.0, 7.0], [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        # AReaL's `Normalization` (areal/utils/data.py at cbff54d), eps 1e-5: left are 1, -1, 0, 0, 0, over sqrt(2 / 4)
        (RelativeAdvantage("group", "batch", centred=True, eps=1e-5), np.array([1, -1, 0, 0, 0]) / (0.5**0.5 + 1e-5)),
        # its mean of the batch, leaving one out: 3 - 12/4, 1 - 14/4, 2 - 13/4 twice, 7 - 8/4
        (RelativeAdvantage("batch", "none", leave_one_out=True), [0, -2.5, -1.25, -1.25, 5]),
        (RelativeAdvantage("group", "none", leave_one_out=True), [2, -2, 0, 0, 0]),
        # rLLM's `reinforce_plus_plus_baseline` (at 9beb6e0): sqrt(2 / 5), ddof 0
        (RelativeAdvantage(std="batch", centred=True, population=True), np.array([1, -1, 0, 0, 0]) / (0.4**0.5 + 1e-6)),
        # ms-swift's and TRL's "batch": the deviation of 3, 1, 2, 2, 7 about 3 is sqrt(22 / 4)
        (RelativeAdvantage(std="batch", eps=1e-4), np.array([1, -1, 0, 0, 0]) / (5.5**0.5 + 1e-4)),
        # OpenRLHF's `reinforce` without `std_norm`: the batch's mean alone
        (RelativeAdvantage("batch", "none"), [0, -2, -1, -1, 4]),
        (RelativeAdvantage("batch", "batch"), np.array([0, -2, -1, -1, 4]) / (5.5**0.5 + 1e-6)),
        # no mean: the deviations of the groups are sqrt 2, 0, 0
        (RelativeAdvantage("none", "group"), np.array([3, 1, 0, 0, 0]) / (2**0.5 + 1e-6)),
        (RelativeAdvantage("none", "none"), REWARDS),
    ],
)
def test_relative_advantage(rollouts, stage: CreditStage, expected: list[float]) -> None:
    facts = rollouts([1, 2, 1, 3, 1, 0], [*REWARDS, 100.0], [*GROUPS, 0])  # the last has no token and counts nowhere
    assert _advantage(stage, facts) == pytest.approx([*expected, 0], rel=1e-13, abs=1e-14)
    assert stage.across_groups == ("batch" in (stage.mean, stage.std))


def test_rows_without_tokens_are_in_no_group(rollouts) -> None:
    """Row 2 has reward 100 but no token: the group is 1 and 0, mean 1/2, deviation sqrt(1/2). It gets 0 itself."""
    a = 0.5 / (0.5**0.5 + 1e-6)
    seen = _advantage(GroupAdvantage(), rollouts([1, 2, 0], [1, 0, 100], [4, 4, 4]))
    assert seen == pytest.approx([a, -a, 0], rel=1e-14)


def _in_groups(rows: int, size: int) -> tokenpo.Rollouts:
    """Groups of right and wrong responses of 64 tokens at most, in no order."""
    g = torch.Generator().manual_seed(1)
    mask = torch.arange(64) < torch.randint(1, 65, (rows, 1), generator=g)
    reward = (torch.rand(rows, generator=g) < 0.5).float()
    group = 7 * (torch.arange(rows) // size)[torch.randperm(rows, generator=g)]
    tables = -torch.rand(2, rows, 64, generator=g)
    return tokenpo.Rollouts(mask, reward, group, tables[0], old_entropy=-tables[1])


@pytest.mark.parametrize("size", [1, 3, 5, 24])  # by five, the last group has four
def test_by_group_is_the_same_at_once(size: int) -> None:
    rollouts = _in_groups(24, size)
    stage, bonus = tokenpo.method("gtpo").credit, torch.zeros(24)
    seen = stage(rollouts, bonus)
    assert torch.equal(seen, stage.of(rollouts, bonus).to(seen.dtype))
    assert seen.any() or size == 1


def test_memory_by_group() -> None:
    """Held at once are the credit, what masks it, and one group's tensors: at once gtpo makes more than ten."""
    rollouts = _in_groups(512, 8)
    size = 4 * rollouts.mask.numel()
    assert peak_bytes(lambda: tokenpo.method("gtpo", scope="batch").prepare(rollouts)) / size > 10
    assert peak_bytes(lambda: tokenpo.method("gtpo").prepare(rollouts)) / size < 4


def facts(lengths: list[int], reward: list[float] | None = None, **fields: list[list[float]]) -> Rollouts:
    """One group; what is not given is 0, log-probabilities -1."""
    n, width = len(lengths), max(lengths)
    given = {"old_logprob": [[-1.0] * width] * n, **fields}
    tensors = {k: torch.tensor(x, dtype=torch.long if k == "token_ids" else torch.float64) for k, x in given.items()}
    tensors |= {
        "mask": torch.arange(width) < torch.tensor(lengths)[:, None],
        "reward": torch.tensor(reward or [0.0] * n, dtype=torch.float64),
        "group": torch.zeros(n, dtype=torch.long),
    }
    return Rollouts.of(tensors)


def places(part, rollouts: Rollouts) -> list[list[int]]:
    return [row.nonzero()[:, 0].tolist() for row in Continuations(part, 1).at(rollouts)]


def test_every_tokens() -> None:
    assert places(EveryTokens(3), facts([7, 4])) == [[0, 3, 6], [0, 3]]


def test_behind_a_token() -> None:
    """At the first token and behind each 9; a 9 at the end has nothing behind it."""
    assert places(BehindToken(9), facts([5, 3], token_ids=[[1, 9, 2, 2, 9], [9, 9, 9, 0, 0]])) == [[0, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("interval", "below", "expected"),
    [
        (1, 0.5, [1, 2, 4, 5, 6]),
        (2, 0.5, [1, 4, 6]),
        (3, 0.5, [1, 5]),
        (1, 1.0, [0, 1, 2, 4, 5, 6]),  # not a token of probability 1
    ],
)
def test_improbable(interval: int, below: float, expected: list[int]) -> None:
    """Probabilities below 1/2 stand at 1, 2, 4, 5, 6."""
    logp = [[-0.1, -1.0, -1.0, 0.0, -1.0, -1.0, -1.0, 0.0]]
    assert places(Improbable(interval, below), facts([8], old_logprob=logp)) == [expected]


def test_equal_entropy() -> None:
    """Entropies 1, 0, 0, 1, 2, 0: of 4 lie 0, 1, 1, 1, 2, 4 before the tokens. One cut at 2, before token 4; three at
    1, 2 and 3: before token 1, token 4 and token 5, where 4 of 4 are past the third mark as well."""
    entropy = [[1.0, 0.0, 0.0, 1.0, 2.0, 0.0]]
    assert places(EqualEntropy(1), facts([6], old_entropy=entropy)) == [[4]]
    assert places(EqualEntropy(3), facts([6], old_entropy=entropy)) == [[1, 4, 5]]


def test_equal_pieces_of_a_small_entropy() -> None:
    """A quarter of eight equal entropies is two of them, although float32 would add up to less at every second mark."""
    rollouts = dataclasses.replace(facts([8]), old_entropy=torch.full((1, 8), 0.05))
    assert places(EqualEntropy(3), rollouts) == [[2, 4, 6]]


def test_an_entropy_rounded_below_zero_counts_as_none() -> None:
    """Of 1, 1, 0, 0, 1 half is past from the third token on; of 1, 1, -1/2, -1/2, 1 it would be from the second."""
    assert places(EqualEntropy(1), facts([5], old_entropy=[[1.0, 1.0, -0.5, -0.5, 1.0]])) == [[2]]


def test_only_groups_that_differ() -> None:
    same, other = facts([2, 2], [1, 1]), facts([2, 2], [1, 0])
    plan = Continuations(EveryTokens(2), 1, mixed=True)
    assert not plan.at(same).any()
    assert plan.at(other).tolist() == [[True, False]] * 2


def test_gains_by_hand() -> None:
    """Values 0.2 before token 0, 0.6 before token 2, reward 1: 0.4 and 0.4. Without a cut at the first token and with
    no value of the prompt, the first segment has none."""
    value = torch.tensor([[0.2, 0.0, 0.6]])
    first = gains(value > 0, value, value, torch.tensor([1.0]), None)
    torch.testing.assert_close(first, torch.tensor([[0.4, 0.4, 0.4]], dtype=torch.float64), rtol=1e-7, atol=0)
    cuts = torch.tensor([[False, False, True]])
    torch.testing.assert_close(gains(cuts, value, value, torch.tensor([1.0]), None)[0, :2], torch.zeros(2).double())


def test_segments_add_up_to_the_reward_less_the_value_of_the_prompt() -> None:
    """One token a segment: Σ_t gain = R - V(start), whatever the values between."""
    value = torch.rand(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reward, start = torch.rand(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cuts = torch.arange(8).expand(5, 8) > 0
    torch.testing.assert_close(gains(cuts, value, value, reward, start).sum(1), reward - start, rtol=1e-12, atol=1e-15)


def test_own_reward_and_lean_by_hand() -> None:
    """Rewards 1, 0, 0 of a group: others' means 0, 1/2, 1/2. Three continuations at token 1, of which 1/3 are right.

    Up to the cut of the first response (3·1/3 + 1)/4 = 1/2 less 0. From there (3·1/3 + 2·0)/5 = 1/5: 1 - 1/5. Of the
    second (1 + 0)/4 = 1/4 less 1/2; (1 + 2·1/2)/5 = 2/5: 0 - 2/5.
    """
    rollouts = facts([2, 2, 2], [1, 0, 0])
    plan = Continuations(EqualEntropy(1), 3, start=True, own=True, lean=2.0)
    cuts = torch.tensor([[False, True]] * 3)
    got = plan.gain(rollouts, cuts, torch.full((3, 2), 1 / 3))
    expected = torch.tensor([[0.5, 0.8], [-0.25, -0.4], [-0.25, -0.4]], dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-7, atol=0)


def test_the_value_of_a_prompt_is_of_its_own_group() -> None:
    """Others' means 0 and 1 in one group, 1 and 1 in the other; the value at token 1 is 1/2."""
    rollouts = dataclasses.replace(facts([2] * 4, [1, 0, 1, 1]), group=torch.tensor([0, 0, 1, 1]))
    got = Continuations(EveryTokens(1), 1, start=True).gain(
        rollouts, torch.tensor([[False, True]] * 4), torch.full((4, 2), 0.5)
    )
    assert got.tolist() == [[0.5, 0.5], [-0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5]]


def test_a_bonus_goes_to_every_token_of_the_response() -> None:
    """Gains 0.5 and -0.5, bonuses 1 and 0."""
    rollouts = facts([2, 2], [1, 0], gain=[[0.5, 0.5], [-0.5, -0.5]])
    got = SegmentGain(Continuations(EveryTokens(2), 1))(rollouts, torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert got.tolist() == [[1.5, 1.5], [-0.5, -0.5]]


@dataclass(frozen=True)
class Leaf(Part):
    n: int


@dataclass(frozen=True)
class Plain:
    inner: Leaf


@dataclass(frozen=True)
class Branch(Part):
    one: Leaf
    many: tuple[Leaf, ...]
    plain: Plain
    number: float = 1.0
    kind: type = Plain


def test_walk_inner_first_gives_a_part_after_those_it_holds() -> None:
    """Siblings keep their order: a signal of the surrogate comes before those of the weights."""
    branch = Branch(Leaf(1), (Leaf(2), Leaf(3)), Plain(Leaf(4)))
    assert list(walk(branch)) == [branch, Leaf(1), Leaf(2), Leaf(3), Leaf(4)]
    assert list(walk((branch, Leaf(5)), inner_first=True)) == [Leaf(1), Leaf(2), Leaf(3), Leaf(4), branch, Leaf(5)]


BOUNDS = FixedBounds(0.2, 0.2)
REFUSED: list[tuple[Callable[[], object], str]] = [
    # one number of each: where a range ends is in tests/core/test_types.py
    (lambda: Sigmoid(2.0, 9.0, 0.2, 1.5, 1.0),
     "Sigmoid: upper is 1.0, expected a finite number >= 1.5, the smallest weight"),
    (lambda: SoftOverlong(10, 11), "SoftOverlong: cache is 11, expected a whole number in 1..10, the length"),
    (lambda: RolloutCorrection(geometric=True),
     "RolloutCorrection: a geometric mean is that of a response: set sequence=True with it"),
    (lambda: Criterion(Mean(), 2.0, 1.0), "Criterion: high is 1.0, expected a number >= 2.0, the lower bound"),
    (lambda: Rejection((Criterion(),), current=True, leaves=True),
     "Rejection: denominators are counted before the policy moves: leaves=True goes with current=False"),
    # a part holds parts of their own kind
    (lambda: Clip(0.2), "Clip: bounds is 0.2, expected a value of type Bounds"),
    (lambda: EntropyBonus("low"),
     "EntropyBonus: coef is 'low', expected a finite number, or a value of type MemorySignal"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_field_outside_its_range_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TokenPOError) as caught:
        make()
    assert str(caught.value) == message
