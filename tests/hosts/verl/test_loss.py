"""Loss and gradient through verl's layout, micro-batches and ranks are the objective's own on the same rollouts.

In float64, where rounding stays below 1e-12. verl's own value loss on the method's returns is `Objective.value_loss`.
"""

import dataclasses
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from verl.workers.utils.losses import value_loss

import tokenpo
from hosts.verl.support import batches
from hosts.verl.support.composed import composed
from tokenpo.base.errors import MissingInput
from tokenpo.core.parts import EntropyBonus
from tokenpo.core.trial import Inputs, example
from tokenpo.core.types import Totals
from tokenpo.hosts.verl import PROVIDES, layout
from tokenpo.hosts.verl.configure import configure
from tokenpo.hosts.verl.layout import credit_fields, dealt
from tokenpo.hosts.verl.loss import WorkerLoss
from tokenpo.methods import METHODS

CORE = ["grpo", "dr_grpo", "dapo", "gspo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo", "clip_cov", "kl_cov"]
# Groups of 4 are split by micro-batches of 3 and of 1; rows of padding hold NaN and are on every rank.
SPLITS = [(1, 16, ()), (2, 3, (0, 5, 6, 17)), (4, 1, (2, 3, 8, 19))]


def splits(name: str) -> list[tuple[int, int, tuple[int, ...]]]:
    return SPLITS if name in CORE else SPLITS[1:2]


EACH = [(name, split) for name, build in METHODS.items() if build().needs <= PROVIDES for split in splits(name)]


def compare(objective: tokenpo.Objective, ranks: int, micro: int, padding: tuple[int, ...]) -> None:
    for number, part in enumerate(objective.split()):
        sample = batches.both(seed=3, padding=padding)
        expected = batches.directly(sample, part)
        ((value, metrics),) = batches.through_verl(sample, objective, ranks=ranks, micro=micro, part=number)
        assert metrics["pg_loss"] == pytest.approx(value, rel=1e-11)
        assert value == pytest.approx(float(expected.loss.value), rel=1e-11)
        for metric, term in (("pg_clipfrac", "clipped"), ("tokenpo_weight", "weight"), ("tokenpo_penalty", "penalty")):
            mean = float(expected.loss.terms[term][sample.inputs.rollouts["mask"]].double().mean())
            assert metrics[metric] == pytest.approx(mean, rel=1e-9, abs=1e-12)
        for view, wanted in (("logprob", expected.gradient), ("entropy", expected.entropy_gradient)):
            torch.testing.assert_close(batches.gradient(sample, view), wanted, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("name", "split"), EACH)
def test_is_the_objective(name: str, split: tuple[int, int, tuple[int, ...]]) -> None:
    compare(batches.method(name), *split)


def test_an_entropy_bonus_reaches_the_engines_entropies() -> None:
    objective = dataclasses.replace(tokenpo.method("grpo"), penalties=(EntropyBonus(0.1),))
    assert batches.directly(batches.both(seed=3), objective).entropy_gradient.any()
    compare(objective, *SPLITS[1])


def whole_batch(sample: batches.Both, objective: tokenpo.Objective) -> tokenpo.Batch:
    rollouts, policy = sample.inputs.values()
    return tokenpo.Batch(rollouts, objective.prepare(rollouts), policy)


def value_of(objective: tokenpo.Objective, batch: tokenpo.Batch) -> float:
    return float(objective.loss(batch, tokenpo.Totals.of(batch.rollouts, float(batches.LENGTH))).value)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo"])
def test_steps_have_their_own_denominators(name: str) -> None:
    """Two optimiser steps of 10 rows each, 5 from each of 2 ranks: rows 0-4 and 10-14, then 5-9 and 15-19."""
    sample, objective = batches.both(seed=3, padding=(0, 5, 6, 17)), batches.method(name)
    plan = [[*range(5), *range(10, 15)], [*range(5, 10), *range(15, 20)]]
    assert layout.dealt(20, 2, 10) == plan
    done = batches.through_verl(sample, objective, ranks=2, micro=3, step_rows=10)
    whole = whole_batch(sample, objective)
    for rows, (value, _) in zip(plan, done, strict=True):
        ours = torch.tensor([sample.rows.index(place) for place in rows if place in sample.rows])
        assert value == pytest.approx(value_of(objective, whole.rows(ours)), rel=1e-11)


