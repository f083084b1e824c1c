"""Differences of log-probabilities that no exponential survives: every method's loss and gradient stay finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import OPTIONAL, assemble, ragged, tensors

DIFFERENCES = (50.0, 1e4, 1e30)


@pytest.mark.parametrize("name", tokenpo.methods.METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_huge_differences_are_bounded(name: str, dtype: torch.dtype) -> None:
    """A token in three moved by ±50, ±1e4 or ±1e30 nats against the old, the sampler's and the reference policy."""
    objective = tokenpo.method(name)
    for difference in DIFFERENCES:
        if difference > torch.finfo(dtype).max / 100:
            continue
        sample = ragged(11)
        rng = np.random.default_rng(3)
        for field in ("logprob", "old_logprob", "ref_logprob", "rollout_logprob"):
            values = getattr(sample, field)
            far = rng.random(values.shape) < 1 / 3
            sample = sample.but(**{field: np.where(far & sample.mask, -difference, values)})
        fields = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors(sample).items()}
        step = assemble(objective, fields, inputs=OPTIONAL)
        loss = objective.loss(step.batch, step.totals)
        loss.value.backward()
        assert loss.value.dtype == torch.float32
        assert torch.isfinite(loss.value), difference
        assert step.logprob.grad is not None
        assert torch.isfinite(step.logprob.grad).all(), difference
        for term in ("ratio", "weight", "advantage", "coefficient"):
            assert torch.isfinite(loss.terms[term]).all(), (term, difference)
