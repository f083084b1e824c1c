"""Takes a gradient in log-probabilities to the weights on a server, and probes whether the server does so.

`cross_entropy` with weights = -gradient does. Some servers (SkyRL's) divide each sequence's loss by the sum of its
weights; with `importance_sampling` they divide by the length, which advantages = -gradient x length undo at ratio 1.
A server that divides a step's gradient by its number of sequences gets the gradient times that number.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from tinker import AdamParams, Datum, ModelInput, TrainingClient
from torch import Tensor

from ...base.errors import Unsupported

Name = Literal["cross_entropy", "importance_sampling"]
SECONDS = 3600.0  # the longest wait for an answer


class Loss(NamedTuple):
    """A loss of the server; `mean`: the server divides a step's gradient by its number of sequences."""

    name: Name
    mean: bool = False


CROSS_ENTROPY = Loss("cross_entropy")
# Two sequences with the same beginning: there a gradient in either one moves the same log-probabilities equally.
# Ordinary text: on tokens that a model has never seen, such as the reserved first ids, steps of this size overshoot.
TEXT = "The sum of two and three is five. If you add four more, you get nine, and then one makes ten apples in all."
LONG, SHORT = 25, 9  # tokens
SMALLEST, AIM, LARGEST = 0.04, 0.08, 0.12  # nats, mean change of these log-probabilities by a step of the probe
TOLERANCE = 0.3  # of that change: allows for half precision and curvature; real faults are whole factors
# Gradients in the short and the long sequence. The small one is first, because a fault there leaves usable weights. The
# two halves together move as far as a whole one, so curvature is not taken for a fault.
GRADIENTS = [(-1e-3, 0.0), (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (-1e-3, 1e-3), (-1.0, 1.0), (-0.5, -0.5)]
# Along the shared positions: a gradient that lands one position further goes the other way.
ALTERNATING = 2.0 * (-1.0) ** torch.arange(SHORT - 1)


def datum(tokens: Sequence[int], logprob: Tensor, slope: Tensor, loss: Loss) -> Datum:
    """A sequence whose position t scores token t + 1, with the gradient `slope` [L] at log-probabilities [L]."""
    fields: dict[str, Tensor] = {"weights": -slope}
    if loss.name == "importance_sampling":
        fields = {"logprobs": logprob, "advantages": -slope * len(slope)}
    inputs: Any = {"target_tokens": list(tokens[1:]), **{name: each.tolist() for name, each in fields.items()}}
    return Datum(ModelInput.from_ints(list(tokens[:-1])), inputs)


def scored(client: TrainingClient, sequences: Sequence[Sequence[int]], seconds: float) -> list[Tensor]:
    """The log-probability of each token but the first of each sequence."""
    zeros = [torch.zeros(len(one) - 1) for one in sequences]
    data = [datum(one, zero, zero, CROSS_ENTROPY) for one, zero in zip(sequences, zeros, strict=True)]
    answer = client.forward(data, "cross_entropy").result(seconds)
    return [out["logprobs"].to_torch() for out, _ in zip(answer.loss_fn_outputs, data, strict=True)]


def step(
    client: TrainingClient,
    sent: Sequence[tuple[Sequence[int], Tensor, Tensor]],
    loss: Loss,
    adam: AdamParams,
    seconds: float,
) -> None:
    """A backward pass and an optimiser step, which is requested without waiting: that saves a round trip.

    `sent` are the tokens of each sequence, with log-probability and gradient [L] of all but the first.
    """
    scale = len(sent) if loss.mean else 1
    data = [datum(tokens, logprob, slope * scale, loss) for tokens, logprob, slope in sent]
    for future in [client.forward_backward(data, loss.name), client.optim_step(adam)]:
        future.result(seconds)


def probe(create: Callable[[], TrainingClient], seconds: float = SECONDS) -> Loss:
    """The server's loss that takes a gradient to the weights unchanged: linear, additive and with the right sign.

    Args:
        create: makes a training client for the probe alone, because it moves the client's weights.
        seconds: the longest wait for an answer.

    Raises:
        Unsupported: the server has no such loss.
    """
    faults = []
    for name in get_args(Name):
        try:
            probed = _Probe(create(), Loss(name), seconds)
            fault = probed.fault()
        except Exception as error:
            if not faults:
                raise
            fault = f"it failed ({error})"
        else:
            if not fault:
                return probed.loss
        faults.append(f"with {name} {fault}")
    raise Unsupported(
        f"the Tinker server does not train along the gradient that it is sent ({'; '.join(faults)}): take another "
        "server, or have its loss changed to the plain sum of weights x log-probabilities"
    )


class _Probe:
    """Takes steps of plain gradient descent: Adam without memory and with eps far above the gradient."""

    def __init__(self, client: TrainingClient, loss: Loss, seconds: float) -> None:
        self.client, self.loss, self.seconds, self.rate = client, loss, seconds, 1e-4
        tokens = client.get_tokenizer().encode(TEXT)[:LONG]
        self.sequences = [tokens[:SHORT], tokens]
        self.logprobs = scored(client, self.sequences, seconds)

    def moved(self, *gradient: float | Tensor) -> Tensor:
        """Nats by which a descent step raises the shared log-probabilities, for gradients in (short, long) sequence."""
        sent = []
        for tokens, logprob, each in zip(self.sequences, self.logprobs, gradient, strict=False):
            slope = torch.zeros_like(logprob)
            slope[: SHORT - 1] = each
            sent.append((tokens, logprob, slope))
        adam = AdamParams(learning_rate=self.rate, beta1=0.0, beta2=0.0, eps=1.0)
        step(self.client, sent, self.loss, adam, self.seconds)
        before, self.logprobs = self.logprobs, scored(self.client, self.sequences, self.seconds)
        return self.logprobs[0] - before[0]

    def mean(self, *gradient: float) -> float:
        return float(self.moved(*gradient).mean())

    def fault(self) -> str:
        """A description of the gradient's fault; "" without one."""
        size = self.mean(-1.0)
        for _ in range(7):
            if SMALLEST <= size <= LARGEST:
                break
            self.rate *= min(max(AIM / size, 0.01), 100.0) if size > 0 else 100.0
            size = self.mean(-1.0)
        if not SMALLEST <= size <= LARGEST:
            return f"steps against the gradient -1 of a log-probability change it by {size:.3g} nats"
        # A second sequence without gradient halves the step of a server that averages; GRADIENTS tests which it is.
        self.loss = self.loss._replace(mean=self.mean(-1.0, 0.0) < 0.75 * size)
        for short, long in GRADIENTS:
            expected, moved = -(short + long) * size, self.mean(short, long)
            if not abs(moved - expected) <= TOLERANCE * size:
                return f"the gradient ({short:g}, {long:g}) changed {moved:.3g} nats where {expected:.3g} were expected"
        if not (along := float(-(ALTERNATING * self.moved(ALTERNATING, 0.0)).mean())) > 0:
            return f"a gradient of alternating signs changed {along:.3g} nats along them, as if for other positions"
        return ""
