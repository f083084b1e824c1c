"""Several optimiser updates on one rollout batch.

Credit is computed once, on whole groups. Every update takes one minibatch, whose totals are the denominators of all of
its micro-batches: how it is split changes nothing. Rows that cannot have a gradient are not evaluated. An objective of
several passes goes through all minibatches once for each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import NotFinite, Unsupported
from ...core.culprit import broken
from ...core.objective import Objective
from ...core.seeds import keyed_generator
from ...core.types import Batch, Credit, Loss, Rollouts, Totals
from ...models import LanguageModel
from ...recipe.config import Config, Train
from ...runs.tally import Tally, Tracer
from .forward import Forward, wanted

HALF_TOLERANCE = 0.05
FULL_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Learner:
    """The model, its optimiser and the objective: what an update needs.

    Args:
        length: the longest response allowed, the constant of objectives that divide by it.
    """

    lm: LanguageModel
    objective: Objective
    optimizer: torch.optim.Optimizer
    forward: Forward
    options: Train
    length: int
    seed: int

    @staticmethod
    def of(config: Config, lm: LanguageModel, objective: Objective) -> Learner:
        options = config.train
        trainable = [x for x in lm.model.parameters() if x.requires_grad]
        optimizer = torch.optim.AdamW(
            trainable, lr=options.lr, betas=options.betas, eps=options.eps, weight_decay=options.weight_decay
        )
        forward = Forward(
            lm,
            options.micro_rows,
            options.micro_tokens,
            drift="entropy_drift" in objective.needs,
            autocast=options.autocast,
            entropy_grad=objective.entropy_gradient,
        )
        return Learner(lm, objective, optimizer, forward, options, config.rollout.max_new_tokens, config.seed)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [x for group in self.optimizer.param_groups for x in group["params"]]

    @property
    def skips(self) -> bool:
        """Whether a row without advantage is known to add nothing."""
        return self.objective.follows_advantage


class RatioCheck:
    """Before the first update on a batch the policy is the one that sampled: the two forward passes must agree.

    Asked once; a minibatch without a token in the loss has shown nothing, so the next batch is asked.
    """

    def __init__(self) -> None:
        self._passed = False

    def __call__(self, tally: Tally, learner: Learner) -> None:
        """In half precision single unlikely tokens may be far off, so there the mean is what counts.

        Raises:
            Unsupported: sampler and trainer disagree.
        """
        found = None if self._passed else tally.disagreement()
        if found is None:
            return
        worst, mean = found
        half = learner.options.autocast and learner.lm.device.type != "cpu"
        half = half or next(learner.lm.model.parameters()).dtype in (torch.float16, torch.bfloat16)
        seen, name = (mean, "mean") if half else (worst, "largest")
        limit = learner.options.ratio_tolerance or (HALF_TOLERANCE if half else FULL_TOLERANCE)
        if not seen <= limit:
            raise Unsupported(
                f"{learner.objective.name}: before the first update the ratio of new to old policy is not 1 in the "
                f"embedded engine: the {name} |log-prob of the trainer - log-prob of the sampler| is {seen:.2g} nats, "
                f"above {limit:g}: set rollout.rescore = true, which takes the old log-probs from the trainer's own "
                "forward pass, model.dtype = 'float32', or a larger train.ratio_tolerance"
            )
        self._passed = True


def improve(
    learner: Learner,
    rollouts: Rollouts,
    prompts: Sequence[Sequence[int]],
    credit: Credit,
    updates: int,
    tracer: Tracer,
    check: RatioCheck | None = None,
) -> Tally:
    """Trains on one rollout batch: passes x epochs x minibatches updates.

    Args:
        prompts: token ids of the prompt of each group.
        updates: made before; they key the order of the rows and set the learning rate.
        tracer: is shown the last minibatch.
        check: refuses to start when the policy is not the one that sampled.

    Raises:
        NotFinite: a loss or gradient that is not finite, unless such updates are to be skipped; weights that are not.
    """
    order = minibatches(rollouts.group, learner.options, keyed_generator(learner.seed, "minibatches", updates))
    passes = [dataclasses.replace(learner, objective=part) for part in learner.objective.split()]
    plan = [(part, rows) for part in passes for rows in order]
    tracer.choose(order[-1], rollouts, credit)
    tally = Tally()
    for number, (part, rows) in enumerate(plan):
        watching = tracer if number == len(plan) - 1 else None
        piece = Tally()
        arguments = part, rollouts.rows(rows), prompts, credit.rows(rows), updates + number
        try:
            accumulate(*arguments, piece, rows, watching)
            if check is not None:  # an update that was skipped has moved nothing, so the next one is asked
                check(piece, learner)
                check = None
            with _blaming(*arguments, rows):
                if not math.isfinite(piece.loss):
                    raise NotFinite(f"the loss of {part.objective.name} is {piece.loss}")
                made = _descend(part, updates + number)
        except NotFinite as error:
            text = f"update {number + 1} of {len(plan)}: {error}"
            if learner.options.nonfinite == "stop":
                raise NotFinite(text, error.row) from error
            tally.skip(text)
            continue
        tally.include(piece)
        tally.add_update(*made)
    _require_finite_weights(learner)
    return tally


def minibatches(group: Tensor, options: Train, generator: torch.Generator) -> list[Tensor]:
    """Row indices of each update, shuffled in every epoch: whole groups, or single rows.

    A batch with fewer groups than minibatches makes fewer updates.
    """
    plan: list[Tensor] = []
    unit = group if options.minibatch_by == "groups" else torch.arange(len(group), device=group.device)
    for _ in range(options.epochs):
        units = torch.unique(unit)
        units = units[torch.randperm(len(units), generator=generator).to(group.device)]
        parts = [part for part in units.tensor_split(options.minibatches) if len(part)]
        plan += [torch.isin(unit, part).nonzero()[:, 0] for part in parts]
    return plan


def accumulate(
    learner: Learner,
    rollouts: Rollouts,
    prompts: Sequence[Sequence[int]],
    credit: Credit,
    update: int,
    tally: Tally,
    rows: Tensor | None = None,
    tracer: Tracer | None = None,
) -> None:
    """Leaves in `.grad` the gradient of the loss of one minibatch; its split into micro-batches changes nothing."""
    objective, forward = learner.objective, learner.forward
    for parameter in learner.parameters:
        # Zeros, not None: AdamW leaves a parameter without gradient alone, so a minibatch without live rows would
        # otherwise differ from one whose gradient is zero.
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
    totals = Totals.of(rollouts, learner.length)
    tally.add_minibatch(totals)
    if objective.scope == "batch":
        with torch.no_grad():
            seen = wanted(forward.policy(rollouts, prompts), objective.needs)
            with _naming(rows):
                everything = Batch(rollouts, credit, seen)
        credit = objective.observe(everything, keyed_generator(learner.seed, "observe", update)).credit
    for part in forward.splits(rollouts, prompts, live_rows(rollouts, credit, skip=learner.skips)):
        with _naming(part if rows is None else rows[part]):
            for at, batch, loss in forward.learn(objective, rollouts.rows(part), prompts, credit.rows(part), totals):
                tally.add(batch, loss)
                if tracer is not None and rows is not None:
                    tracer.add(rows[part[at]], batch, loss)


class _Search(Tracer):
    """Looks in place of a tracer for the part that broke a minibatch, and ends the evaluation where it is found."""

    def __init__(self, objective: Objective, totals: Totals) -> None:
        super().__init__(0)
        self._objective, self._totals = objective, totals

    def add(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        if found := broken(self._objective, batch, self._totals):
            raise _Found(dataclasses.replace(found, row=int(rows[found.row])))


class _Found(Exception):
    pass


@contextlib.contextmanager
def _blaming(
    learner: Learner, rollouts: Rollouts, prompts: Sequence[Sequence[int]], credit: Credit, update: int, rows: Tensor
) -> Iterator[None]:
    """Adds to an error of a whole minibatch the part of the objective that it comes from: evaluates it once more."""
    try:
        yield
    except NotFinite as error:
        search = _Search(learner.objective, Totals.of(rollouts, learner.length))
        try:
            accumulate(learner, rollouts, prompts, credit, update, Tally(), rows, search)
        except _Found as found:
            raise NotFinite(f"{error}: {found}") from error
        raise


@contextlib.contextmanager
def _naming(rows: Tensor | None) -> Iterator[None]:
    """An error in some rows names the row of the rollout batch, not that of the micro-batch."""
    try:
        yield
    except NotFinite as error:
        if error.row is None or rows is None:
            raise
        row = int(rows[error.row])
        raise NotFinite(f"row {row} of the rollout batch: {error}", row) from error


def _require_finite_weights(learner: Learner) -> None:
    """Raises where the updates themselves overflowed: that can't be undone, but the last checkpoint is whole."""
    trained = [(name, x) for name, x in learner.lm.model.named_parameters() if x.requires_grad]
    sound = torch.stack([torch.isfinite(x).all() for _, x in trained])
    if not sound.all():
        name = trained[int((~sound).nonzero()[0])][0]
        raise NotFinite(
            f"the update broke the weights {name}: lower train.lr (it is {learner.options.lr:g}) and go on from the "
            "last checkpoint"
        )


