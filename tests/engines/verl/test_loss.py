"""Loss and gradient through verl's layout, micro-batches and ranks are the objective's own on the same rollouts.

verl's numbers are float64 here, so what differs beyond 1e-12 differs by meaning.
Skipped where verl is not importable; with it: `PYTHONPATH=src python -m pytest tests/engines/verl`.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

import tokenpo
from foreign_support import need

need("verl.workers.utils.padding", "verl is not installed: our loss was not called in its layout")

from engines.verl.support import batches  # noqa: E402
from tokenpo.base.errors import MissingInput  # noqa: E402
from tokenpo.core.parts import EntropyBonus  # noqa: E402
from tokenpo.engines.verl import PROVIDES, layout  # noqa: E402
from tokenpo.engines.verl.loss import WorkerLoss  # noqa: E402
from tokenpo.methods import METHODS  # noqa: E402

CORE = ["grpo", "dr_grpo", "dapo", "gspo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo", "clip_cov", "kl_cov"]
# Everything else of the table that reads no more than verl has, and so exercises every kind of part.
MORE = [name for name, build in METHODS.items() if name not in CORE and build().needs <= PROVIDES]


def _objective(name: str) -> tokenpo.Objective:
    return batches.with_length(tokenpo.method(name))


@pytest.mark.parametrize(("ranks", "micro", "padding"), [(1, 16, ()), (2, 3, (0, 5, 6, 17)), (4, 1, (2, 3, 8, 19))])
@pytest.mark.parametrize("name", CORE)
def test_is_the_objective(name: str, ranks: int, micro: int, padding: tuple[int, ...]) -> None:
    """Groups of 4 are split by micro-batches of 3 and of 1; rows of padding hold NaN and sit in every rank."""
    sample, objective = batches.both(seed=3, padding=padding), _objective(name)
    expected = batches.directly(sample, objective)
    ((value, metrics),) = batches.through_verl(sample, objective, ranks=ranks, micro=micro)
    assert value == pytest.approx(float(expected.loss.value), rel=1e-11)
    torch.testing.assert_close(batches.gradient(sample), expected.gradient, rtol=1e-11, atol=1e-14)
    assert metrics["pg_loss"] == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("name", MORE)
def test_more_methods(name: str) -> None:
    objective = _objective(name)
    for number, part in enumerate(objective.split()):
        sample = batches.both(seed=5, padding=(1, 9, 10, 11))
        expected = batches.directly(sample, part)
        ((value, _),) = batches.through_verl(sample, objective, ranks=2, micro=3, part=number)
        assert value == pytest.approx(float(expected.loss.value), rel=1e-11)
        torch.testing.assert_close(batches.gradient(sample), expected.gradient, rtol=1e-11, atol=1e-14)
        entropies = batches.gradient(sample, "entropy")
        torch.testing.assert_close(entropies, expected.entropy_gradient, rtol=1e-11, atol=1e-14)


def test_an_entropy_bonus_reaches_the_engines_entropies() -> None:
    sample = batches.both(seed=5, padding=(1, 9, 10, 11))
    objective = dataclasses.replace(tokenpo.method("grpo"), penalties=(EntropyBonus(0.1),))
    expected = batches.directly(sample, objective)
    batches.through_verl(sample, objective, ranks=2, micro=3)
    assert expected.entropy_gradient.any()
    torch.testing.assert_close(batches.gradient(sample, "entropy"), expected.entropy_gradient, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", CORE)
def test_in_single_precision(name: str) -> None:
    """What a run computes in: the loss to 1e-6 and the gradient to 1e-5 of the same in float64."""
    sample, objective = batches.both(seed=3, padding=(0, 5)), _objective(name)
    expected = batches.directly(sample, objective)
    fields = {k: v.float() if v.is_floating_point() else v for k, v in sample.data.items() if k != "uid"}
    data = sample.data.copy().update(fields)
    single = dataclasses.replace(
        sample,
        data=data,
        logprob=[row.detach().float().requires_grad_() for row in sample.logprob],
        entropy=[row.detach().float().requires_grad_() for row in sample.entropy],
    )
    ((value, _),) = batches.through_verl(single, objective, ranks=2, micro=3)
    assert value == pytest.approx(float(expected.loss.value), rel=1e-5, abs=1e-6)
    scale = float(expected.gradient.abs().max())
    torch.testing.assert_close(batches.gradient(single), expected.gradient, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo"])
def test_steps_have_their_own_denominators(name: str) -> None:
    """Two optimiser steps of 10 rows each, 5 from each of 2 ranks: rows 0-4 and 10-14, then 5-9 and 15-19."""
    sample, objective = batches.both(seed=3, padding=(0, 5, 6, 17)), _objective(name)
    plan = [[*range(5), *range(10, 15)], [*range(5, 10), *range(15, 20)]]
    assert layout.dealt(20, 2, 10) == plan
    done = batches.through_verl(sample, objective, ranks=2, micro=3, step_rows=10)
    rollouts = tokenpo.Rollouts(**sample.inputs.rollouts)
    credit = objective.prepare(rollouts)
    policy = tokenpo.Policy(**sample.inputs.policy)
    whole = tokenpo.Batch(rollouts, credit, policy)
    for rows, (value, _) in zip(plan, done, strict=True):
        ours = [sample.rows.index(place) for place in rows if place in sample.rows]
        totals = tokenpo.Totals.of(rollouts.rows(torch.tensor(ours)), float(batches.LENGTH))
        expected = objective.loss(whole.rows(torch.tensor(ours)), totals).value
        assert value == pytest.approx(float(expected), rel=1e-11)


def test_what_the_driver_sends_means_the_same_in_another_process() -> None:
    """Plain, with signals, of batch scope with a draw, and the second of two passes: pickled, sent, called there."""
    sent = [(_objective(name), 0) for name in ("grpo", "hapo", "kl_cov")] + [(_objective("lopti"), 1)]
    losses = [WorkerLoss(objective, batches.LENGTH, part=part) for objective, part in sent]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as worker:
        there = list(worker.map(batches.of_whole_step, losses, [3] * len(losses)))
    assert there == [batches.of_whole_step(loss, 3) for loss in losses]
    for (objective, part), value in zip(sent, there, strict=True):
        expected = batches.directly(batches.both(3), objective.split()[part]).loss.value
        assert value == pytest.approx(float(expected), rel=1e-11)


@pytest.mark.parametrize("name", ["clip_cov", "lopti"])
def test_a_step_of_short_rows_of_a_longer_batch(name: str) -> None:
    """What a look at one step finds is as wide as the whole batch; its own rows may all be shorter."""
    sample, objective = batches.both(seed=3), _objective(name).split()[0]
    data = sample.data.copy()
    lengths = data["responses"].offsets().diff()
    rows = torch.nonzero(lengths < lengths.max()).flatten().tolist()
    assert 1 < len(rows) < len(data)
    step, where = batches.begun(data, objective)
    data.update(layout.credit_fields(objective, step.rollouts, step.credit, where, [rows]))
    batches.put(data, rows, batches.observed(sample, step, where, rows))
    value, _ = batches.engine(sample, data, rows, WorkerLoss(objective, batches.LENGTH), ranks=1, micro=3)
    rollouts = tokenpo.Rollouts(**sample.inputs.rollouts)
    batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), tokenpo.Policy(**sample.inputs.policy))
    batch = objective.observe(batch.rows(torch.tensor(rows)))
    expected = objective.loss(batch, tokenpo.Totals.of(batch.rollouts, float(batches.LENGTH))).value
    assert value == pytest.approx(float(expected), rel=1e-11)


def test_a_micro_batch_of_padding_rows_has_no_loss_but_a_graph() -> None:
    sample = batches.both(seed=0, padding=(0, 1, 2, 3))
    data = sample.data.copy()
    grpo = tokenpo.method("grpo")
    step, where = batches.begun(data, grpo)
    data.update(layout.credit_fields(grpo, step.rollouts, step.credit, where, [range(20)]))
    value, metrics = batches.engine(sample, data, [0, 1, 2, 3], WorkerLoss(grpo, batches.LENGTH), 1, 4)
    assert value == 0
    assert metrics == dict.fromkeys(metrics, 0.0)
    assert all(row.grad is not None and not row.grad.any() for row in sample.logprob[:4])


def test_a_field_that_verl_did_not_fill() -> None:
    sample = batches.both(seed=0)
    data = sample.data.exclude("entropy")
    with pytest.raises(MissingInput, match=r"no entropy for old_entropy: set .*bypass_mode=False"):
        layout.rollouts_of(data, tokenpo.method("hapo"), 1.0)


def test_padded_keeps_the_graph() -> None:
    rows = [torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)]
    out = layout.padded(torch.nested.as_nested_tensor(rows, layout=torch.jagged))
    assert out.tolist() == [[1, 2], [3, 0]]
    (out * torch.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    assert [row.grad.tolist() for row in rows if row.grad is not None] == [[1, 10], [100]]


def test_the_temperature_of_the_sampler_is_a_fact() -> None:
    facts = layout.token_facts(batches.both(seed=0).data, ["temperature"], 0.7)
    torch.testing.assert_close(facts["temperature"], torch.full(facts["mask"].shape, 0.7))