def in_sessions() -> tuple[batches.Both, list[str], torch.Tensor, Inputs]:
    """Rollouts as several outputs a session, with two rows of padding; the place of each token in the whole ones."""
    whole = example(3)
    rows, places = whole.cut(torch.rand(whole.rollouts["mask"].shape, generator=torch.Generator().manual_seed(0)) < 0.3)
    some = rows.rollouts["mask"].any(1)
    rows, places = rows.map(lambda x: x[some]), places[some]
    sample = batches.both(seed=3, padding=(0, 5) if len(places) % 2 == 0 else (0, 5, 6), inputs=rows)
    ids = iter(rows.rollouts["trajectory"].tolist())
    sessions = [f"s_{next(ids)}" if place in sample.rows else f"pad_{place}" for place in range(len(sample.data))]
    return sample, sessions, places, whole


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "hapo", "ppo", "opo"])
@pytest.mark.parametrize(("ranks", "micro"), [(1, 100), (2, 1)])
def test_outputs_of_a_session_are_one_response(name: str, ranks: int, micro: int) -> None:
    """Loss and gradient are those of the whole responses; ranks and micro-batches hold parts of them."""
    sample, sessions, places, whole = in_sessions()
    objective = batches.method(name)
    ((value, _),) = batches.through_verl(sample, objective, ranks=ranks, micro=micro, sessions=sessions)
    expected = batches.directly(dataclasses.replace(sample, inputs=whole), objective)
    assert value == pytest.approx(float(expected.loss.value), rel=1e-11)
    wanted = expected.gradient.flatten()[places].where(places >= 0, 0.0)
    torch.testing.assert_close(batches.gradient(sample), wanted, rtol=1e-11, atol=1e-14)


