"""What the tests of the vLLM adapter share: heats, logits, the formula in NumPy."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tokenpo.core.parts import AdaptiveTemperature
from tokenpo.core.parts.entropy import EntropyScale
from tokenpo.core.request_temperature import Heat


def settings(mode: str = "processed_logprobs") -> Any:
    """As much of a VllmConfig as the processors read."""
    return SimpleNamespace(model_config=SimpleNamespace(logprobs_mode=mode))


def heat(seed: int, *, released: bool = False) -> Heat:
    """Scales under which the entropies of random logits fall on both sides, inside and outside."""
    g = np.random.default_rng(seed)
    rule = AdaptiveTemperature(round(g.uniform(0.1, 0.6), 3), 0.8, released)
    pivot, spread, top, bottom = g.uniform(0.2, 0.8), g.uniform(0.3, 0.9), g.uniform(0.5, 2), -g.uniform(0.5, 2)
    return Heat(rule, EntropyScale(pivot, spread, top, bottom))


def flat(given: Heat) -> dict[str, float]:
    rule = given.rule
    numbers = {"tau": rule.tau, "quantile": rule.quantile, "released_sign": float(rule.released_sign)}
    return {f"tokenpo_{name}": float(x) for name, x in {**numbers, **given.scale._asdict()}.items()}


def random_logits(rows: int, seed: int, vocabulary: int = 17) -> torch.Tensor:
    """float32, from nearly uniform to nearly certain, some tokens excluded."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, vocabulary, generator=g) * (10 ** (torch.rand(rows, 1, generator=g) * 1.6 - 0.6))
    z[torch.rand(rows, vocabulary, generator=g) < 0.1] = -torch.inf
    z[:, 0] = z[:, 0].clamp(min=-9)
    return z


def oracle(logits: np.ndarray, base: float, numbers: Mapping[str, float]) -> float:
    """T_t of one row of logits [V], float64, straight from HAPO's formula.

    p = softmax(z / T); H = −Σ p log p; z-score of log H (H at least 1e-8) about the pivot in units of the spread; ĥ is
    z / top above 0 and z / |bottom| below, or z / bottom with the released sign; 0 without extent; T_t is T (1 + tau ĥ)
    with ĥ held in [−1, 1].
    """
    x = logits.astype(np.float64) / base
    x = x[np.isfinite(x)]
    p = np.exp(x - x.max())
    p = p / p.sum()
    entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
    n = {name.removeprefix("tokenpo_"): value for name, value in numbers.items()}
    z = (np.log(max(entropy, 1e-8)) - n["pivot"]) / n["spread"] if n["spread"] else 0.0
    if z > 0:
        h = z / n["top"] if n["top"] else 0.0
    else:
        h = z / abs(n["bottom"]) if n["bottom"] else 0.0
        h = -h if n["released_sign"] else h
    return base * (1 + n["tau"] * min(max(h, -1.0), 1.0))
