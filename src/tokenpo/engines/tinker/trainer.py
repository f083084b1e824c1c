"""The updates of an objective on a training client, which holds the weights and the optimiser.

`forward_backward_custom` makes a forward pass, calls our loss with the log-probabilities of all its sequences at once,
and makes a backward pass with the gradient in them. It divides by nothing, so denominators, groups and everything else
are the learner's, and how the client splits sequences into requests changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from tinker import AdamParams, APIFuture, Datum, ModelInput, TrainingClient
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import NotFinite, present
from ...core.kl_hold import KLHold
from ...core.learner import Learner, Step
from ...core.objective import Objective
from ...core.ratio_check import RatioCheck
from ...core.types import Policy, Rollouts
from ...core.update import Update
from ...recipe.config import Train
from ...runs.records import Tracer
from ...runs.updates import make_updates
from .answers import Answers, Nonsense, require_scores
from .needs import RATIO, require

Prompts = Sequence[Sequence[int]]


class Trainer:
    """An objective, and the client that trains with it.

    Args:
        client: of a model on the server.
        objective: what is learnt.
        length: the longest response allowed.
        seed: of the order of rows and of what an objective draws.
        adam: the optimiser's settings, or a function from the number of the update to them.
        ratio: the check before the first update.
        kl: holds the KL of each rollout batch; `adam`'s learning rate is multiplied by the learner's.
        answers: how long the server is waited for, and how it is called in messages.

    Raises:
        Unsupported: the objective reads what no server gives.
    """

    def __init__(
        self,
        client: TrainingClient,
        objective: Objective,
        *,
        length: int,
        seed: int = 0,
        adam: AdamParams | Callable[[int], AdamParams] | None = None,
        ratio: RatioCheck | None = RATIO,
        kl: KLHold | None = None,
        answers: Answers | None = None,
    ) -> None:
        require(objective)
        self.client, self.answers = client, answers or Answers()
        self.learner = Learner(objective, length=length, seed=seed, ratio=ratio, kl=kl)
        self.adam = adam if callable(adam) else lambda number: adam or AdamParams()

    def score(self, rollouts: Rollouts, prompts: Prompts) -> Tensor:
        """[N, T] nats: log-probabilities by the server's trainer as its weights are.

        Args:
            prompts: token ids of the prompt of each group.
        """
        rows = rollouts.mask.any(1).nonzero()[:, 0]
        data = _data(rollouts, rows, prompts)
        told = self.answers.one(lambda: self.client.forward(data, "cross_entropy"), "in a forward pass")
        found = torch.zeros_like(rollouts.old_logprob)
        with self.answers.asking("in a forward pass"):
            outputs = [out["logprobs"].to_torch() for out in told.loss_fn_outputs]
            found[rows] = _aligned(outputs, data, rollouts, rows, prompts)
        return found

    def train(
        self,
        rollouts: Rollouts,
        prompts: Prompts,
        *,
        drawn: Rollouts | None = None,
        epochs: int = 1,
        minibatches: int = 1,
        by: Literal["groups", "rows"] = "groups",
        tracer: Tracer | None = None,
        skip: bool = False,
    ) -> Step:
        """Credit on a rollout batch, then passes x epochs x minibatches updates.

        Args:
            prompts: token ids of the prompt of each group.
            drawn: all that was drawn, as `Learner.begin` takes it.
            tracer: keeps of every response the last update that it is in.
            skip: leave out, and count, an update whose numbers are not finite.

        Raises:
            NotFinite: naming the update; the weights have not moved by it.
            Unsupported: the policy is not the one that sampled, before anything has moved it.
            TokenPOError: the server failed.
        """
        step = self.learner.begin(rollouts, drawn)
        nonfinite = "skip" if skip else "stop"
        options = Train(epochs=epochs, minibatches=minibatches, minibatch_by=by, nonfinite=nonfinite)
        self.improve(step, prompts, tracer or Tracer(0), options)
        return step

    def improve(self, step: Step, prompts: Prompts, tracer: Tracer, options: Train) -> None:
        """The updates of `train`, as a recipe has them."""

        def make(update: Update) -> None:
            self._make(update, prompts, tracer)

        def judge(update: Update) -> Policy:
            return Policy(self.score(update.rollouts, prompts))

        make_updates(self.learner, step, make, judge, tracer, options)

    def _make(self, update: Update, prompts: Prompts, tracer: Tracer) -> None:
        rows = _sent(update)
        loss = _CustomLoss(self, update, rows, prompts, tracer)
        # Of all rows of the batch, as rows are places in it; an update holds its own alone.
        data = _data(update.rollouts, torch.searchsorted(update.rows, rows), prompts)
        self.answers.one(lambda: self.client.forward_backward_custom(data, loss), "in an update")
        if loss.error is not None:
            raise loss.error
        if (stepped := loss.stepped) is not None:  # the KL of the batch did not end it
            self.answers.one(lambda: stepped, "in a step of the optimiser")


class _CustomLoss:
    """The loss of one update, called once on a thread of the client's; its outcome is in `error` and `stepped`.

    It must not raise, but for nonsense: a client whose loss has failed takes no more requests. So the gradient at the
    log-probabilities is taken here, where it can be refused, and the client gets the linear function with that
    gradient. The step of the optimiser is requested here too, behind the backward pass, which saves a round trip.
    """

    def __init__(self, trainer: Trainer, update: Update, rows: Tensor, prompts: Prompts, tracer: Tracer) -> None:
        self.trainer, self.update, self.rows, self.prompts, self.tracer = trainer, update, rows, prompts, tracer
        self.error: Exception | None = None
        self.stepped: APIFuture | None = None

    def __call__(self, data: list[Datum], logprobs: list[Tensor]) -> tuple[Tensor, dict[str, float]]:
        places = torch.searchsorted(self.update.rows, self.rows)
        table = _aligned(logprobs, data, self.update.rollouts, places, self.prompts)
        try:
            with torch.enable_grad():
                value, gradient = self._differentiated(table.detach())
            learner, adam = self.trainer.learner, self.trainer.adam(self.update.number)
            adam = adam.model_copy(update={"learning_rate": adam.learning_rate * learner.rate})
            if learner.check(self.update, lr=adam.learning_rate):
                self.stepped = self.trainer.client.optim_step(adam)
            else:
                value, gradient = 0.0, torch.zeros_like(table)
        except Exception as error:
            self.error = error
            value, gradient = 0.0, torch.zeros_like(table)
        return value + (gradient * (table - table.detach())).sum(), {}

    def _differentiated(self, logprob: Tensor) -> tuple[float, Tensor]:
        """The update's loss, and its gradient [M, T] in the log-probabilities of the rows that were sent."""
        update, gradient = self.update, torch.zeros_like(logprob)
        if update.observes:
            whole = torch.zeros_like(update.rollouts.old_logprob)
            whole[torch.searchsorted(update.rows, self.rows)] = logprob
            update.observe(Policy(whole))
        live = update.live()
        if not len(live):
            return 0.0, gradient
        places = torch.searchsorted(self.rows, live)
        leaf = logprob[places].requires_grad_()
        batch, loss = update.evaluate(Policy(leaf), live)
        self.tracer.watch(live, batch)
        loss.value.backward()
        self.tracer.add(live, batch, loss)
        slope = present(leaf.grad, "the gradient")
        if not (torch.isfinite(loss.value) and torch.isfinite(slope).all()):
            raise NotFinite(f"loss or gradient is not finite: {update.culprit(Policy(leaf), live)}")
        gradient[places] = slope
        return loss.value.item(), gradient


