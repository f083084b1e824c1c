"""How a gradient in log-probabilities reaches the weights on a server, and a probe of whether it does.

A built-in loss of the server's takes it there: `cross_entropy` with weights = -gradient. A server may divide the loss
of each sequence by the sum of its weights (SkyRL's does), which for a gradient can be 0 or less. `importance_sampling`
has no weights, so that such a server divides by the length: at ratio 1, advantages = -gradient x length undo that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from tinker import AdamParams, Datum, ModelInput, TrainingClient
from torch import Tensor

from ...base.errors import TokenPOError
from .answers import Answer, Answers, Nonsense, require_scores
from .needs import refuse_gradient

Loss = Literal["cross_entropy", "importance_sampling"]
# Two sequences that begin alike: where both begin, a gradient in either moves the same log-probabilities alike.
TOKENS, SHORT = [7, 5, 11, 6, 9, 13, 8, 10, 12, 14, 6, 11, 3, 15, 4, 9, 7, 12, 5, 10, 8, 13, 3, 14, 6], 9
SMALLEST, AIM, LARGEST = 0.05, 0.1, 0.2  # nats by which a step of the probe moves them in the mean
TOLERANCE = 0.3  # of that: half precision and curvature; the faults that are looked for are factors
# Gradients in those of one and of the other. The small one is first: its fault leaves weights that can still be moved;
# the two halves together move them as far as the whole, so that curvature is no fault.
GRADIENTS = [(-1e-3, 0.0), (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (-1e-3, 1e-3), (-1.0, 1.0), (-0.5, -0.5)]


def datum(tokens: Sequence[int], logprob: Tensor, slope: Tensor, loss: Loss) -> Datum:
    """A sequence whose position t scores token t + 1, with the gradient `slope` [L] at log-probabilities [L]."""
    fields: dict[str, Tensor] = {"weights": -slope}
    if loss == "importance_sampling":
        fields = {"logprobs": logprob, "advantages": -slope * len(slope)}
    inputs: Any = {"target_tokens": list(tokens[1:]), **{name: each.tolist() for name, each in fields.items()}}
    return Datum(ModelInput.from_ints(list(tokens[:-1])), inputs)


def scored(
    client: TrainingClient, sequences: Sequence[Sequence[int]], answers: Answers, doing: str = "in a forward pass"
) -> list[Tensor]:
    """The log-probability of each token of these sequences but the first, by the server's trainer as its weights are.

    Raises:
        TokenPOError: the server failed, or these are not the log-probabilities of those.
    """
    zeros = [torch.zeros(len(one) - 1) for one in sequences]
    data = [datum(one, zero, zero, "cross_entropy") for one, zero in zip(sequences, zeros, strict=True)]
    told = answers.one(lambda: client.forward(data, "cross_entropy"), doing)
    with answers.asking(doing):
        found = [out["logprobs"].to_torch() for out in _outputs(told, data)]
        for logprob, zero in zip(found, zeros, strict=True):
            require_scores(logprob, len(zero))
    return found


def step(client: TrainingClient, data: list[Datum], loss: Loss, adam: AdamParams, answers: Answers) -> None:
    """A backward pass and the optimiser's step, which is asked for without waiting: that saves a round trip."""
    asks: list[Callable[[], Answer[Any]]] = [
        lambda: client.forward_backward(data, loss),
        lambda: client.optim_step(adam),
    ]
    told, _ = answers.all(asks, "in an update", tries=1)
    with answers.asking("in an update"):
        _outputs(told, data)


def _outputs(told: Any, data: list[Datum]) -> list[Any]:
    """Of each sequence that was sent."""
    if len(told.loss_fn_outputs) != len(data):
        raise Nonsense(f"it scored {len(told.loss_fn_outputs)} sequences, and was sent {len(data)}")
    return told.loss_fn_outputs


def probe(create: Callable[[], TrainingClient], answers: Answers | None = None) -> Loss:
    """The server's loss that takes a gradient to the weights as it is: linear, additive and with its sign.

    Args:
        create: makes a training client that nothing else uses, as the probe moves its weights.

    Raises:
        Unsupported: no loss does.
        TokenPOError: the server failed.
    """
    answers = answers or Answers()
    faults = []
    for loss in get_args(Loss):
        try:
            fault = _Probe(answers.one(create, "when asked for a model to probe"), loss, answers).fault()
        except TokenPOError as error:
            if not faults:
                raise
            fault = str(error)
        if not fault:
            return loss
        faults.append(f"with {loss} {fault}")
    return refuse_gradient(answers.server, faults)


class _Probe:
    """Steps of plain gradient descent: Adam without memory, whose eps is far above the gradient."""

    def __init__(self, client: TrainingClient, loss: Loss, answers: Answers) -> None:
        self.client, self.answers, self.rate = client, answers, 1e-4
        self.loss: Loss = loss
        self.sequences = [TOKENS[:SHORT], TOKENS]
        self.logprobs = scored(client, self.sequences, answers)

    def moved(self, gradient: tuple[float, float]) -> float:
        """Nats by which a step raises these log-probabilities, against a gradient in those of the one and the other."""
        data = []
        for tokens, logprob, each in zip(self.sequences, self.logprobs, gradient, strict=True):
            slope = torch.zeros_like(logprob)
            slope[: SHORT - 1] = each
            data.append(datum(tokens, logprob, slope, self.loss))
        adam = AdamParams(learning_rate=self.rate, beta1=0.0, beta2=0.0, eps=1.0)
        step(self.client, data, self.loss, adam, self.answers)
        before, self.logprobs = self.logprobs, scored(self.client, self.sequences, self.answers)
        return float((self.logprobs[0] - before[0]).mean())

    def fault(self) -> str:
        """What is wrong with the gradient; empty where nothing is."""
        size = self.moved((-1.0, 0.0))
        for _ in range(7):
            if SMALLEST <= size <= LARGEST:
                break
            self.rate *= min(max(AIM / size, 0.01), 100.0) if size > 0 else 100.0
            size = self.moved((-1.0, 0.0))
        if not SMALLEST <= size <= LARGEST:
            return f"steps against the gradient -1 of a log-probability change it by {size:.3g} nats"
        for short, long in GRADIENTS:
            expected, found = -(short + long) * size, self.moved((short, long))
            if not abs(found - expected) <= TOLERANCE * size:
                return f"the gradient ({short:g}, {long:g}) changed {found:.3g} nats where {expected:.3g} were expected"
        return ""
