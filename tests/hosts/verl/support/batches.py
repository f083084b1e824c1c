"""Batches in verl's layout, made from the trial inputs of our laws, and their loss through verl and without it."""

import dataclasses
from collections.abc import Sequence
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
from tokenpo.hosts.verl.layout import Rows, credit_fields, dealt, rollouts_of
from tokenpo.hosts.verl.loss import WorkerLoss

LENGTH = 9
# verl's fields of a response <- ours.
_FIELDS = (
    "responses:token_ids old_log_probs:old_logprob entropy:old_entropy ref_log_prob:ref_logprob "
    "rollout_log_probs:rollout_logprob values:value tokenpo_teacher:teacher_logprob"
)
FIELDS = dict(pair.split(":") for pair in _FIELDS.split())


@dataclasses.dataclass(frozen=True)
class Both:
    """The same rollouts as our inputs, and as verl's rows; `rows[i]` is the place of rollout i among verl's."""

    inputs: trial.Inputs
    data: TensorDict
    logprob: list[Tensor]
    entropy: list[Tensor]
    rows: list[int]


def method(name: str, **options: Any) -> tokenpo.Objective:
    """The method with LENGTH as its constant length: the trial's longest response need not be that long."""
    objective = tokenpo.method(name, **options)
    if isinstance(objective.aggregate, ConstantLength):
        return dataclasses.replace(objective, aggregate=ConstantLength(float(LENGTH)))
    return objective


