"""Methods of the shelf: Owen values against the mean over all orders, and drafts."""

import itertools
import random

import pytest
import torch

from tokenpo.core.parts import GroupAdvantage
from tokenpo.core.types import Rollouts
from tokenpo.methods.contrib.credit import Coalitions, Drafts, SegmentShare, owen_weights


def test_the_second_prompt_of_text_and_of_messages() -> None:
    """What a draft says is not read as a template; the last message alone changes, and the first prompt stays."""
    drafts = Drafts(2, "{prompt}|{draft}|{prompt}")
    assert drafts.prompt("a{draft}", "b{prompt}") == "a{draft}|b{prompt}|a{draft}"
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "a", "name": "n"}]
    assert drafts.prompt(chat, "b") == [chat[0], {"role": "user", "content": "a|b|a", "name": "n"}]
    assert chat[1]["content"] == "a"
    assert Drafts().prompt("1+1=", "3").startswith("1+1=\n\nA draft of an answer:\n3\n")


SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (3, 2), (4, 2), (5, 2), (5, 3), (4, 4)]


def _orders(count: int, union: int) -> list[list[int]]:
    """Every order of the players that keeps each union together."""
    unions = [range(first, min(first + union, count)) for first in range(0, count, union)]
    return [
        [player for one in inside for player in one]
        for outside in itertools.permutations(unions)
        for inside in itertools.product(*map(itertools.permutations, outside))
    ]


def _by_orders(value, count: int, union: int) -> list[float]:
    orders, worth = _orders(count, union), [0.0] * count
    for order in orders:
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            worth[player] += (value(before | {player}) - value(before)) / len(orders)
    return worth


def _facts(*rows: list[int], reward: list[float] | None = None, group: list[int] | None = None, **more) -> Rollouts:
    width = max(map(len, rows))
    mask = torch.arange(width) < torch.tensor([[len(row)] for row in rows])
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    given = torch.tensor(reward or [0.0] * len(rows), dtype=torch.float64)
    group = torch.tensor(group or [0] * len(rows))
    old = torch.full(mask.shape, -1.0, dtype=torch.float64)
    return Rollouts.of({"mask": mask, "reward": given, "group": group, "old_logprob": old, "token_ids": ids} | more)


@pytest.mark.parametrize(("count", "union"), SHAPES)
def test_the_weights_are_the_mean_over_the_orders(count: int, union: int) -> None:
    draws = random.Random(count)
    table = [draws.uniform(-1, 1) for _ in range(2**count)]
    expected = _by_orders(lambda members: table[sum(1 << x for x in members)], count, union)
    found = torch.tensor(table, dtype=torch.float64) @ owen_weights(count, union)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert float(found.sum()) == pytest.approx(table[-1] - table[0], abs=1e-12)  # efficiency


def test_owen_by_hand() -> None:
    """Unions {0, 1} and {2}, v({0, 1}) = 2, v({0, 2}) = 3, v({1, 2}) = 1, v(all) = 5, else 0. Of 012, 102, 201, 210
    segment 0 adds 0, 2, 3, 4, segment 1 adds 2, 0, 2, 1, segment 2 adds 3, 3, 0, 0. Shapley's value has six."""
    table = torch.tensor([0, 0, 0, 2, 0, 3, 1, 5.0], dtype=torch.float64)
    assert (table @ owen_weights(3, 2)).tolist() == [2.25, 1.25, 1.5]
    torch.testing.assert_close(6 * table @ owen_weights(3, 1), torch.tensor([13.0, 7, 10], dtype=torch.float64))
    torch.testing.assert_close(owen_weights(3, 3), owen_weights(3, 1))


def test_unions_spare_parts() -> None:
    """Four segments in pairs: at most one pair is split, so 1, 2, 1 and 2 of the sixteen sets are not scored."""
    assert int(owen_weights(4, 2).any(1).sum()) == 12
    assert int(owen_weights(4, 1).any(1).sum()) == 16


def _scored(facts: Rollouts, plan: Coalitions, value) -> tuple[torch.Tensor, list[tuple[int, list[int]]]]:
    asked: list[tuple[int, list[int]]] = []

    def score(parts):
        asked.extend(parts)
        return [value(ids) for _, ids in parts]

    return plan.gain(facts, score), asked


def test_a_sum_gives_each_segment_its_own_and_parts_of_a_group_are_scored_once() -> None:
    facts = _facts([1, 2, 3, 4], [1, 2, 7], [1, 2, 7], reward=[10, 10, 10], group=[0, 0, 1])
    gain, asked = _scored(facts, Coalitions(2), sum)
    assert gain.tolist() == [[3, 3, 7, 7], [3, 3, 7, 0], [3, 3, 7, 0]]
    assert asked == [(0, []), (0, [1, 2]), (0, [3, 4]), (1, [7]), (2, []), (2, [1, 2]), (2, [7])]


