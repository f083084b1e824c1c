"""S-GRPO by hand, and what is special about it."""

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import by_hand, close, module, moves, ragged, run, score

OPTIONS = [{}, {"fraction": 0.2, "always": 1}, {"low": 0.1, "high": 0.4, "fraction": 0.9}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    got = run(tokenpo.method("s_grpo", **options), sample, seed=seed)
    uniform = torch.rand(int(sample.mask.sum()), generator=torch.Generator().manual_seed(seed)).numpy()
    law = {k: v for k, v in options.items() if k in ("fraction", "always")}
    kept = module("s_grpo").kept(sample.mask, uniform, **law)
    np.testing.assert_array_equal((got.terms["weight"] > 0) & sample.mask, kept)
    clip = {k: v for k, v in options.items() if k in ("low", "high")}
    close(got, score("s_grpo", sample, selected=kept, **clip))


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a, a = 1 / (1 + 1e-6). fraction 0, always 1: the first token of each response.

    1.5 clipped at 1.2; 1: J = (1.2 - 1) a / 3, whatever the lengths.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand([[1.5, 1.1], [1.3], [1.0, 2.0, 2.0]], [2, 1, 0])
    moves("s_grpo", sample, -0.2, [[0, 0, 0], [0, 0, 0], [1, 0, 0]], unit=a / 3, fraction=1e-12, always=1)
