"""TRL 1.16 over the micro-batches of a step, and what it reads off a single one, beside our whole step."""

from typing import Any

import numpy as np
import pytest

import tokenpo
from foreign_support import ours, summed
from foreign_support.trl_trainer import Trainer, loss
from oracle_support import Sample, assemble, close, ragged, run, tensors

UNEVEN = (slice(0, 3), slice(3, 12), slice(12, 20))
EVEN = (slice(0, 5), slice(5, 10), slice(10, 15), slice(15, 20))


def _batch() -> Sample:
    return ragged(0).alive()


def _scaled(gradient: np.ndarray, pieces: tuple, share: Any) -> np.ndarray:
    """Our gradient with the rows of each micro-batch times the share that TRL gives it."""
    return np.concatenate([gradient[rows] * share(rows) for rows in pieces])


@pytest.mark.parametrize("pieces", [EVEN, UNEVEN])
@pytest.mark.parametrize(
    ("theirs", "objective", "high"),
    [("dapo", tokenpo.method("dapo", dual=None), 0.28), ("cispo", tokenpo.method("cispo", high=0.28), 1.28)],
)
def test_token_means_do_not_depend_on_the_split(
    theirs: str, objective: tokenpo.Objective, high: float, pieces: tuple
) -> None:
    got, advantage = ours(objective, _batch())
    close(got, loss(_batch(), advantage, pieces=pieces, loss_type=theirs, epsilon_high=high))


@pytest.mark.parametrize(
    ("theirs", "objective"),
    [
        ("grpo", tokenpo.method("grpo")),
        ("sapo", tokenpo.method("sapo")),
        ("dr_grpo", tokenpo.method("dr_grpo", length=9)),
        ("luspo", summed("grpo")),
    ],
)
def test_sequence_means_depend_on_the_split_in_trl_unless_it_is_even(theirs: str, objective: tokenpo.Objective) -> None:
    """TRL: the mean over K micro-batches of their own means, so a row in one of n rows weighs N / (K n) of ours."""
    sample, how = _batch(), {"loss_type": theirs, "max_completion_length": 9}
    got, advantage = ours(objective, sample)
    close(got, loss(sample, advantage, pieces=EVEN, **how))
    uneven = loss(sample, advantage, pieces=UNEVEN, **how)
    rows = len(sample.reward)
    expected = _scaled(got.gradient, UNEVEN, lambda part: rows / len(UNEVEN) / (part.stop - part.start))
    np.testing.assert_allclose(uneven.gradient, expected, rtol=1e-10, atol=1e-14)
    assert uneven.value != pytest.approx(got.value, rel=1e-3)


def _forking(seed: int, fraction: float) -> tuple[Sample, tokenpo.Objective]:
    """A batch whose entropies are numbers of float32, in which TRL takes its quantile; and our method of it."""
    sample = ragged(seed).alive()
    sample = sample.but(entropy=sample.entropy.astype(np.float32).astype(float))
    return sample, tokenpo.method("forking_tokens", fraction=fraction, entropy="current")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("rank", "fewer"), [(0.7, 0), (0.1, 1)])
def test_forking_tokens_is_top_entropy_quantile_but_for_a_token_at_the_threshold(
    rank: float, fewer: int, seed: int
) -> None:
    """TRL interpolates at position k + rank of the sorted entropies and keeps the n - 1 - k behind it; ours keeps
    ⌈fraction · n⌉, which is one more where rank < fraction."""
    n = int(ragged(seed).mask.sum())
    fraction = 1 - (int(0.8 * (n - 1)) + rank) / (n - 1)
    sample, objective = _forking(seed, fraction)
    got, advantage = ours(objective, sample)
    theirs = loss(sample, advantage, loss_type="dapo", epsilon_high=0.28, top_entropy_quantile=fraction)
    kept = np.where(got.terms["weight"] * sample.mask, sample.entropy, np.inf)
    lost = (kept == kept.min()) & bool(fewer)
    assert lost.sum() == fewer
    np.testing.assert_allclose(theirs.gradient, np.where(lost, 0, got.gradient), rtol=1e-10, atol=1e-14)


def test_adaptive_entropy_is_gated_by_the_step_before_in_trl_and_by_the_batchs_own_entropy_in_ours() -> None:
    """Target 0.3, delta 0.01, at most 0.065, from 0.05: both coefficients move by the entropy that was just seen, to
    0.06, 0.05, 0.06, 0.065, 0.055, 0.065. TRL applies one where the entropy before was low, and none at first.
    """
    entropies = (0.1, 0.5, 0.1, 0.1, 0.6, 0.1)
    objective = tokenpo.method("skywork_entropy", target=0.3, delta=0.01, largest=0.065, start=0.05)
    how = {"entropy_target": 0.3, "entropy_coef_delta": 0.01, "entropy_coef_max": 0.065, "entropy_coef": 0.05}
    trainer = Trainer(loss_type="dapo", use_adaptive_entropy=True, **how)
    state, theirs, moved, applied = objective.start(), [], [], []
    for mean in entropies:
        sample = _batch()
        entropy = sample.entropy * mean / sample.entropy[sample.mask].mean()
        sample = sample.but(entropy=entropy, old_entropy=entropy)
        got, advantage = run(objective, sample, state=state), ours("dapo", sample)[1]
        applied.append(-got.entropy_gradient.sum())
        theirs.append(-loss(sample, advantage, trainer=trainer).entropy_gradient.sum())
        state = objective.after(state, assemble(objective, tensors(sample)).batch.rollouts)
        moved.append((trainer.entropy_coef, *(numbers["coefficient"] for numbers in state.values())))
    coefficients = [0.06, 0.05, 0.06, 0.065, 0.055, 0.065]
    np.testing.assert_allclose(moved, [[c, c] for c in coefficients], rtol=1e-10)
    np.testing.assert_allclose(theirs, [0, 0.06, 0, 0.06, 0.065, 0], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(applied, [0.05, 0, 0.05, 0.06, 0, 0.055], rtol=1e-10, atol=1e-14)
