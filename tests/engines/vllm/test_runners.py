"""What both runners share: rows that ask for nothing keep every bit, equal heats share a number."""

from __future__ import annotations

import torch

from tokenpo.engines.vllm.runners import Numbers, divide
from tokenpo.models.request_temperature import factors
from vllm_support import heat, random_logits


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
