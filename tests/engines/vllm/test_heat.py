"""The core against the formula in NumPy and against our own sampler, on the same logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tokenpo.engines.vllm import heat as core
from tokenpo.engines.vllm.heat import Numbers, divide, factors
from tokenpo.models.token_draw import draw
from vllm_support import flat, heat, oracle, random_logits


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("chunk", [3, 128])
def test_factors_are_the_formula(released: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "block_rows", lambda vocabulary, device: chunk)
    heats = {1: heat(1, released=released), 2: heat(2)}
    z = random_logits(40, 0).double()
    which = torch.arange(40) % 3
    base = 0.5 + torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = [
        oracle(row.numpy(), float(t), flat(heats[number])) / float(t) if number else 1.0
        for row, t, number in zip(z, base, which.tolist(), strict=True)
    ]
    got = factors(z, which, heats, base)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    # What is divided by the temperature already needs no base.
    np.testing.assert_allclose(factors(z / base[:, None], which, heats), expected, rtol=1e-12)
    assert len({round(float(x), 6) for x in got}) > 20, "the scales must not saturate"


def test_they_are_our_samplers_temperatures() -> None:
    one, z, base = heat(3), random_logits(30, 2).double(), 0.8
    ours = draw(z, torch.rand(30, dtype=torch.float64), base, lambda h, t: one.rule(h, t, one.scale._asdict()))
    ones = torch.ones(30, dtype=torch.long)
    torch.testing.assert_close(base * factors(z, ones, {1: one}, torch.full((30,), base)), ours.temperature)
    scaled = divide(z.clone(), factors(z, ones, {1: one}, torch.full((30,), base, dtype=torch.float64))) / base
    logprob = scaled.log_softmax(-1).gather(-1, ours.token[:, None])[:, 0]
    torch.testing.assert_close(logprob, ours.logprob, rtol=1e-10, atol=1e-10)


def test_rows_without_heat_keep_every_bit() -> None:
    z = random_logits(20, 5)
    z[3] = torch.nan
    z[5] = -torch.inf
    before = z.clone()
    which = torch.tensor([0, 1] * 10)
    which[[3, 5]] = 0
    got = divide(z, factors(z, which, {1: heat(4)}))
    assert got is z
    idle = which == 0
    assert torch.equal(z[idle].view(torch.int32), before[idle].view(torch.int32))
    assert not torch.equal(z[~idle], before[~idle])


def test_an_excluded_token_stays_excluded_and_the_best_stays_the_best() -> None:
    z = random_logits(50, 6)
    before = z.clone()
    divide(z, factors(z, torch.ones(50, dtype=torch.long), {1: heat(5)}))
    assert torch.equal(z == -torch.inf, before == -torch.inf)
    assert torch.equal(z.argmax(-1), before.argmax(-1))


def test_nothing_to_do() -> None:
    assert factors(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), {}).shape == (0,)


def test_on_a_device_the_numbers_are_the_same() -> None:
    one, entropy = heat(7), torch.tensor([1e-9, 0.1, 1.0, 5.0])
    there = one.on("cpu")
    assert isinstance(there.scale.pivot, torch.Tensor)
    got = there(entropy)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, one(entropy), rtol=1e-6, atol=0)


def test_equal_heats_share_a_number_and_old_ones_are_let_go() -> None:
    numbers = Numbers("cpu")
    assert numbers.of(None, set()) == 0
    first, again = numbers.of(heat(1), set()), numbers.of(heat(1), {1})
    second = numbers.of(heat(2), {first})
    assert (first, again, second) == (1, 1, 2)
    assert {number: h.rule for number, h in numbers.named({0, 2}).items()} == {2: heat(2).rule}
    third = numbers.of(heat(3), {second})
    assert third == 3 and set(numbers.named({1, 2, 3})) == {2, 3}
    assert numbers.of(heat(1), {2, 3}) == 4, "a number is never given twice"
