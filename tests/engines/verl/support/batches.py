"""Batches in verl's layout, made from the trial inputs of our own conformance suite, and their loss both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

import tokenpo
from tokenpo.core import trial
from tokenpo.core.learner import Learner, Step
from tokenpo.core.parts import ConstantLength
from tokenpo.core.seeds import keyed_generator
from tokenpo.engines.verl.layout import Rows, credit_fields, dealt, rollouts_of
from tokenpo.engines.verl.loss import WorkerLoss
from tokenpo.engines.verl.record import Record, marks

LENGTH = 9


@dataclasses.dataclass(frozen=True)
class Both:
    """The same rollouts as our inputs, and as verl's rows; `rows[i]` is the place of rollout i among verl's."""

    inputs: trial.Inputs
    data: TensorDict
    logprob: list[Tensor]
    entropy: list[Tensor]
    rows: list[int]


def with_length(objective: tokenpo.Objective) -> tokenpo.Objective:
    """The objective with LENGTH as its constant length: the trial's longest response need not be that long."""
    if isinstance(objective.aggregate, ConstantLength):
        return dataclasses.replace(objective, aggregate=ConstantLength(float(LENGTH)))
    return objective


def both(seed: int, padding: Sequence[int] = (), inputs: trial.Inputs | None = None) -> Both:
    """Rollouts; at each place in `padding` verl has put a row of its own, which holds NaN where it may.

    Args:
        inputs: of at most 11 groups; None takes random ones.
    """
    g = torch.Generator().manual_seed(seed)
    inputs = inputs or trial.example(seed)
    mask = inputs.rollouts["mask"]
    n = mask.shape[0] + len(padding)
    rows = [place for place in range(n) if place not in padding]
    place_of = {place: i for i, place in enumerate(rows)}
    fields: dict[str, list[Tensor]] = {}
    logprob, entropy, uid = [], [], []
    for place in range(n):
        i = place_of.get(place)
        length = 1 if i is None else int(mask[i].sum())
        prompt = int(torch.randint(2, 6, (), generator=g))
        row = _padding_row() if i is None else _row(inputs, i, length)
        row["prompts"] = torch.ones(prompt, dtype=torch.long)
        row["input_ids"] = torch.ones(prompt + length, dtype=torch.long)
        for name, value in row.items():
            fields.setdefault(name, []).append(value)
        uid.append("pad" if i is None else f"prompt-{int(inputs.rollouts['group'][i]) * 7 % 11}")
        for view, out in (("logprob", logprob), ("entropy", entropy)):
            # The engine's rows hold the prompt as well, shifted by one: entry t tells of token t + 1.
            found = torch.full((prompt + length,), 0.5, dtype=torch.float64)
            found[prompt - 1 : -1] = -1.0 if i is None else inputs.policy[view][i, :length]
            out.append(found.requires_grad_())
    data = TensorDict({k: torch.nested.as_nested_tensor(v, layout=torch.jagged) for k, v in fields.items()}, [n])
    data["uid"] = tu.NonTensorStack.from_list([tu.NonTensorData(name) for name in uid])
    data["loss_mask"] = data["response_mask"]
    return Both(inputs, data, logprob, entropy, rows)


def _row(inputs: trial.Inputs, i: int, length: int) -> dict[str, Tensor]:
    facts = inputs.rollouts
    score = torch.zeros(length, dtype=torch.float64)
    score[-1] = facts["reward"][i]
    return {
        "response_mask": torch.ones(length, dtype=torch.long), "rm_scores": score,
        "responses": facts["token_ids"][i, :length],
        "old_log_probs": facts["old_logprob"][i, :length], "entropy": facts["old_entropy"][i, :length],
        "ref_log_prob": facts["ref_logprob"][i, :length], "rollout_log_probs": facts["rollout_logprob"][i, :length],
    }  # fmt: skip


def _padding_row() -> dict[str, Tensor]:
    nothing = torch.full((1,), torch.nan, dtype=torch.float64)
    return {
        "response_mask": torch.zeros(1, dtype=torch.long), "rm_scores": torch.zeros(1, dtype=torch.float64),
        "responses": torch.ones(1, dtype=torch.long),
        "old_log_probs": nothing, "entropy": nothing, "ref_log_prob": nothing, "rollout_log_probs": nothing,
    }  # fmt: skip


def through_verl(
    sample: Both,
    objective: tokenpo.Objective,
    *,
    ranks: int,
    micro: int,
    step_rows: int | None = None,
    record: Record | None = None,
    part: int = 0,
) -> list[tuple[float, dict[str, float]]]:
    """Loss and metrics of each optimiser step as verl's engine would add them up; leaves gradients in the sample.

    Args:
        ranks: data-parallel ranks, which average.
        micro: rows of one micro-batch.
        step_rows: rows of an optimiser step over all ranks; None takes all.
        record: where the last optimiser step is traced.
        part: pass of the objective.
    """
    data, n = sample.data.copy(), len(sample.data)
    step, where = begun(data, objective)
    plan = dealt(n, ranks, step_rows or n)
    loss_fn = WorkerLoss(objective, LENGTH, 1.0, part, None if record is None else str(record.path))
    data.update(credit_fields(objective, step.rollouts, step.credit, where, plan))
    if record is not None:
        tokenizer = SimpleNamespace(decode=lambda ids, **_: ",".join(map(str, ids)))
        data.update(marks(step, where, 7, plan, record.most, data, tokenizer))
    done = []
    for rows in plan:
        fields = data.copy()
        if objective.split()[part].scope == "batch":
            put(fields, rows, observed(sample, step, where, rows, part))
        done.append(engine(sample, fields, rows, loss_fn, ranks, micro))
    return done


