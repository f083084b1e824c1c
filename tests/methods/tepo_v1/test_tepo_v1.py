"""TEPO v1 by hand, and what is special about it."""

import dataclasses

import pytest

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged, run


def test_by_hand() -> None:
    """A = a, 0, -a with a = 1 / (1 + 1e-6); s = sqrt(1.21 · 1) = 1.1, 1.3, sqrt(0.5 · 2) = 1; five tokens.

    J = (2 · 1.1 a + 0 - 2 · 1 a) / 5 and every token moves by s_i A_i / 5.
    """
    a = 1 / (1 + 1e-6)
    moves(
        "tepo_v1",
        by_hand([[1.21, 1.0], [1.3], [0.5, 2.0]], [2, 1, 0]),
        -0.2,
        [[-1.1, -1.1], [0, 0], [1, 1]],
        unit=a / 5,
    )


@pytest.mark.parametrize("seed", range(2))
def test_is_gspo_token_under_a_token_mean(seed: int) -> None:
    mixed = dataclasses.replace(
        tokenpo.method("gspo_token", low=0.2, high=0.2), aggregate=tokenpo.method("dapo").aggregate
    )
    close(outcome("tepo_v1", ragged(seed)), run(mixed, ragged(seed)), rtol=1e-12)
