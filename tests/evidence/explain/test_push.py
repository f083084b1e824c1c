"""One method on recorded rollouts: against every oracle, against closed forms, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import ragged, score
from tokenpo.base.errors import MissingInput
from tokenpo.evidence.explain.explanation import missing, push_of
from tokenpo.methods import METHODS
from tokenpo.runs.rollouts import read
from written_rollouts import FOUR, lines_of, write

# What they draw at random, or remember, goes to their oracles by another way: tests/methods.
PLAIN = [name for name in METHODS if name not in ("clip_cov", "s_grpo", "ha_dw", "skywork_entropy", "aer")]


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


def test_a_policy_that_moved_meets_the_clip(tmp_path):
    """Ratios 1.5 and 0.5 in both rows; GRPO keeps the inside and the pessimistic side: 1.5 is cut for A > 0, 0.5 for
    A < 0. What stays is r A 4 / (2 · 2) = r A."""
    logs = (np.log([0.3, 0.1]).tolist(), np.log([0.2, 0.2]).tolist())
    lines = [
        {"group": 0, "reward": reward, "tokens": ["x", "y"], "logprob": logs[0], "old_logprob": logs[1]}
        for reward in (1, 0)
    ]
    result = push_of("x", tokenpo.method("grpo"), read(write(tmp_path / "r.jsonl", lines)))
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(result.push, [[0, 0.5 * a], [-1.5 * a, 0]], rtol=1e-12)
    np.testing.assert_allclose(result.ratio, [[1.5, 0.5], [1.5, 0.5]], rtol=1e-12)
    assert result.clipped.tolist() == [[True, False], [False, True]]


def test_a_missing_input_is_named_with_what_to_write(four, tmp_path):
    assert missing("x", tokenpo.method("hapo"), four) == ""
    bare = [{k: v for k, v in line.items() if k != "entropy"} | {"entropies": [0]} for line in FOUR]
    found = read(write(tmp_path / "bare.jsonl", bare))
    with pytest.raises(MissingInput) as error:
        push_of("mine", tokenpo.method("hapo"), found)
    assert str(error.value).startswith("mine needs what ")
    assert "bare.jsonl does not hold: write 'old_entropy' (full-vocabulary entropy" in str(error.value)
    assert "one number for each token (docs/rollouts.md; fields that are not read: entropies)" in str(error.value)
    assert "; 'ref_logprob' (" in missing("x", tokenpo.method("archer"), found)
    assert "one number for each response" in missing("x", tokenpo.method("arm"), found)


def test_the_objective_sees_only_what_it_needs(tmp_path):
    """Otherwise it might read what it does not declare."""
    read_by = []

    class Spy:
        def __getattr__(self, name):
            return getattr(tokenpo.method("grpo"), name)

        def prepare(self, rollouts):
            read_by.append(rollouts)
            return tokenpo.method("grpo").prepare(rollouts)

        def loss(self, batch, totals):
            read_by.append(batch.policy)
            return tokenpo.method("grpo").loss(batch, totals)

    push_of("x", Spy(), read(write(tmp_path / "r.jsonl", lines_of(ragged(0)))))
    given = {name for owner in read_by for name, x in vars(owner).items() if x is not None}
    assert given == {"mask", "reward", "group", "old_logprob", "logprob"}


def test_what_training_would_refuse_of_older_tokens_is_noted(tmp_path):
    lines = [line | {"version": version} for line, version in zip(FOUR, (4, 4, 2, 4), strict=True)]
    found = read(write(tmp_path / "r.jsonl", lines))
    (note,) = push_of("x", tokenpo.method("gpg"), found).notes
    assert note.startswith("x: LogLikelihood()") and note.endswith("training refuses tokens of older policies.")
    assert not push_of("x", tokenpo.method("grpo"), found).notes
    alike = read(write(tmp_path / "alike.jsonl", [line | {"version": 4} for line in FOUR]))
    assert not push_of("x", tokenpo.method("gpg"), alike).notes


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aer", ["an entropy bonus pushes through the entropy too", "it remembers earlier batches"]),
        ("lopti", ["it makes 2 passes over a batch"]),
        ("clip_cov", ["it draws tokens at random; shown is one draw"]),
        ("hapo", ["samples at a temperature of its own"]),
        ("grpo", []),
    ],
)
def test_what_a_push_leaves_out_is_noted(name, words, tmp_path):
    notes = push_of("mine", tokenpo.method(name), read(write(tmp_path / "r.jsonl", lines_of(ragged(0))))).notes
    assert len(notes) == len(words)
    for note, word in zip(notes, words, strict=True):
        assert note.startswith("mine: ")
        assert word in note