def of_whole_step(loss_fn: WorkerLoss, seed: int) -> float:
    """The loss of all rows as one process has it that was sent `loss_fn`."""
    sample = both(seed)
    data, rows = sample.data.copy(), list(range(len(sample.data)))
    step, where = begun(data, loss_fn.objective)
    data.update(credit_fields(loss_fn.objective, step.rollouts, step.credit, where, [rows]))
    if loss_fn.objective.split()[loss_fn.part].scope == "batch":
        put(data, rows, observed(sample, step, where, rows, loss_fn.part))
    return engine(sample, data, rows, loss_fn, ranks=1, micro=len(rows))[0]


def begun(data: TensorDict, objective: tokenpo.Objective) -> tuple[Step, Rows]:
    """Phase one as our trainer has it."""
    rollouts, where = rollouts_of(data, objective, 1.0)
    return Learner(objective, length=LENGTH).begin(rollouts), where


def observed(sample: Both, step: Step, where: Rows, rows: Sequence[int], part: int = 0) -> TensorDict:
    """The signals that a look at the current policy over these rows finds, as fields of theirs."""
    views = [(sample.logprob, "log_probs"), (sample.entropy, "entropy")]
    now = {name: responses(found, sample.data, rows) for found, name in views}
    update, here = step.update(where.numbers(rows), part), where.some(rows)
    known = update.credit.signals
    update.observe(here.policy(TensorDict(now, [len(rows)]), update.rollouts.mask.shape[1]))
    return here.signals(step.objective, update.credit, known)


def put(data: TensorDict, rows: Sequence[int], found: TensorDict) -> None:
    """Fields of some rows into verl's batch, as its queue takes them; the other rows get NaN."""
    lengths = data["responses"].offsets().diff().tolist()
    for name, values in found.items():
        whole = [torch.full((length,), torch.nan, dtype=values.dtype) for length in lengths]
        for row, value in zip(rows, values.unbind(), strict=True):
            whole[row] = value
        data[name] = torch.nested.as_nested_tensor(whole, layout=torch.jagged)


def responses(found: list[Tensor], data: TensorDict, rows: Sequence[int]) -> Tensor:
    lengths = data["responses"].offsets().diff().tolist()
    return torch.nested.as_nested_tensor([found[r].detach()[-lengths[r] - 1 : -1] for r in rows], layout=torch.jagged)


def engine(
    sample: Both,
    data: TensorDict,
    rows: list[int],
    loss_fn: WorkerLoss,
    ranks: int,
    micro: int,
) -> tuple[float, dict[str, float]]:
    """One optimiser step on these rows: the loss over micro-batches and ranks, and its metrics added up."""
    part = tu.index_select_tensor_dict(data, torch.tensor(rows))
    tokens = float(part["loss_mask"].values().sum())
    value, added = 0.0, {}
    share = len(rows) // ranks
    for rank in range(ranks):
        for start in range(rank * share, (rank + 1) * share, micro):
            index = list(range(start, min(start + micro, (rank + 1) * share)))
            piece = tu.index_select_tensor_dict(part, torch.tensor(index))
            tu.assign_non_tensor(piece, dp_size=ranks, batch_num_tokens=tokens, global_batch_size=len(rows))
            output = {
                name: torch.nested.as_nested_tensor([found[rows[i]] for i in index], layout=torch.jagged)
                for name, found in (("log_probs", sample.logprob), ("entropy", sample.entropy))
            }
            loss, metrics = loss_fn(model_output=output, data=piece, dp_group=None)
            (loss / ranks).backward()
            value += float(loss.detach()) / ranks
            for name, metric in metrics.items():
                added[name] = added.get(name, 0.0) + metric.aggregate() / ranks
    return value, added


def gradient(sample: Both, view: str = "logprob") -> Tensor:
    """[N, T] of our rollouts, from what the engine's rows received; what lies outside the responses must be zero."""
    mask = sample.inputs.rollouts["mask"]
    out = torch.zeros(mask.shape, dtype=torch.float64)
    found: list[Tensor] = getattr(sample, view)
    lengths = sample.data["responses"].offsets().diff().tolist()
    for place, row in enumerate(found):
        if row.grad is None:
            continue
        inside = row.grad[-lengths[place] - 1 : -1]
        assert row.grad.count_nonzero() == inside.count_nonzero()
        if place in sample.rows:
            out[sample.rows.index(place), : lengths[place]] = inside
        else:
            assert not inside.any()
    return out


def directly(sample: Both, objective: tokenpo.Objective, **options: Any) -> trial.Evaluation:
    """The objective on the same rollouts, without verl; what it draws is keyed like the learner's first update."""

    def observe(batch: tokenpo.Batch) -> tokenpo.Batch:
        return objective.observe(batch, keyed_generator(0, "observe", 0))

    plain = SimpleNamespace(prepare=objective.prepare, observe=observe, loss=objective.loss)
    return sample.inputs.evaluate(plain, **options)