def test_symmetric_segments_are_worth_the_same_and_a_null_one_nothing() -> None:
    """Token 1 counts where token 2 is there, too; token 9 never does."""
    facts = _facts([1, 9, 2, 9], reward=[1.0])
    gain, _ = _scored(facts, Coalitions(4), lambda ids: float({1, 2} <= set(ids)))
    torch.testing.assert_close(gain, torch.tensor([[0.5, 0, 0.5, 0]], dtype=torch.float64))


def test_segments_are_of_whole_units_and_carry_a_tools_tokens() -> None:
    """Lines end with 0; the tool's token 5 goes with the token before it, and is in the parts."""
    facts = _facts([1, 0, 2, 2, 0, 5, 3], mask=torch.tensor([[True, True, True, True, True, False, True]]))
    plan = Coalitions(2, separator=0)
    assert plan.segment(facts).tolist() == [[0, 0, 0, 0, 0, 1, 1]]
    assert Coalitions(9, separator=0).segment(facts)[0, [0, 1, 2, 4, 6]].tolist() == [0, 0, 1, 1, 2]
    assert Coalitions(3).segment(_facts([1] * 5, [1])).tolist() == [[0, 0, 1, 1, 2], [0, 0, 0, 0, 0]]
    gain, asked = _scored(_facts([1, 1], [], group=[0, 1]), Coalitions(2), len)
    assert gain.tolist() == [[0, 0], [0, 0]] and asked == [(0, []), (0, [1])]
    facts = _facts([1, 5, 3], mask=torch.tensor([[True, False, True]]))
    assert _scored(facts, Coalitions(2), len)[1] == [(0, []), (0, [1, 5]), (0, [3])]


@pytest.mark.parametrize(
    ("ids", "mask", "segment", "reward", "gain"),
    [
        ([1, 0, 3], [True, False, True], [0, 0, 0], 4.0, [4, 0, 4]),  # a tool's separator ends no unit
        ([1, 0, 5], [True, True, False], [0, 0, 0], 1.0, [1, 1, 0]),  # nor does what it says at the end begin one
        ([1, 0, 5, 3], [True, True, False, True], [0, 0, 1, 1], 9.0, [1, 1, 0, 8]),
    ],
)
def test_units_are_those_of_the_response(ids: list, mask: list, segment: list, reward: float, gain: list) -> None:
    """Each segment of a sum gets that of its own tokens, with as many segments as there are units and with more."""
    facts = _facts(ids, mask=torch.tensor([mask]), reward=[reward])
    for segments in (max(segment) + 1, 3):
        plan = Coalitions(segments, separator=0)
        assert plan.segment(facts).tolist() == [segment]
        assert _scored(facts, plan, sum)[0].tolist() == [gain]


def test_without_the_deviation_a_share_is_in_units_of_the_reward() -> None:
    """A = ±1/2. Gains 3/4, 1/4 and 1/4, -1/4: 2 φ less their sum is ±1/2 in both, doubled ±1."""
    facts = _facts([1, 2], [3, 4], reward=[1, 0], gain=torch.tensor([[0.75, 0.25], [0.25, -0.25]]).double())
    got = SegmentShare(Coalitions(2), 2.0, GroupAdvantage(std=False))(facts, torch.zeros(2))
    assert got.tolist() == [[1.5, -0.5], [0.5, -1.5]]


def test_the_mean_over_the_segments_is_the_advantage_of_the_response() -> None:
    facts = _facts([1, 2, 3, 4, 5], [6], [7, 8, 9], reward=[1, 0, 0.5], gain=torch.randn(3, 5, dtype=torch.float64))
    plan = Coalitions(3)
    segment, bonus = plan.segment(facts), torch.tensor([0.0, 0.2, 0.1])
    plain = SegmentShare(plan, 0.0)(facts, bonus)
    got = SegmentShare(plan, 1.7)(facts, bonus)
    for row in range(3):
        on = facts.mask[row]
        pieces = [got[row, on & (segment[row] == k)].mean() for k in segment[row, on].unique()]
        torch.testing.assert_close(torch.stack(pieces).mean(), plain[row, 0])
    assert (got - plain).abs().max() > 0.1


def test_a_bonus_is_part_of_the_reward() -> None:
    facts, bonus = _facts([1, 2], [6], [7], reward=[1, 0, 0.5], gain=torch.zeros(3, 2).double()), torch.rand(3)
    assert torch.equal(SegmentShare(Coalitions(3))(facts, bonus), GroupAdvantage()(facts, bonus))
