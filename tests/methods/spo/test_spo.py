"""SPO-chain by hand, and what is special about it."""

import numpy as np

import tokenpo
from oracle_support import by_hand, moves
from tokenpo.core.parts import Continuations, Improbable


def test_by_hand() -> None:
    """Old probabilities 0.25 and 0.95: the second token of each row is left out. Of the gains 0.6 and -0.2 of the
    others the mean is 0.2, the variance 0.32: A = ±a, a = 0.4 / sqrt(0.32 + 1e-8). J is the mean over these two."""
    a = 0.4 / np.sqrt(0.32 + 1e-8)
    old = np.log([[0.25, 0.95], [0.25, 0.95]])
    sample = by_hand([[1.1, 1.0], [0.9, 1.0]], [1, 0], gain=[[0.6, 5.0], [-0.2, 5.0]])
    sample = sample.but(old_logprob=old, logprob=old + np.log([[1.1, 1.0], [0.9, 1.0]]))
    moves("spo", sample, -(1.1 - 0.9), [[-1.1, 0], [0.9, 0]], unit=a / 2)


def test_what_is_drawn() -> None:
    assert tokenpo.method("spo", interval=2, below=0.5).continuations == Continuations(Improbable(2, 0.5), 9)
