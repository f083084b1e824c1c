"""The updates of an objective on a training client, which holds the weights and the optimiser.

A forward pass on the server gives the log-probabilities of an update's sequences. Their gradient is computed and
checked here, and a backward pass takes it to the weights.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from tinker import AdamParams, ModelInput, SamplingClient, TrainingClient
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import NotFinite, TokenPOError, present
from ...core.learner import Learner, Step, make_updates
from ...core.negotiation import warn
from ...core.objective import Objective
from ...core.on_policy import KLHold, RatioCheck
from ...core.types import Policy, Rollouts
from ...core.update import Update
from ...records import Tracer
from .gradient import CROSS_ENTROPY, SECONDS, Loss, scored, step
from .responses import RATIO, require

Prompts = Sequence[Sequence[int]]


class Trainer:
    """An objective, and the client that trains with it.

    Args:
        client: the client of a model on the server.
        objective: the objective that trains.
        length: the longest response allowed.
        seed: for the order of rows and an objective's random numbers.
        adam: the optimiser's settings, or a function from the number of the update to them.
        ratio: the check before the first update.
        kl: controls the KL of each rollout batch, by a factor on `adam`'s learning rate.
        loss: the server's loss that takes gradients to the weights, from `probe`.
        seconds: the longest wait for an answer of the server, whose errors are the client's own.

    Raises:
        Unsupported: the objective reads an input that no server gives.
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
        loss: Loss = CROSS_ENTROPY,
        seconds: float = SECONDS,
    ) -> None:
        require(objective)
        warn(objective)
        self.client, self.loss, self.seconds = client, loss, seconds
        self.learner = Learner(objective, length=length, seed=seed, ratio=ratio, kl=kl)
        self.adam = adam if callable(adam) else lambda number: adam or AdamParams()

    def score(self, rollouts: Rollouts, prompts: Prompts) -> Tensor:
        """[N, T] nats, under the server's current weights; `prompts` are the token ids of each group's prompt."""
        return _scores(rollouts, prompts, lambda sent: scored(self.client, sent, self.seconds))

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
        """Computes credit on a rollout batch, then makes passes x epochs x minibatches updates.

        Args:
            prompts: token ids of the prompt of each group.
            drawn: all drawn rollouts, for `Learner.begin`.
            tracer: keeps the last update of each traced response.
            skip: skip and count an update with numbers that are not finite.

        Warns where a part compares the old policy with the sampler and both have the same log-probabilities.

        Raises:
            NotFinite: naming the update, which has not moved the weights.
            Unsupported: before the first update the policy is not the one that sampled.
        """
        sampled, mask = rollouts.rollout_logprob, rollouts.mask
        idle = () if sampled is None else self.learner.objective.idle_as_sampled
        if idle and sampled is not None and torch.equal(sampled[mask], rollouts.old_logprob[mask]):
            told = f"{type(idle[0]).__name__} cannot act: take old_logprob from Trainer.score"
            warnings.warn(told, stacklevel=2)
        begun, trace = self.learner.begin(rollouts, drawn), tracer or Tracer(0)
        make_updates(
            self.learner,
            begun,
            lambda update: self._make(update, prompts, trace),
            lambda update: Policy(self.score(update.rollouts, prompts)),
            epochs=epochs,
            minibatches=minibatches,
            by=by,
            skip=skip,
            choose=trace.choose,
        )
        return begun

    def _make(self, update: Update, prompts: Prompts, tracer: Tracer) -> None:
        rows, width = _sent(update), update.rollouts.mask.shape[1]
        # `rows` are numbers in the batch, and an update holds only its own rows.
        sent = [_sequence(update.rollouts, row, prompts) for row in torch.searchsorted(update.rows, rows).tolist()]
        logprobs = scored(self.client, [tokens for tokens, _ in sent], self.seconds)
        table = _differentiated(update, rows, _table(logprobs, sent, width), tracer)
        adam = self.adam(update.number)
        adam = adam.model_copy(update={"learning_rate": adam.learning_rate * self.learner.rate})
        if not self.learner.check(update, lr=adam.learning_rate):
            return  # the KL of the batch ended it
        slopes = [torch.zeros_like(each) for each in logprobs]
        for slope, row, (_, start) in zip(slopes, table, sent, strict=True):
            slope[start - 1 :] = row[: len(slope) - start + 1]
        sequences = list(zip([tokens for tokens, _ in sent], logprobs, slopes, strict=True))
        step(self.client, sequences, self.loss, adam, self.seconds)