def jagged(rows: Sequence[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


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
    fields: dict[str, list[Tensor]] = {}
    logprob, entropy, uid = [], [], []
    for place in range(n):
        i = None if place in padding else rows.index(place)
        length = 1 if i is None else int(mask[i].sum())
        prompt = int(torch.randint(2, 6, (), generator=g))
        row = _padding_row() if i is None else _row(inputs, i, length)
        row["prompts"] = torch.ones(prompt, dtype=torch.long)
        row["input_ids"] = torch.ones(prompt + length, dtype=torch.long)
        for name, value in row.items():
            fields.setdefault(name, []).append(value)
        uid.append("pad" if i is None else f"prompt-{int(inputs.rollouts['group'][i]) * 7 % 11}")
        for view, out in (("logprob", logprob), ("entropy", entropy)):
            # The engine's rows hold the prompt as well, shifted by one: entry t is of token t + 1.
            values = torch.full((prompt + length,), 0.5, dtype=torch.float64)
            values[prompt - 1 : -1] = -1.0 if i is None else inputs.policy[view][i, :length]
            out.append(values.requires_grad_())
    data = TensorDict({name: jagged(values) for name, values in fields.items()}, [n])
    data["uid"] = tu.NonTensorStack.from_list([tu.NonTensorData(name) for name in uid])
    data["loss_mask"] = data["response_mask"]
    return Both(inputs, data, logprob, entropy, rows)


def _row(inputs: trial.Inputs, i: int, length: int) -> dict[str, Tensor]:
    score = torch.zeros(length, dtype=torch.float64)
    score[-1] = inputs.rollouts["reward"][i]
    row = {theirs: inputs.rollouts[ours][i, :length] for theirs, ours in FIELDS.items()}
    return {"response_mask": torch.ones(length, dtype=torch.long), "rm_scores": score, **row}


def _padding_row() -> dict[str, Tensor]:
    row = {name: torch.full((1,), torch.nan, dtype=torch.float64) for name in FIELDS}
    one, none = torch.ones(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    return {**row, "responses": one, "response_mask": none, "rm_scores": none.double()}


def through_verl(
    sample: Both,
    objective: tokenpo.Objective,
    *,
    ranks: int,
    micro: int,
    step_rows: int | None = None,
    part: int = 0,
    loss_fn: WorkerLoss | None = None,
    sessions: Sequence[str] | None = None,
) -> list[tuple[float, dict[str, float]]]:
    """Loss and metrics of each optimiser step as verl's engine would add them up; leaves gradients in the sample.

    Args:
        ranks: data-parallel ranks, which average.
        micro: rows of one micro-batch.
        step_rows: rows of an optimiser step over all ranks; None takes all.
        part: pass of the objective.
        loss_fn: that of the objective and the pass; None makes it.
        sessions: that of each of verl's rows; None gives each one of its own.
    """
    data, n = sample.data.copy(), len(sample.data)
    step, where = begun(data, objective, sessions)
    plan = dealt(n, ranks, step_rows or n)
    loss_fn = loss_fn or WorkerLoss(objective, LENGTH, 1.0, part)
    data.update(credit_fields(objective, step.rollouts, step.credit, where, plan))
    done = []
    for rows in plan:
        fields = data.copy()
        if objective.split()[part].scope == "batch":
            put(fields, rows, observed(sample, step, where, rows, part))
        done.append(engine(sample, fields, rows, loss_fn, ranks, micro))
    return done


def of_whole_step(loss_fn: WorkerLoss, seed: int) -> float:
    """The loss of all rows in a process that was sent `loss_fn`."""
    ((value, _),) = through_verl(both(seed), loss_fn.objective, ranks=1, micro=16, part=loss_fn.part, loss_fn=loss_fn)
    return value


def begun(data: TensorDict, objective: tokenpo.Objective, sessions: Sequence[str] | None = None) -> tuple[Step, Rows]:
    """Phase one, as in our trainer."""
    rollouts, where = rollouts_of(data, objective, 1.0, sessions)
    return Learner(objective, length=LENGTH).begin(rollouts), where


def observed(sample: Both, step: Step, where: Rows, rows: Sequence[int], part: int = 0) -> TensorDict:
    """The signals of `Update.observe` on these rows, as fields of theirs."""
    lengths = sample.data["responses"].offsets().diff().tolist()
    views = {"log_probs": sample.logprob, "entropy": sample.entropy}
    now = {name: jagged([x[r].detach()[-lengths[r] - 1 : -1] for r in rows]) for name, x in views.items()}
    update, here = step.update(where.numbers(rows), part), where.some(rows)
    known = update.credit.signals
    update.observe(here.policy(TensorDict(now, [len(rows)]), update.rollouts.mask.shape[1]))
    return here.signals(step.objective, update.credit, known)


def put(data: TensorDict, rows: Sequence[int], values_by_name: TensorDict) -> None:
    """Fields of some rows into verl's batch, as its queue takes them; the other rows get NaN."""
    lengths = data["responses"].offsets().diff().tolist()
    for name, values in values_by_name.items():
        whole = [torch.full((length,), torch.nan, dtype=values.dtype) for length in lengths]
        for row, value in zip(rows, values.unbind(), strict=True):
            whole[row] = value
        data[name] = jagged(whole)


def engine(
    sample: Both, data: TensorDict, rows: list[int], loss_fn: WorkerLoss, ranks: int, micro: int
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
            views = {"log_probs": sample.logprob, "entropy": sample.entropy}
            output = {name: jagged([x[rows[i]] for i in index]) for name, x in views.items()}
            loss, metrics = loss_fn(model_output=output, data=piece, dp_group=None)
            (loss / ranks).backward()
            value += float(loss.detach()) / ranks
            for name, metric in metrics.items():
                added[name] = added.get(name, 0.0) + metric.aggregate() / ranks
    return value, added


def gradient(sample: Both, view: str = "logprob") -> Tensor:
    """[N, T] of our rollouts, from the engine's rows; outside the responses the gradient must be zero."""
    out = torch.zeros(sample.inputs.rollouts["mask"].shape, dtype=torch.float64)
    lengths = sample.data["responses"].offsets().diff().tolist()
    rows: list[Tensor] = getattr(sample, view)
    for place, row in enumerate(rows):
        if row.grad is None:
            continue
        inside = row.grad[-lengths[place] - 1 : -1]
        assert row.grad.count_nonzero() == inside.count_nonzero()
        if place in sample.rows:
            out[sample.rows.index(place), : lengths[place]] = inside
        else:
            assert not inside.any()
    return out


def directly(sample: Both, objective: tokenpo.Objective) -> trial.Evaluation:
    """The objective on the same rollouts, without verl; its draws are keyed like the learner's first update."""
    return sample.inputs.evaluate(objective, draws=keyed_generator(0, "observe", 0))
