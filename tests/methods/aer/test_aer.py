"""AER by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, facts, module, outcome
from tokenpo.base.errors import TokenPOError
from tokenpo.core.types import Rollouts


def batch(entropy: float) -> Rollouts:
    return facts(by_hand([[1, 1]], [1], old_entropy=[[entropy, entropy]]))


def test_by_hand() -> None:
    """rho = 1, coefficient 0.1: d is 1 - 1/2 in the mixed group and 1 in the one that fails; entropies 1; 4 tokens."""
    sample = by_hand([[1], [1], [1], [1]], [1, 0, 0, 0], [0, 0, 1, 1], entropy=[[1.0]] * 4)
    got = outcome("aer", sample, rho=1.0, start=0.1, largest=0.1)
    np.testing.assert_allclose(got.entropy_gradient, [[-0.0125], [-0.0125], [-0.025], [-0.025]], rtol=1e-12)
    assert got.value == pytest.approx(-(0.05 * 2 + 0.1 * 2) / 4, rel=1e-12)


@pytest.mark.parametrize("rule", ["sign", "proportional"])
def test_the_controller_is_its_oracle(rule: str) -> None:
    objective = tokenpo.method("aer", rule=rule, start=0.002)
    state, expected = objective.start(), 0.002
    for entropy in (2.0, 0.5, 0.8, 0.3, 0.3, 1.9):
        state = objective.after(state, batch(entropy))
        expected = module("aer").after(expected, 2.0, entropy, rule=rule)
        (numbers,) = state.values()
        assert numbers["coefficient"] == pytest.approx(expected, rel=1e-12)
        assert numbers["target"] == pytest.approx(0.8, rel=1e-12)


def test_the_controller_by_hand() -> None:
    """The first batch's entropy 2 sets the target 0.8, above which nothing is added; 0.5 is below it, 0.8 at it."""
    objective = tokenpo.method("aer")
    state, seen = objective.start(), []
    for entropy in (2.0, 0.5, 0.5, 0.8, 3.0):
        state = objective.after(state, batch(entropy))
        seen += [numbers["coefficient"] for numbers in state.values()]
    assert seen == pytest.approx([0, 1e-4, 2e-4, 2e-4, 1e-4], abs=1e-18)


def test_the_coefficient_starts_below_its_bound() -> None:
    message = r"initial of DifficultyCoefficient is 0\.1, expected a number in \[0, 0\.005\], the largest coefficient"
    with pytest.raises(TokenPOError, match=f"^aer: {message}$"):
        tokenpo.method("aer", start=0.1)
