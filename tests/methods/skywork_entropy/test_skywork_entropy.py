"""Skywork's adaptive entropy by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, facts, module, outcome, ragged, run, score
from tokenpo.base.errors import TokenPOError


def test_by_hand() -> None:
    """Rewards all equal, so the bonus is alone: coefficient 0.1 on entropies 1, 2, 3 of three tokens, H_old all 0.1."""
    old = [[0.1, 0.1], [0.1]]
    sample = by_hand([[1, 1], [1]], [1, 1], entropy=[[1, 2], [3]], old_entropy=old)
    got = outcome("skywork_entropy", sample, start=0.1, largest=0.2)
    assert got.value == pytest.approx(-0.1 * 6 / 3, rel=1e-12)
    np.testing.assert_allclose(got.entropy_gradient, -0.1 * sample.mask / 3, rtol=1e-12)


@pytest.mark.parametrize("entropy", [0.1, 0.2, 0.3])
def test_the_controller_is_its_oracle(entropy: float) -> None:
    """Below, at and above the target of 0.2 nats; from 0, from the middle and from the bound."""
    sample = by_hand([[1, 1]], [1], old_entropy=[[entropy, entropy]])
    for alpha in (0.0, 0.002, 0.005):
        objective = tokenpo.method("skywork_entropy", start=alpha)
        (numbers,) = objective.after(objective.start(), facts(sample)).values()
        assert numbers == {"coefficient": pytest.approx(module("skywork_entropy").after(alpha, entropy), rel=1e-12)}


def test_the_controller_by_hand() -> None:
    """Two batches below the target raise the coefficient to 2e-4, three above take it back to 0 and no further."""
    objective = tokenpo.method("skywork_entropy")
    state, seen = objective.start(), []
    for entropy in (0.1, 0.1, 0.3, 0.3, 0.3):
        state = objective.after(state, facts(by_hand([[1]], [1], old_entropy=[[entropy]])))
        seen += [numbers["coefficient"] for numbers in state.values()]
    assert seen == pytest.approx([1e-4, 2e-4, 1e-4, 0, 0], abs=1e-18)


def test_the_released_controller_by_hand() -> None:
    """Batches whose one token has -lp_old = 0.1, 0.3, 0.1: below, above, below the target of 0.2. The gate of each is
    set by the one before, the first's is open. The old entropies, all 9, are not even read."""
    objective = tokenpo.method("skywork_entropy", controller="released", start=0.1, delta=0.05, largest=1.0)
    state, seen = objective.start(), []
    for surprise in (0.1, 0.3, 0.1):
        sample = by_hand([[1]], [1], entropy=[[2.0]], p_old=np.exp(-surprise))
        seen.append(run(objective, sample, state=state).value)
        rollouts = facts(sample.but(old_entropy=np.full(sample.mask.shape, 9.0)))
        state = objective.after(state, rollouts)
    assert seen == pytest.approx([-0.1 * 2, -0.15 * 2, 0], rel=1e-12)
    assert "old_entropy" not in objective.needs


@pytest.mark.parametrize("was_below", [True, False])
def test_the_released_controller_is_its_oracle(was_below: bool) -> None:
    """A batch before, of lp_old around -0.7 or far below: against a target of 9 nats, or of none."""
    sample, before = ragged(0), ragged(1)
    target = 9.0 if was_below else 0.0
    objective = tokenpo.method(
        "skywork_entropy", controller="released", start=0.3, delta=0.1, largest=1.0, target=target
    )
    got = run(objective, sample, state=objective.after(objective.start(), facts(before)))
    surprise = -before.old_logprob[before.mask].mean()
    alpha = module("skywork_entropy").after(0.3, surprise, target=target, delta=0.1, largest=1.0)
    close(got, score("skywork_entropy", sample, start=alpha, controller="released", was_below=was_below))
    assert got.entropy_gradient.any() == was_below


def test_the_coefficient_starts_below_its_bound() -> None:
    message = r"initial of GatedCoefficient is 0\.1, expected a number in \[0, 0\.005\], the largest coefficient"
    with pytest.raises(TokenPOError, match=f"^skywork_entropy: {message}$"):
        tokenpo.method("skywork_entropy", start=0.1)
