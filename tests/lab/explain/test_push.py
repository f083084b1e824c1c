"""One method on recorded rollouts: against every oracle, against closed forms, and what it refuses.

Shares and cosines by hand.
"""

import math

import numpy as np
import pytest
import torch

import tokenpo
from method_kinds import of_each_kind
from oracle_support import ragged, score
from tokenpo.lab.explain.explanation import TokenKinds, cosine, explain_all, of_tokens, push_of, shares, to_json
from tokenpo.records import read
from tokenpo.train.recipe.command_line import parse_entries
from written_rollouts import FOUR, lines_of, write

# What they draw at random, or remember, goes to their oracles by another way: tests/methods. gkd pushes no token.
PLAIN = [
    name for name in of_each_kind() if name not in ("clip_cov", "s_grpo", "ha_dw", "skywork_entropy", "aer", "gkd")
]


@pytest.mark.parametrize("name", PLAIN)
def test_push_is_the_oracles_gradient_times_minus_the_tokens(name, tmp_path):
    """−M ∂L/∂lp, where ∂L/∂lp stands in tests/oracles, derived by hand."""
    sample = ragged(3)
    result = push_of(name, tokenpo.method(name), read(write(tmp_path / "r.jsonl", lines_of(sample))))
    expected = -sample.mask.sum() * score(name, sample).gradient
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(result.push.numpy(), expected, rtol=1e-10, atol=1e-13)
    assert not result.push[~torch.tensor(sample.mask)].any()


@pytest.fixture
def four(tmp_path):
    return read(write(tmp_path / "r.jsonl"))


def test_grpo_and_dapo_in_closed_form(four):
    """Group a: rewards 1, 0, std √½, A = ±a with a = ½ / (√½ + 1e-6); group b: equal rewards, A = 0. The policy has not
    moved: L = −Σ_i (1/N) (1/|o_i|) Σ_t r A_i, so −∂L/∂lp = A_i / (4 |o_i|), times M = 6 tokens: ±a 6 / (4 |o_i|) =
    0.75 a for both tokens of the right answer, −1.5 a for the one of the wrong. DAPO divides by M alone: ±a."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    grpo = push_of("x", tokenpo.method("grpo"), four)
    np.testing.assert_allclose(grpo.push, [[0.75 * a, 0.75 * a], [-1.5 * a, 0], [0, 0], [0, 0]], rtol=1e-12)
    np.testing.assert_allclose(grpo.advantage, [[a, a], [-a, 0], [0, 0], [0, 0]], rtol=1e-12)
    assert grpo.weight.tolist() == [[1, 1], [1, 0], [1, 1], [1, 0]]
    assert grpo.ratio.tolist() == [[1, 1], [1, 0], [1, 1], [1, 0]]
    assert not grpo.clipped.any()
    assert not (torch.signbit(grpo.push) & (grpo.push == 0)).any()  # no negative zeros
    dapo = push_of("x", tokenpo.method("dapo"), four)
    np.testing.assert_allclose(dapo.push, [[a, a], [-a, 0], [0, 0], [0, 0]], rtol=1e-12)


def test_by_hand(tmp_path):
    """Entropies 0.1 0.2 0.3 0.4 0.6 0.9: the 0.8 quantile of six is the number round(0.8 · 5) = 4 from 0: 0.6, so 0.9
    and 0.6 are high. Pushes 3 and −1 on the right answer, −4 on the wrong one, 2 and 0 on the next, 0 on the last:
    Σ|push| = 10. Right 3 + 1 + 2 = 6, wrong 4. High: the wrong one and the last, 4. Up 3 + 2. Two of six are 0."""
    kinds = TokenKinds.of(read(write(tmp_path / "r.jsonl")), 0.8)
    assert kinds.threshold == 0.6
    push = torch.tensor([[3.0, -1], [-4, 0], [2, 0], [0, 0]], dtype=torch.float64)
    clipped = torch.tensor([[0, 1], [0, 0], [0, 0], [0, 0]]).bool()
    row = shares(push, clipped, kinds)
    assert vars(row) == pytest.approx(
        {"size": 10 / 6, "up": 0.5, "right": 0.6, "wrong": 0.4, "high": 0.4, "low": 0.6, "silent": 2 / 6,
         "clipped": 1 / 6},
        rel=1e-14,
    )  # fmt: skip
    # A push that is equal everywhere: five of six tokens are right, two of six high.
    alike = of_tokens(kinds)
    assert (alike.right, alike.wrong, alike.high, alike.low) == pytest.approx((5 / 6, 1 / 6, 2 / 6, 4 / 6))
    assert math.isnan(alike.size) and math.isnan(alike.up)


def test_cosines(tmp_path):
    sample = ragged(5)
    names = ["grpo", "dapo", "gtpo", "tr_grpo"]
    result = explain_all(read(write(tmp_path / "r.jsonl", lines_of(sample))), parse_entries(",".join(names)))
    rows = [score(name, sample).gradient.ravel() for name in names]
    expected = [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in rows] for a in rows]
    np.testing.assert_allclose(result.cosines, expected, rtol=1e-10)
    np.testing.assert_allclose(np.diag(result.cosines), 1, rtol=1e-14)
    assert min(map(min, result.cosines)) < 0.99
    a = torch.tensor([[3.0, 4.0]])
    for other, expected in ((torch.tensor([[4.0, 3.0]]), 24 / 25), (-a, -1), (a.double() * 1e-200, 1)):
        assert cosine(a, other) == pytest.approx(expected, rel=1e-7)
    assert math.isnan(cosine(a, 0 * a))


def test_what_is_not_known_is_not_a_number(tmp_path):
    bare = [{k: v for k, v in line.items() if k not in ("entropy", "correct")} for line in FOUR]
    result = explain_all(read(write(tmp_path / "r.jsonl", bare)), parse_entries("grpo"))
    (row,) = result.table
    assert all(map(math.isnan, (row.right, row.wrong, row.high, row.low)))
    assert any("`correct`" in note for note in result.notes) and any("No entropy" in note for note in result.notes)
    assert '"right": null' in to_json(result)
    some = [FOUR[0], FOUR[1] | {"correct": None}, *FOUR[2:]]
    result = explain_all(read(write(tmp_path / "r.jsonl", some)), parse_entries("grpo"))
    # 0.75 + 0.75 of 3 on the right answer (see test_push); the wrong one is not judged.
    assert (result.table[0].right, result.table[0].wrong) == pytest.approx((0.5, 0))
    assert any("neither right nor wrong" in note for note in result.notes)
