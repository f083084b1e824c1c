"""Shares by hand and against NumPy; cosines."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from oracle_support import ragged, score
from tokenpo.base.errors import TokenPOError
from tokenpo.evidence.explain.explanation import TokenKinds, cosine, explain_all, of_tokens, shares, to_json
from tokenpo.recipe.command_line import parse_entries
from tokenpo.runs.rollouts import read
from written_rollouts import FOUR, lines_of, write


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


@pytest.mark.parametrize("name", ["grpo", "gtpo", "tepo"])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.8, 1.0])
def test_against_numpy(name, quantile, tmp_path):
    sample = ragged(5)
    result = explain_all(read(write(tmp_path / "r.jsonl", lines_of(sample))), parse_entries(name), quantile)
    mask = sample.mask
    g = np.abs(score(name, sample).gradient[mask])
    h, right = sample.old_entropy[mask], np.broadcast_to(sample.reward[:, None] > 0, mask.shape)[mask]
    high = h >= np.sort(h)[round(quantile * (len(h) - 1))]
    (row,) = result.table
    expected = (g.sum(), g[right].sum() / g.sum(), g[~right].sum() / g.sum(), g[high].sum() / g.sum(), (g == 0).mean())
    np.testing.assert_allclose((row.size, row.right, row.wrong, row.high, row.silent), expected, rtol=1e-10)
    assert row.right + row.wrong == pytest.approx(1, rel=1e-12)
    assert row.high + row.low == pytest.approx(1, rel=1e-12)


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
    # 0.75 + 0.75 of 3 on the right answer (see test_explanation); the wrong one is not judged.
    assert (result.table[0].right, result.table[0].wrong) == pytest.approx((0.5, 0))
    assert any("neither right nor wrong" in note for note in result.notes)


def test_methods_that_push_nothing_and_methods_that_are_all_refused(tmp_path):
    result = explain_all(read(write(tmp_path / "r.jsonl", FOUR[2:])), parse_entries("grpo,dapo"))
    assert (result.table[0].size, result.table[0].silent) == (0, 1)
    assert math.isnan(result.table[0].right) and math.isnan(result.cosines[0][0])
    assert any(note.startswith("grpo, dapo push no token") for note in result.notes)
    with pytest.raises(TokenPOError, match=r"archer needs what .*; adv_reweight needs what"):
        explain_all(read(write(tmp_path / "r.jsonl")), parse_entries("archer,adv_reweight"))
