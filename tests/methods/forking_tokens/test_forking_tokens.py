"""Forking tokens by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). Entropies 1 ... 5: the 0.8 quantile is round(3.2) = the
    fourth smallest: 4 and 5 fork. Of row 0 the token 1.1, of row 2 the token 2; the denominator stays 5.
    """
    a = 1 / (1 + 1e-6)
    entropy = [[5.0, 1], [3], [2, 4]]
    sample = by_hand([[1.1, 1.0], [1.3], [1.0, 2.0]], [2, 1, 0], old_entropy=entropy)
    moves("forking_tokens", sample, -(1.1 - 2), [[-1.1, 0], [0, 0], [0, 2]], unit=a / 5)


def test_as_the_authors_divide() -> None:
    """The same with two of five tokens kept: everything times 5/2. At dual 1.5 row 2's token stays at 1.5."""
    a = 1 / (1 + 1e-6)
    entropy = [[5.0, 1], [3], [2, 4]]
    sample = by_hand([[1.1, 1.0], [1.3], [1.0, 2.0]], [2, 1, 0], old_entropy=entropy)
    moves("forking_tokens", sample, -(1.1 - 1.5), [[-1.1, 0], [0, 0], [0, 0]], unit=a / 2, denominator="kept", dual=1.5)


def test_the_reference_reaches_every_token() -> None:
    """Without reward, β k3 at u = π_ref/π = 0.5 moves each of the two tokens by β (1 - 0.5) / 2, forking or not."""
    sample = by_hand([[1.0], [1.0]], [1, 1], old_entropy=[[1.0], [2.0]])
    moves(
        "forking_tokens",
        sample.but(ref_logprob=sample.logprob + np.log(0.5)),
        0.1 * (np.log(2) - 0.5),
        [[0.025], [0.025]],
        beta=0.1,
    )