def _differentiated(update: Update, rows: Tensor, logprob: Tensor, tracer: Tracer) -> Tensor:
    """[M, T]: the gradient of an update's loss in the log-probabilities of the rows that were sent."""
    gradient = torch.zeros_like(logprob)
    if update.observes:
        whole = torch.zeros_like(update.rollouts.old_logprob)
        whole[torch.searchsorted(update.rows, rows)] = logprob
        update.observe(Policy(whole))
    live = update.live()
    if not len(live):
        return gradient
    places = torch.searchsorted(rows, live)
    leaf = logprob[places].requires_grad_()
    batch, loss = update.evaluate(Policy(leaf), live)
    tracer.watch(live, batch)
    loss.value.backward()
    tracer.add(live, batch, loss)
    slope = present(leaf.grad, "the gradient")
    if not (torch.isfinite(loss.value) and torch.isfinite(slope).all()):
        raise NotFinite(f"loss or gradient is not finite: {update.culprit(Policy(leaf), live)}")
    gradient[places] = slope
    return gradient


def _sent(update: Update) -> Tensor:
    """The rows of an update to send; at least one, because an optimiser step needs a backward pass before it."""
    has_token = update.rollouts.mask.any(1)
    if update.observes:
        return update.rows[has_token]
    live = update.live()
    return live if len(live) else update.rows[has_token][:1]


def _sequence(rollouts: Rollouts, row: int, prompts: Prompts) -> tuple[list[int], int]:
    """(tokens of prompt and response with a tool's answers, start of the response) of a row that has a token."""
    prompt, end = prompts[int(rollouts.group[row])], int(rollouts.mask[row].nonzero().max()) + 1
    return [*prompt, *rollouts.need("token_ids")[row, :end].tolist()], len(prompt)


def score(sampler: SamplingClient, rollouts: Rollouts, prompts: Prompts, seconds: float = SECONDS) -> Tensor:
    """[N, T] nats, the log-probabilities of the responses by a sampling client's model, at temperature 1.

    For `ref_logprob`, `teacher_logprob`. `prompts` are the token ids of each group's prompt.
    """

    def ask(sent: list[list[int]]) -> list[Tensor]:
        futures = [sampler.compute_logprobs(ModelInput.from_ints(tokens)) for tokens in sent]
        return [torch.tensor(future.result(seconds)[1:], dtype=torch.float32) for future in futures]

    return _scores(rollouts, prompts, ask)


def _scores(rollouts: Rollouts, prompts: Prompts, ask: Callable[[list[list[int]]], list[Tensor]]) -> Tensor:
    """[N, T] log-probabilities of the responses; `ask` scores each token except the first of some sequences."""
    rows = rollouts.mask.any(1).nonzero()[:, 0]
    sent = [_sequence(rollouts, row, prompts) for row in rows.tolist()]
    table = torch.zeros_like(rollouts.old_logprob)
    table[rows] = _table(ask([tokens for tokens, _ in sent]), sent, table.shape[1])
    return table


def _table(logprobs: Sequence[Tensor], sent: Sequence[tuple[list[int], int]], width: int) -> Tensor:
    """[M, T] of the responses, from the log-probabilities of whole sequences; 0 beyond a response."""
    for logprob, (tokens, _) in zip(logprobs, sent, strict=True):
        if len(logprob) != len(tokens) - 1:
            raise TokenPOError(
                f"the server gave {len(logprob)} log-probabilities for a sequence of {len(tokens)} tokens: take another"
            )
    responses = [logprob[start - 1 :] for logprob, (_, start) in zip(logprobs, sent, strict=True)]
    return pad_sequence([*responses, torch.zeros(width)], batch_first=True)[:-1]
