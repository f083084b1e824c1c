"""Addressed uniforms: a pure function of (seed, stream, sample, step), and uniform."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from tokenpo.models.token_draw import stream_keys, uniforms


def splitmix(key: int, step: int) -> float:
    """SplitMix64 in plain integers."""
    mask = 2**64 - 1
    z = (key + (step + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> 32) * 2.0**-32


def test_the_numbers_are_splitmix64():
    keys = torch.tensor([0, 1, -5, 2**62, -(2**63)])
    got = uniforms(keys, 3, 4)
    want = [[splitmix(k % 2**64, step) for k in keys.tolist()] for step in range(3, 7)]
    assert got.tolist() == want


def test_a_rollout_sees_the_same_numbers_wherever_it_stands():
    stream, sample = torch.tensor([4, 4, 9, 9]), torch.tensor([0, 1, 0, 1])
    keys = stream_keys(7, stream, sample)
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(stream_keys(7, stream[order], sample[order]), keys[order])
    assert torch.equal(uniforms(keys, 0, 10)[6:9], uniforms(keys, 6, 3))


def test_keys_differ_in_every_coordinate_and_accept_any_integer_seed():
    stream, sample = torch.arange(100).repeat_interleave(100), torch.arange(100).repeat(100)
    keys = torch.cat([stream_keys(seed, stream, sample) for seed in (0, 1, -1, 2**70 + 3, 2**63)])
    assert len(keys.unique()) == len(keys)


def test_numbers_are_uniform_over_steps_streams_and_samples():
    keys = stream_keys(3, torch.arange(200).repeat_interleave(5), torch.arange(5).repeat(200))
    u = uniforms(keys, 0, 100).numpy()
    assert u.min() >= 0 and u.max() <= 1 - 2.0**-32
    for values in (u.ravel(), u[0], u[:, 0], u[:, ::5].ravel()[::7]):
        assert stats.kstest(values, "uniform").pvalue > 1e-3
    for a, b in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:]), (u[:, :-5], u[:, 5:])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.015
