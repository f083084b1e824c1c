"""A loss taken a block of rows at a time is the loss: value, terms and gradients, and its memory does not grow."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tokenpo
from timing import peak_bytes
from tokenpo import Batch, Loss, Policy, Rollouts, Totals
from tokenpo.core import blocks, trial
from tokenpo.core.ops import covariance
from tokenpo.core.parts import EntropyBonus
from tokenpo.core.types import Trust
from tokenpo.methods import METHODS


def in_blocks_of(rows: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_PLACES", {"cpu": rows * length})


@pytest.mark.parametrize("name", METHODS)
def test_is_the_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 responses of 9 tokens in blocks of 5: the last block has one."""
    objective, inputs = tokenpo.method(name), trial.example(4)
    whole = trial.evaluate(objective, inputs)
    in_blocks_of(5, 9, monkeypatch)
    apart = trial.evaluate(objective, inputs)
    torch.testing.assert_close(apart.loss.value, whole.loss.value, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(apart.gradient, whole.gradient, rtol=1e-12, atol=1e-16)
    torch.testing.assert_close(apart.entropy_gradient, whole.entropy_gradient, rtol=1e-12, atol=1e-16)
    assert apart.loss.terms.keys() == whole.loss.terms.keys()
    for term, x in whole.loss.terms.items():
        torch.testing.assert_close(apart.loss.terms[term], x, rtol=1e-12, atol=1e-15)


def test_entropy_gets_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = dataclasses.replace(tokenpo.method("grpo"), penalties=(EntropyBonus(0.1),))
    whole = trial.evaluate(objective, trial.example(4))
    in_blocks_of(1, 9, monkeypatch)
    apart = trial.evaluate(objective, trial.example(4))
    assert whole.entropy_gradient.any()
    torch.testing.assert_close(apart.entropy_gradient, whole.entropy_gradient, rtol=1e-12, atol=1e-16)


def problem(rows: int, length: int = 64, dtype: torch.dtype = torch.float64) -> tuple[Batch, Totals, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(length) < torch.randint(1, length + 1, (rows, 1), generator=g)
    old = -torch.rand(rows, length, generator=g, dtype=dtype)
    rollouts = Rollouts(mask, torch.arange(rows).remainder(2).to(dtype), torch.arange(rows) // 4, old)
    logprob = (old + 0.3 * torch.randn(rows, length, generator=g, dtype=dtype)).requires_grad_()
    credit = tokenpo.method("grpo").prepare(rollouts)
    return Batch(rollouts, credit, Policy(logprob)), Totals.of(rollouts), logprob


@pytest.mark.parametrize(
    ("places", "sizes"), [(512, [8]), (511, [7, 1]), (192, [3, 3, 2]), (64, [1] * 8), (63, [1] * 8)]
)
def test_as_many_rows_as_fit(places: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """8 responses of 64 places. One that is longer than a block is a block; what is a single block is the batch itself.

    The loss is Σ lp² over the mask: its gradient is 2 lp there and 0 elsewhere.
    """
    batch, _, logprob = problem(8)
    monkeypatch.setattr(blocks, "_PLACES", {"cpu": places})
    seen: list[Batch] = []

    def loss(rows: Batch) -> Loss:
        seen.append(rows)
        return Loss((rows.policy.logprob.square() * rows.mask).sum(), {})

    found = blocks.in_blocks(loss, batch)
    assert [len(rows.mask) for rows in seen] == sizes
    assert (seen[0] is batch) == (sizes == [8])
    expected = torch.where(batch.mask, logprob.detach(), 0.0)
    torch.testing.assert_close(found.value, expected.square().sum(), rtol=1e-12, atol=0)
    torch.testing.assert_close(torch.autograd.grad(found.value, logprob)[0], 2 * expected, rtol=1e-15, atol=0)


def test_what_arrives_scales_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same graph twice, once scaled by 3 as accumulation or loss scaling would: 1 + 3 times the gradient."""
    batch, totals, logprob = problem(8)
    in_blocks_of(3, 64, monkeypatch)
    value = tokenpo.method("grpo").loss(batch, totals).value
    (plain,) = torch.autograd.grad(value, logprob, retain_graph=True)
    value.backward(retain_graph=True)
    (3 * value).backward()
    assert plain.any()
    torch.testing.assert_close(logprob.grad, 4 * plain, rtol=1e-15, atol=0)


def test_without_gradients_there_is_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, totals, _ = problem(8)
    whole = tokenpo.method("grpo").loss(batch, totals).value
    in_blocks_of(3, 64, monkeypatch)
    with torch.no_grad():
        value = tokenpo.method("grpo").loss(batch, totals).value
    assert value.grad_fn is None and not value.requires_grad
    torch.testing.assert_close(value, whole.detach(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("name", ["dapo", "kl_cov"])  # bounds that are numbers and stay so; a mark that no row holds
def test_a_look_at_the_step_is_the_surrogate(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, _, _ = problem(8)
    surrogate = tokenpo.method(name).surrogate
    whole = surrogate(batch)
    in_blocks_of(rows, 64, monkeypatch)
    look = blocks.TrustInBlocks(surrogate, batch)
    for field in dataclasses.fields(Trust):
        seen, wanted = getattr(look(), field.name), getattr(whole, field.name)
        assert torch.equal(seen, wanted) if isinstance(wanted, torch.Tensor) else seen == wanted
        assert not isinstance(seen, torch.Tensor) or not seen.requires_grad
    assert torch.equal(look.clipped(), whole.clipped)


@pytest.mark.parametrize("rows", [3, 8])
def test_only_the_terms_asked_for_are_kept(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, totals, _ = problem(8)
    every = tokenpo.method("grpo").loss(batch, totals)
    in_blocks_of(rows, 64, monkeypatch)
    some = tokenpo.method("grpo").loss(batch, totals, ("ratio", "clipped"))
    assert list(some.terms) == ["ratio", "clipped"]
    assert torch.equal(some.terms["ratio"], every.terms["ratio"])
    assert torch.equal(some.terms["clipped"], every.terms["clipped"])


def test_a_term_that_there_is_not() -> None:
    batch, totals, _ = problem(8)
    with pytest.raises(tokenpo.TokenPOError, match=r"loss: term.*ratios.*ratio"):
        tokenpo.method("grpo").loss(batch, totals, ("ratios",))


def test_memory_is_the_gradient_and_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 responses of 64 tokens in blocks of 8: held at once beyond the inputs are the gradient and a block's tensors,
    some twenty of 1/64 each. Whole, more than four tensors live together."""
    batch, totals, logprob = problem(512, dtype=torch.float32)
    size = logprob.numel() * logprob.element_size()

    def run() -> None:
        value = tokenpo.method("tepo_v1").loss(batch, totals, ()).value
        torch.autograd.grad(value, batch.policy.logprob)

    whole = peak_bytes(run) / size
    in_blocks_of(8, 64, monkeypatch)
    apart = peak_bytes(run) / size
    assert whole > 4
    assert apart < 1.5


@pytest.mark.parametrize(("name", "most"), [("clip_cov", 1.1), ("kl_cov", 2.1)])
def test_memory_of_a_look_at_the_step(name: str, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four marks of a byte each; the two factors of the covariances, of which one becomes their product."""
    batch, _, logprob = problem(512, dtype=torch.float32)
    objective = tokenpo.method(name)
    in_blocks_of(8, 64, monkeypatch)
    monkeypatch.setattr(covariance, "_PLACES", 8 * 64)
    assert peak_bytes(lambda: objective.observe(batch)) / (logprob.numel() * logprob.element_size()) < most


def entropies(rows: int, size: int) -> Rollouts:
    """Groups of right and wrong responses of 64 tokens at most, in no order."""
    g = torch.Generator().manual_seed(1)
    mask = torch.arange(64) < torch.randint(1, 65, (rows, 1), generator=g)
    reward = (torch.rand(rows, generator=g) < 0.5).float()
    group = (torch.arange(rows) // size)[torch.randperm(rows, generator=g)]
    tables = -torch.rand(2, rows, 64, generator=g)
    return Rollouts(mask, reward, group, tables[0], old_entropy=-tables[1])


@pytest.mark.parametrize("size", [1, 3, 8, 24])
def test_a_credit_of_groups_is_the_same_whoever_stands_beside_them(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 responses in blocks of 8: of eight groups, of two and a bit, of one, and of one that is larger."""
    objective, rollouts = tokenpo.method("gtpo"), entropies(24, size)
    whole = objective.prepare(rollouts).advantage
    in_blocks_of(8, 64, monkeypatch)
    assert torch.equal(objective.prepare(rollouts).advantage, whole)
    assert whole.any() or size == 1


def test_a_comparison_of_the_whole_batch_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, rollouts = tokenpo.method("gtpo", scope="batch"), entropies(24, 3)
    whole = objective.prepare(rollouts).advantage
    in_blocks_of(8, 64, monkeypatch)
    assert torch.equal(objective.prepare(rollouts).advantage, whole)


@pytest.mark.parametrize(
    ("ends", "size", "spans"),
    [
        ([2, 4, 6], 4, [(0, 4), (4, 6)]),
        ([2, 4, 6], 5, [(0, 4), (4, 6)]),
        ([2, 4, 6], 6, [(0, 6)]),
        ([5, 6, 7], 2, [(0, 5), (5, 7)]),
        ([1, 6, 7], 2, [(0, 1), (1, 6), (6, 7)]),
        ([3], 1, [(0, 3)]),
    ],
)
def test_as_many_whole_groups_as_fit(ends: list[int], size: int, spans: list[tuple[int, int]]) -> None:
    assert list(blocks._spans(ends, size)) == spans


def test_memory_of_a_credit_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credit in float64 is two, the bits that become the masked credit are two more; the rest is a block's."""
    rollouts = entropies(512, 8)
    size = 4 * rollouts.mask.numel()

    def run() -> None:
        tokenpo.method("gtpo").prepare(rollouts)

    whole = peak_bytes(run) / size
    in_blocks_of(8, 64, monkeypatch)
    apart = peak_bytes(run) / size
    assert whole > 15
    assert apart < 5
