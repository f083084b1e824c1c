"""Overlong penalties by hand."""

from __future__ import annotations

import pytest
import torch

from tokenpo.core.parts import GroupOverlong, SoftOverlong


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


def test_group_overlong_is_capped_at_twice_the_target(rollouts) -> None:
    """Lengths 1, 1, 1, 1, 1, 1, 15: L⁺ = max(8, 3) = 8, 7/8 over. With scale 2: -7/4.

    More than twice L⁺ = max((min + max)/2, mean) is impossible for max itself, since (min + max)/2 > max/2.
    """
    facts = rollouts([1] * 6 + [15], [1.0] * 7, [0] * 7)
    assert GroupOverlong(scale=2.0)(facts).tolist() == pytest.approx([0] * 6 + [-1.75], rel=1e-14)


def test_group_overlong_options(rollouts) -> None:
    """Right means reward > threshold: at threshold 0.5 only rows 0 and 1 are right, accuracy 2/3.

    L⁺ = 2: length 3 is 1/2 over: -1/4. With easy = 0.7 the prompt is hard.
    """
    facts = rollouts([1, 3, 8], [1, 1, 0.5], [0, 0, 0])
    assert GroupOverlong(threshold=0.5)(facts).tolist() == [0, -0.25, 0]
    assert not GroupOverlong(threshold=0.5, easy=0.7)(facts).any()
    assert GroupOverlong(threshold=0.5, easy=2 / 3 - 1e-6)(facts).tolist() == [0, -0.25, 0]


def test_group_overlong_leaves_out_rows_without_tokens(rollouts) -> None:
    """Row 2 has a reward but no token: lengths 1 and 3 are right, L⁺ = 2; and nobody right gives zeros, not NaN."""
    assert GroupOverlong()(rollouts([1, 3, 0], [1, 1, 1], [0, 0, 0])).tolist() == [0, -0.25, 0]
    seen = GroupOverlong()(rollouts([1, 3], [0, 0], [0, 1]))
    assert torch.equal(seen, torch.zeros(2, dtype=torch.float64))
