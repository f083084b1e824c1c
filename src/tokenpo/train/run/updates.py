"""The updates on one rollout batch: forward and backward passes, the optimiser, and a critic.

The learner has rows, credit, denominators and checks. The split into forward passes changes no number, and rows that
cannot have a gradient are not evaluated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import NotFinite
from ...core.culprit import broken
from ...core.head.softmax import wide
from ...core.head.teacher import Teacher as TeacherHead
from ...core.learner import Learner, Step, make_updates
from ...core.objective import Objective
from ...core.on_policy import HALF_TOLERANCE, RatioCheck
from ...core.ops.masked import unpacked
from ...core.request_temperature import TemperatureRule
from ...core.types import Batch, Loss, Policy, Rollouts
from ...core.update import Update
from ...records import Tracer
from ..models import LanguageModel, score
from ..models.half import move_gradients, refresh
from ..models.score import Predictions, has_plain_head, predictions
from ..recipe import config as recipe
from ..recipe.config import Config, Train
from .checkpoint import Trained


class ValueHead(torch.nn.Module):
    """V = w · h + b, where h is the final hidden state that predicts a token; float32 at least; 0 before training.

    Attributes:
        batches: number of rollout batches that it was trained on.
    """

    batches: Tensor

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__()
        zeros = {"dtype": wide(lm.model.dtype), "device": lm.device}
        width = lm.model.get_output_embeddings().weight.shape[1]
        self.weight, self.bias = (torch.nn.Parameter(torch.zeros(shape, **zeros)) for shape in ((width,), ()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, hidden: Tensor) -> Tensor:
        """[M] from [M, H]."""
        return hidden.to(self.weight.dtype) @ self.weight + self.bias


@dataclass(frozen=True)
class Critic:
    head: ValueHead
    optimizer: torch.optim.Optimizer
    options: recipe.Critic

    @staticmethod
    def of(options: recipe.Critic, lm: LanguageModel) -> Critic:
        head = ValueHead(lm)
        # Adam moves every weight by about lr. With lr / H for w, the bias learns the level of V, not H weights at once.
        weight = {"params": [head.weight], "lr": options.lr / len(head.weight)}
        return Critic(head, torch.optim.Adam([weight, {"params": [head.bias]}], lr=options.lr), options)

    @property
    def alone(self) -> bool:
        """Whether the next rollout batch belongs to the warm-up, which trains only the critic."""
        return int(self.head.batches) < self.options.warmup

    def loss(self, update: Update, rows: Tensor, hidden: Tensor) -> Tensor:
        """The critic's loss on some rows of an update; hidden [M, H] are the states that predict their tokens."""
        mask = update.of(rows)[0].mask
        value = self.head(hidden if self.options.shared else hidden.detach())
        return update.value_loss(unpacked(value, mask), rows).value

    def check(self) -> None:
        """Raises NotFinite if the gradient is not finite."""
        norm = float(torch.nn.utils.get_total_norm([x.grad for x in self.head.parameters() if x.grad is not None]))
        if not math.isfinite(norm):
            raise NotFinite(f"the norm of the critic's gradient is {norm}")


Taught = Callable[[Tensor], TeacherHead]  # rows of the step -> the teacher on their tokens