def test_a_session_in_two_optimiser_steps_counts_by_its_tokens() -> None:
    sample, sessions, _, _ = in_sessions()
    step, where = batches.begun(sample.data, tokenpo.method("grpo"), sessions)
    n = len(sample.data)
    plan = [range(n // 2), range(n // 2, n)]
    data = layout.credit_fields(tokenpo.method("grpo"), step.rollouts, step.credit, where, plan)
    counts = [float(data[layout.SEQUENCES][rows[0]]) for rows in plan]
    assert sum(counts) == pytest.approx(16) and all(0 < x < 16 and x != round(x) for x in counts)


def test_outputs_of_a_session_are_put_in_order() -> None:
    keys = ["a_0_1", "b_0_0", "a_0_0", "a_10_0", "a_0_10", "b_1_0", "a_0_2"]
    assert [keys[row] for row in layout.in_order(keys)] == "a_0_0 b_0_0 a_0_1 a_10_0 a_0_2 b_1_0 a_0_10".split()


def test_what_the_driver_sends_means_the_same_in_another_process() -> None:
    """Plain, with signals, of batch scope with a draw, and the second of two passes: pickled, sent, called there."""
    sent = [(batches.method(name), 0) for name in ("grpo", "hapo", "kl_cov")] + [(batches.method("lopti"), 1)]
    losses = [WorkerLoss(objective, batches.LENGTH, part=part) for objective, part in sent]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as worker:
        there = list(worker.map(batches.of_whole_step, losses, [3] * len(losses)))
    assert there == [batches.of_whole_step(loss, 3) for loss in losses]
    for (objective, part), value in zip(sent, there, strict=True):
        expected = batches.directly(batches.both(3), objective.split()[part]).loss.value
        assert value == pytest.approx(float(expected), rel=1e-11)


@pytest.mark.parametrize("name", ["clip_cov", "lopti"])
def test_a_step_of_short_rows_of_a_longer_batch(name: str) -> None:
    """`observe` on one step gives signals as wide as the whole batch; the step's own rows may all be shorter."""
    sample, objective = batches.both(seed=3), batches.method(name).split()[0]
    data = sample.data.copy()
    lengths = data["responses"].offsets().diff()
    rows = torch.nonzero(lengths < lengths.max()).flatten().tolist()
    assert 1 < len(rows) < len(data)
    step, where = batches.begun(data, objective)
    data.update(layout.credit_fields(objective, step.rollouts, step.credit, where, [rows]))
    batches.put(data, rows, batches.observed(sample, step, where, rows))
    value, _ = batches.engine(sample, data, rows, WorkerLoss(objective, batches.LENGTH), ranks=1, micro=3)
    batch = objective.observe(whole_batch(sample, objective).rows(torch.tensor(rows)))
    assert value == pytest.approx(value_of(objective, batch), rel=1e-11)


def test_a_micro_batch_of_padding_rows_has_no_loss_but_a_graph() -> None:
    """The other rows carry reward and group to the workers, where a part of the user's may read them."""
    sample, grpo = batches.both(seed=0, padding=(0, 1, 2, 3)), tokenpo.method("grpo")
    data = sample.data.copy()
    step, where = batches.begun(data, grpo)
    data.update(layout.credit_fields(grpo, step.rollouts, step.credit, where, [range(20)]))
    assert data[layout.REWARD][4:].tolist() == sample.inputs.rollouts["reward"].tolist()
    assert data[layout.GROUP][4:].tolist() == step.rollouts.group.tolist() == [i // 4 for i in range(16)]
    value, metrics = batches.engine(sample, data, [0, 1, 2, 3], WorkerLoss(grpo, batches.LENGTH), 1, 4)
    assert value == 0 and metrics == dict.fromkeys(metrics, 0.0)
    assert all(row.grad is not None and not row.grad.any() for row in sample.logprob[:4])


def test_a_field_that_verl_did_not_fill() -> None:
    data = batches.both(seed=0).data.exclude("entropy")
    with pytest.raises(MissingInput, match=r"no entropy for old_entropy: set .*bypass_mode=False"):
        layout.rollouts_of(data, tokenpo.method("hapo"), 1.0)


@pytest.mark.parametrize(("ranks", "micro", "padding"), [(1, 16, ()), (2, 3, (0, 5, 6, 17))])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"critic_lam": 0.8, "gamma": 0.9, "value_clip": 0.1}),
        ("ppo", {"value_clip": float("inf")}),
        ("vapo", {}),
    ],
)
def test_its_loss_is_ours(name: str, options: dict, ranks: int, micro: int, padding: tuple[int, ...]) -> None:
    objective, sample = tokenpo.method(name, **options), batches.both(seed=3, padding=padding)
    data = sample.data.copy()
    step, where = batches.begun(data, objective)
    rows = list(range(len(data)))
    data.update(credit_fields(objective, step.rollouts, step.credit, where, dealt(len(rows), ranks, len(rows))))
    # verl gives its own rows values too.
    data["values"] = batches.jagged([x.nan_to_num(0.5) for x in data["values"].unbind()])
    config = SimpleNamespace(cliprange_value=objective.critic.clip, loss_agg_mode="token-mean", loss_scale_factor=None)

    def loss(model_output: dict, data: object, dp_group: None) -> tuple[torch.Tensor, dict]:
        return value_loss(config, {"values": model_output["log_probs"]}, data, dp_group)[0], {}

    found, _ = batches.engine(sample, data, rows, loss, ranks, micro)
    value = sample.inputs.policy["logprob"].clone().requires_grad_()  # the engine's rows hold these numbers
    here, totals = step.rollouts, Totals.of(step.rollouts, batches.LENGTH)
    wanted = objective.value_loss(here, step.credit, value[:, : here.mask.shape[1]], totals).value
    wanted.backward()
    assert found == pytest.approx(wanted.item(), rel=1e-11)
    torch.testing.assert_close(batches.gradient(sample), value.grad, rtol=1e-11, atol=1e-14)


def test_settings_of_a_run_with_a_critic() -> None:
    """What is refused is in test_refusals.py."""
    from verl.trainer.ppo.utils import need_critic

    method = "+algorithm.tokenpo.method"
    config = composed(f"{method}=ppo", "+algorithm.tokenpo.options.value_clip=0.2")
    found = configure(config)
    assert need_critic(config) and config.critic.cliprange_value == 0.2
    assert {"set critic.enable=True (was None) for ppo", "set critic.cliprange_value=0.2 (was 0.5) for ppo"} <= {
        *found.notes
    }
    warm = composed(f"{method}=ppo", "trainer.critic_warmup=3")
    configure(warm)
    assert warm.trainer.critic_warmup == 3
