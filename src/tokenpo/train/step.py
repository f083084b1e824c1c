"""Several optimiser updates on one rollout batch.

Credit is computed once, on whole groups. Every update takes one minibatch, whose totals are the denominators of all of
its micro-batches: how it is split changes nothing. Rows that cannot have a gradient are not evaluated. An objective of
several passes goes through all minibatches once for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import Unsupported
from ..lm import LanguageModel
from ..objective import Objective
from ..sampling.seeds import keyed_generator
from ..types import Batch, Credit, Policy, Rollouts, Totals
from .config import Config, Train
from .forward import Forward
from .tally import Tally, Tracer

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


def improve(
    learner: Learner,
    rollouts: Rollouts,
    prompts: Sequence[Sequence[int]],
    credit: Credit,
    updates: int,
    tracer: Tracer,
    *,
    check_ratio: bool = False,
) -> Tally:
    """Trains on one rollout batch: passes x epochs x minibatches updates.

    Args:
        prompts: token ids of the prompt of each group.
        updates: made before; they key the order of the rows and set the learning rate.
        tracer: is shown the last minibatch.
        check_ratio: refuse to start when the policy is not the one that sampled.
    """
    order = minibatches(rollouts.group, learner.options, keyed_generator(learner.seed, "minibatches", updates))
    passes = [dataclasses.replace(learner, objective=part) for part in learner.objective.split()]
    plan = [(part, rows) for part in passes for rows in order]
    tracer.choose(order[-1], rollouts, credit)
    tally = Tally()
    for number, (part, rows) in enumerate(plan):
        watching = tracer if number == len(plan) - 1 else None
        accumulate(part, rollouts.rows(rows), prompts, credit.rows(rows), updates + number, tally, rows, watching)
        if check_ratio and number == 0:
            _require_ratio_one(tally, learner)
        tally.add_update(*_descend(learner, updates + number))
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
            everything = Batch(rollouts, credit, wanted(forward.policy(rollouts, prompts), objective.needs))
        credit = objective.observe(everything, keyed_generator(learner.seed, "observe", update)).credit
    for part in forward.splits(rollouts, prompts, live_rows(rollouts, credit, skip=learner.skips)):
        piece = rollouts.rows(part)
        batch = Batch(piece, credit.rows(part), wanted(forward.policy(piece, prompts), objective.needs))
        if tracer is not None and rows is not None:
            tracer.watch(rows[part], batch)
        loss = objective.loss(batch, totals)
        loss.value.backward()
        tally.add(batch, loss)
        if tracer is not None and rows is not None:
            tracer.add(rows[part], batch, loss)


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
    limit = learner.options.grad_clip
    norm = torch.nn.utils.clip_grad_norm_(learner.parameters, float("inf") if limit is None else limit)
    learner.optimizer.step()
    return norm.detach(), rate


def wanted(policy: Policy, needs: frozenset[str]) -> Policy:
    """Exactly what the objective asked for, so that it cannot come to depend on more."""
    return dataclasses.replace(
        policy,
        entropy=policy.entropy if "entropy" in needs else None,
        entropy_drift=policy.entropy_drift if "entropy_drift" in needs else None,
    )


def _require_ratio_one(tally: Tally, learner: Learner) -> None:
    """Before the first update the policy is the one that sampled: the two forward passes must agree.

    In half precision single unlikely tokens may be far off, so there the mean is what counts.

    Raises:
        Unsupported: sampler and trainer disagree.
    """
    worst, mean = tally.disagreement()
    half = learner.options.autocast and learner.lm.device.type != "cpu"
    half = half or next(learner.lm.model.parameters()).dtype in (torch.float16, torch.bfloat16)
    seen, name = (mean, "mean") if half else (worst, "largest")
    limit = learner.options.ratio_tolerance or (HALF_TOLERANCE if half else FULL_TOLERANCE)
    if not seen <= limit:
        raise Unsupported(
            f"{learner.objective.name}: before the first update the ratio of new to old policy is not 1: the {name} "
            f"|log-prob of the trainer - log-prob of the sampler| is {seen:.2g} nats, above {limit:g}. Set "
            "rollout.rescore = true, which takes the old log-probs from the trainer's own forward pass, model.dtype = "
            "'float32', or a larger train.ratio_tolerance"
        )