@dataclass(frozen=True)
class Forward:
    lm: LanguageModel
    micro_rows: int  # largest number of rows of one pass
    micro_tokens: int  # largest number of tokens of one pass: rows x (longest prompt + longest response)
    drift: bool = False  # also Policy.entropy_drift
    entropy_grad: bool = False  # keep the graph of the entropy
    critic: Critic | None = None

    def splits(self, rollouts: Rollouts, prompts: Sequence[Sequence[int]], rows: Tensor) -> list[Tensor]:
        """Splits `rows` [M] into parts that fit the budget, longest first; a single row always fits."""
        length, group = torch.stack([rollouts.mask.sum(1), rollouts.group]).tolist()
        prompt = [len(prompts[one]) for one in group]
        order = sorted(rows.tolist(), key=lambda row: -(prompt[row] + length[row]))
        parts: list[list[int]] = []
        widest = (0, 0)
        for row in order:
            wider = max(widest[0], prompt[row]), max(widest[1], length[row])
            size = len(parts[-1]) + 1 if parts else 0
            if parts and size <= self.micro_rows and size * sum(wider) <= self.micro_tokens:
                parts[-1].append(row)
                widest = wider
            else:
                parts.append([row])
                widest = prompt[row], length[row]
        return [torch.tensor(part, device=rows.device) for part in parts]

    def policy(self, rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Policy:
        """Log-prob, with graph unless gradients are off, and entropy [M, T]; `group` is an index into `prompts`."""
        more = {"drift": self.drift, "entropy_grad": self.entropy_grad, "max_tokens": self.micro_tokens}
        return score(self.lm, *texts(rollouts, prompts), kept=rollouts.kept_ids, **more)

    def learn(
        self, update: Update, rows: Tensor, prompts: Sequence[Sequence[int]], taught: Taught | None = None
    ) -> Iterator[tuple[Tensor, Batch, Loss]]:
        """Adds the gradient of these rows' loss to the parameters' `.grad`; yields rows, batch and loss of each pass.

        If the head is plain, loss and head are evaluated together and no logits are kept.
        """
        rollouts, _ = update.of(rows)
        # The gradient of a copy's head is summed in the original's float32.
        head = self.lm.trained.model.get_output_embeddings()
        half = torch.autocast(self.lm.device.type, torch.bfloat16, enabled=self.lm.master is not None)
        if not has_plain_head(self.lm):
            batch, loss = update.evaluate(self.policy(rollouts, prompts), rows)
            batch.policy.logprob.retain_grad()
            loss.value.backward()
            move_gradients(self.lm)
            yield rows, batch, loss
            return
        for seen in self.passes(rollouts, prompts):
            part = rows[seen.row.unique_consecutive()]  # in the order of their tokens
            with half:
                batch, fused = update.evaluate_head(
                    seen.out, head.weight, part, bias=head.bias, in_place=True, teacher=taught and taught(part)
                )
            whole = fused.loss.value
            if self.critic is not None:
                whole = whole + self.critic.loss(update, part, seen.out)
            if whole.requires_grad:
                whole.backward()
            move_gradients(self.lm)
            yield part, batch, fused.loss

    def learn_value(self, critic: Critic, update: Update, rows: Tensor, prompts: Sequence[Sequence[int]]) -> None:
        """Adds the gradient of the critic's loss on these rows to `.grad` of its head only."""
        with torch.no_grad():
            seen = [(rows[x.row.unique_consecutive()], x.out) for x in self.passes(update.of(rows)[0], prompts)]
        for part, hidden in seen:
            critic.loss(update, part, hidden).backward()

    @torch.no_grad()
    def value(self, critic: Critic, rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Tensor:
        """[N, T] the current critic's value before each token; 0 outside the mask."""
        table = torch.zeros(rollouts.mask.shape, device=self.lm.device)
        for seen in self.passes(rollouts, prompts):
            table[seen.row, seen.column] = critic.head(seen.out).float()
        return table

    def passes(self, rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Iterator[Predictions]:
        return predictions(self.lm, *texts(rollouts, prompts), self.micro_tokens)


def texts(
    rollouts: Rollouts, prompts: Sequence[Sequence[int]]
) -> tuple[list[list[int]], Tensor, Tensor, Tensor, Tensor]:
    """(prompts in use, number of each row's prompt, token ids, mask and temperature [N, T])."""
    used, of_row = torch.unique(rollouts.group, return_inverse=True)
    mine = [list(prompts[group]) for group in used.tolist()]
    mask, heat = rollouts.mask, rollouts.need("temperature")
    return mine, of_row, rollouts.need("token_ids"), mask, heat.where(mask, 1.0)


Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Trainer:
    lm: LanguageModel
    learner: Learner
    forward: Forward
    optimizer: torch.optim.Optimizer
    options: Train

    @staticmethod
    def of(config: Config, lm: LanguageModel, objective: Objective) -> Trainer:
        options, length = config.train, config.rollout.max_new_tokens
        trainable = [x for x in lm.trained.model.parameters() if x.requires_grad]
        optimizer = torch.optim.AdamW(
            trainable,
            lr=options.lr,
            betas=options.betas,
            eps=options.eps,
            weight_decay=options.weight_decay,
            fused=lm.master is not None,
        )
        drift, bonus = "entropy_drift" in objective.needs, objective.entropy_gradient
        critic = Critic.of(config.critic or recipe.Critic(), lm) if objective.critic else None
        forward = Forward(lm, options.micro_rows, options.micro_tokens, drift, bonus, critic)
        check = ratio_check(options, lm)
        learner = Learner(objective, length=length, seed=config.seed, ratio=check, kl=options.kl_hold())
        return Trainer(lm, learner, forward, optimizer, options)

    @property
    def critic(self) -> Critic | None:
        return self.forward.critic

    @property
    def trained(self) -> tuple[Trained, Trained | None]:
        """The contents of a checkpoint: the model, and the value head if there is one, each with its optimiser."""
        critic = self.critic
        return (self.lm.trained.model, self.optimizer), critic and (critic.head, critic.optimizer)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [x for group in self.optimizer.param_groups for x in group["params"]]

    def rule(self) -> TemperatureRule | None:
        """The objective's adaptive temperature with the scale of the previous batch; None without one."""
        adaptive = self.learner.objective.temperature
        return None if adaptive is None else functools.partial(adaptive, numbers=self.learner.memory[adaptive])


def ratio_check(options: Train, lm: LanguageModel) -> RatioCheck:
    """The check before the first update; its tolerance is tighter in full precision than in half."""
    remedy = (
        "set rollout.rescore = true, which takes the old log-probs from the trainer's own forward pass, model.dtype = "
        "'float32', or a larger train.ratio_tolerance"
    )
    if lm.model.dtype in (torch.float16, torch.bfloat16):
        return RatioCheck("the embedded engine", remedy, options.ratio_tolerance or HALF_TOLERANCE, "mean")
    return RatioCheck("the embedded engine", remedy, options.ratio_tolerance or RatioCheck.tolerance)


def improve(
    trainer: Trainer, step: Step, prompts: Prompts, tracer: Tracer, most: int | None = None,
    taught: Taught | None = None,
) -> None:  # fmt: skip
    """Trains on one rollout batch, as `make_updates` does; `prompts` are token ids of the prompt of each group.

    Raises:
        NotFinite: a loss or gradient is not finite, unless such updates are skipped; or a weight is not finite.
    """

    critic = trainer.critic

    def make(update: Update) -> None:
        if critic is not None and critic.alone:
            _warm_up(trainer, critic, step, update, prompts)
            return
        for places, batch, loss in gradients(trainer, update, prompts, taught):
            tracer.add(places, batch, loss)
        with _blaming(trainer, update, prompts, taught):
            _descend(trainer, update)

    @torch.no_grad()
    def judge(update: Update) -> Policy:
        return trainer.forward.policy(update.rollouts, prompts)

    options = trainer.options.minibatch_options()
    make_updates(trainer.learner, step, make, judge, **options, choose=tracer.choose, most=most)
    if critic is not None:
        critic.head.batches += 1
    _require_finite_weights(trainer)


def gradients(
    trainer: Trainer, update: Update, prompts: Prompts, taught: Taught | None = None
) -> Iterator[tuple[Tensor, Batch, Loss]]:
    """Puts the gradient of the update's loss into `.grad`; yields rows, batch and loss of each forward pass."""
    forward = trainer.forward
    trainer.optimizer.zero_grad()
    if trainer.critic is not None:
        trainer.critic.optimizer.zero_grad()
    if update.observes:
        with torch.no_grad():
            update.observe(forward.policy(update.rollouts, prompts))
    live = torch.searchsorted(update.rows, update.live())
    for part in forward.splits(update.rollouts, prompts, live):
        yield from forward.learn(update, update.rows[part], prompts, taught)
    for parameter in trainer.parameters:
        # Zeros, not None: AdamW skips a parameter without gradient, so a minibatch without live rows would differ from
        # one whose gradient is zero.
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _descend(trainer: Trainer, update: Update) -> None:
    """Makes the optimiser step after the learner's check, because one NaN would make every weight NaN."""
    rate = trainer.options.rate(update.number) * trainer.learner.rate
    for group in trainer.optimizer.param_groups:
        group["lr"] = rate
    if trainer.critic is not None:
        trainer.critic.check()
    norm = torch.nn.utils.get_total_norm([x.grad for x in trainer.parameters if x.grad is not None])
    if not trainer.learner.check(update, norm, rate):
        return
    if trainer.options.grad_clip is not None:
        torch.nn.utils.clip_grads_with_norm_(trainer.parameters, trainer.options.grad_clip, norm)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()  # before sampling, as it frees their memory
    refresh(trainer.lm)
    if trainer.critic is not None:
        trainer.critic.optimizer.step()


def _warm_up(trainer: Trainer, critic: Critic, step: Step, update: Update, prompts: Prompts) -> None:
    """Updates the critic only; the learner does not count it, because the policy has not moved."""
    critic.optimizer.zero_grad()
    for part in trainer.forward.splits(update.rollouts, prompts, torch.searchsorted(update.rows, update.live())):
        trainer.forward.learn_value(critic, update, update.rows[part], prompts)
    critic.check()
    critic.optimizer.step()
    step.statistics.include(update.statistics)
    step.statistics.add_update(torch.zeros(()), 0.0)


@contextlib.contextmanager
def _blaming(trainer: Trainer, update: Update, prompts: Prompts, taught: Taught | None) -> Iterator[None]:
    """Context manager: adds the origin to a NotFinite of a whole update, by evaluating the update once more."""
    try:
        yield
    except NotFinite as error:
        grads = ((name, x.grad) for name, x in trainer.lm.trained.model.named_parameters() if x.grad is not None)
        bad = next((name for name, grad in grads if not torch.isfinite(grad).all()), None)
        for places, batch, _ in gradients(trainer, update, prompts, taught):
            if found := broken(update.objective, batch, update.totals):
                found = dataclasses.replace(found, row=int(places[found.row]))
                raise NotFinite(f"{error}: {found}") from error
        raise NotFinite(f"{error}: the gradient of {bad} is not finite") if bad else error from error


def _require_finite_weights(trainer: Trainer) -> None:
    """Raises NotFinite if the updates overflowed a weight; only the last checkpoint can be used then."""
    trained = [(name, x) for name, x in trainer.lm.trained.model.named_parameters() if x.requires_grad]
    largest = torch.stack([torch.linalg.vector_norm(x.detach(), torch.inf) for _, x in trained])
    sound = torch.isfinite(largest)
    if not sound.all():
        name = trained[int((~sound).nonzero()[0])][0]
        raise NotFinite(f"the update broke the weights {name}: lower train.lr and go on from the last checkpoint")