def _sent(update: Update) -> Tensor:
    """Rows of an update for the server, at least one: the optimiser's step wants a backward pass before it."""
    spoken = update.rollouts.mask.any(1)
    if update.observes:
        return update.rows[spoken]
    live = update.live()
    return live if len(live) else update.rows[spoken][:1]


def sequence(rollouts: Rollouts, row: int, prompts: Prompts) -> tuple[list[int], int]:
    """Prompt and response of a row that has a token, with a tool's answers; and where the response begins."""
    prompt, end = prompts[int(rollouts.group[row])], int(rollouts.mask[row].nonzero().max()) + 1
    return [*prompt, *rollouts.need("token_ids")[row, :end].tolist()], len(prompt)


def _data(rollouts: Rollouts, rows: Tensor, prompts: Prompts) -> list[Datum]:
    """Rows as sequences whose position t scores token t + 1."""
    data = []
    for row in rows.tolist():
        tokens, _ = sequence(rollouts, row, prompts)
        inputs = {"target_tokens": tokens[1:], "weights": [0.0] * (len(tokens) - 1)}
        data.append(Datum(ModelInput.from_ints(tokens[:-1]), inputs))
    return data


def _aligned(
    logprobs: Sequence[Tensor], sent: Sequence[Datum], rollouts: Rollouts, rows: Tensor, prompts: Prompts
) -> Tensor:
    """[M, T] of these rows, from the log-probabilities of the sequences that were sent; 0 beyond a response.

    Raises:
        Nonsense: they are not the log-probabilities of those.
    """
    if len(logprobs) != len(sent):
        raise Nonsense(f"it scored {len(logprobs)} sequences, and was sent {len(sent)}")
    for logprob, datum in zip(logprobs, sent, strict=True):
        require_scores(logprob, datum.model_input.length)
    starts = [len(prompts[int(group)]) - 1 for group in rollouts.group[rows]]
    responses = [logprob[start:] for logprob, start in zip(logprobs, starts, strict=True)]
    width = rollouts.mask.shape[1]
    return pad_sequence([*responses, torch.zeros(width)], batch_first=True)[:-1]