def live_rows(rollouts: Rollouts, credit: Credit, *, skip: bool) -> Tensor:
    """Rows [M] with a response and, where `skip` is set, with an advantage on some token."""
    live = ((credit.advantage != 0) & rollouts.mask).any(1) if skip else rollouts.mask.any(1)
    return live.nonzero()[:, 0]


def learning_rate(options: Train, update: int) -> float:
    """Of update 0, 1, ...: rises linearly over `warmup` updates, then stays."""
    return options.lr * min(1.0, (update + 1) / (options.warmup + 1))


def _descend(learner: Learner, update: int) -> tuple[Tensor, float]:
    rate = learning_rate(learner.options, update)
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    norm = torch.nn.utils.get_total_norm([x.grad for x in learner.parameters if x.grad is not None])
    # Before anything moves: one NaN in the norm would make every weight NaN.
    if not math.isfinite(float(norm)):
        grads = ((name, x.grad) for name, x in learner.lm.model.named_parameters() if x.grad is not None)
        bad = next((name for name, grad in grads if not torch.isfinite(grad).all()), None)
        raise NotFinite(f"the gradient of {bad} is not finite" if bad else "the norm of the gradient overflows")
    if learner.options.grad_clip is not None:
        torch.nn.utils.clip_grads_with_norm_(learner.parameters, learner.options.grad_clip, norm)
    learner.optimizer.step()
    return norm.detach(), rate
