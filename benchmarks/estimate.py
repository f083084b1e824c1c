"""A 7B and a 32B run on verl, on paper: memory and seconds of a step that are tokenpo's, from formulas.

    python benchmarks/estimate.py [--gpu H100 H200] [--models 7B 32B] [--longest 20480] [--mean 6000]

Nothing is measured here. Every assumption is a constant below; bytes and operations follow from shapes, seconds from
bytes and operations over what a machine reaches. A step is one rollout batch: phase one once, in verl's driver, on
padded tensors of the whole batch; then the update on every rank. Axes: N responses, T the longest, V vocabulary, H
hidden size.
"""

import argparse
from dataclasses import dataclass

FLOAT = 4  # bytes of float32, what tokenpo's tensors have
HALF = 2  # bytes of bfloat16, what hidden states and head have
GIGA = 1e9


@dataclass(frozen=True)
class Gpu:
    """What large products and long passes over memory reach: the data sheet's peak times an assumed efficiency."""

    peak_flops: float  # bf16, dense
    peak_bytes: float  # a second
    product_efficiency: float = 0.8
    pass_efficiency: float = 0.9

    @property
    def flops(self) -> float:
        return self.peak_flops * self.product_efficiency

    @property
    def bytes(self) -> float:
        return self.peak_bytes * self.pass_efficiency


GPUS = {"H100": Gpu(989e12, 3.35e12), "H200": Gpu(989e12, 4.8e12)}


@dataclass(frozen=True)
class Model:
    """Qwen-shaped: parameters, H, V, and the data-parallel ranks that it is trained on."""

    parameters: float
    hidden: int
    vocabulary: int
    ranks: int


MODELS = {"7B": Model(7.6e9, 3584, 151936, 16), "32B": Model(32.8e9, 5120, 151936, 64)}


@dataclass(frozen=True)
class Step:
    """The shape of a rollout batch, and what is assumed of the machines around the GPUs."""

    prompts: int = 512
    group: int = 16
    longest: int = 20480  # tokens of the longest response
    mean: float = 6000.0  # tokens of the mean response
    minibatches: int = 4  # optimiser steps
    micro_tokens: int = 32768  # tokens of a micro-batch on a rank
    # Float fields [N, T] that phase one reads (old log-probability, old entropy), and those it makes: advantages, what
    # verl calls returns, and the signals of the method.
    fields_read: int = 2
    signals: int = 2
    # Passes over a field in phase one on the driver, and over a micro-batch's tensor in loss and backward.
    driver_passes: int = 30
    loss_passes: int = 60
    # Tensors of a micro-batch that the loss holds at once (benchmarks/objective.py --alone).
    loss_temporaries: float = 7.5
    # Bytes a second: memory of the driver, network between driver and each rank's machine; seconds of an all-reduce.
    driver_bytes: float = 50e9
    network_bytes: float = 5e9
    all_reduce: float = 50e-6
    # Share of the peak that the rest of the model reaches in a forward and backward pass.
    utilisation: float = 0.4

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def tokens(self) -> float:
        return self.rows * self.mean


def products(count: int, tokens: float, model: Model, gpu: Gpu) -> float:
    """Seconds of `count` products of hidden states [tokens, H] with the head [V, H]."""
    return count * 2 * tokens * model.hidden * model.vocabulary / gpu.flops


def fused_bytes(tokens: int, hidden: int, vocabulary: int, chunk: int, *, size: int, card: bool) -> int:
    """Most bytes that `fused_gradient` holds at once beyond hidden states, head and the gradients of both.

    A chunk of logits, which their gradient overwrites; the chunk's hidden states, each times its token's factor; and
    with several chunks in half precision the float32 sum of the head's gradient.

    Args:
        chunk: tokens whose logits are alive at a time.
        size: bytes of a number of hidden states and head, 4 or 2; their gradients have the same.
        card: the kernel's softmax and product need no scratch; torch's passes on a CPU go over blocks in float32.
    """
    head, rows = vocabulary * hidden, min(chunk, tokens)
    summed = FLOAT * head if size < FLOAT and tokens > chunk else 0
    scaled = rows * hidden * (FLOAT if size == FLOAT else FLOAT + size)
    softmax = 0 if card else max(1, 2**17 // vocabulary) * vocabulary * FLOAT * (1 if size == FLOAT else 2)
    product = min(head, 2**19) * (FLOAT + size) if summed and not card else 0
    # While the sum grows, the gradient that it becomes is not there yet.
    growing = rows * vocabulary * size + max(softmax, scaled + product) + max(summed - size * head, 0)
    return max(growing, summed)


@dataclass(frozen=True)
class Line:
    """One part of a step: GB that are alive because of it and seconds, None where it has none."""

    what: str
    gigabytes: float | None
    seconds: float | None


def phase_one(step: Step) -> list[Line]:
    """In the driver, on the CPU, for the whole batch."""
    field = step.rows * step.longest * FLOAT
    made = 2 + step.signals
    held = (step.fields_read + made) * field + step.rows * step.longest
    return [
        Line("driver: padded fields and mask of phase one", held / GIGA, None),
        Line("driver: passes of phase one", None, step.driver_passes * field / step.driver_bytes),
        Line(
            "network: advantages, returns, signals",
            made * step.tokens * FLOAT / GIGA,
            made * step.tokens * FLOAT / step.network_bytes,
        ),
    ]


def update(step: Step, model: Model, gpu: Gpu) -> list[Line]:
    """On one rank."""
    tokens, micro = step.tokens / model.ranks, step.micro_tokens
    head = model.vocabulary * model.hidden
    logits = micro * model.vocabulary
    return [
        Line("rank: loss and backward from log-probabilities", step.loss_temporaries * micro * FLOAT / GIGA,
             step.loss_passes * tokens * FLOAT / gpu.bytes),
        Line("rank: the step's totals, one all-reduce for each optimiser step", None,
             step.minibatches * step.all_reduce),
        Line("rank: head, three products and its gradient in float32 (tokenpo.fused)", head * FLOAT / GIGA,
             products(3, tokens, model, gpu)),
        Line("rank: head, four products (recompute: a fused head without the loss)", head * FLOAT / GIGA,
             products(4, tokens, model, gpu)),
        # Written and read: logits in half, their float32 copy, its softmax, the gradient and its half.
        Line("rank: head, all logits through autograd", logits * (2 * HALF + 3 * FLOAT) / GIGA,
             products(3, tokens, model, gpu)
             + 2 * tokens * model.vocabulary * (2 * HALF + 3 * FLOAT) / gpu.bytes),
        Line("rank: entropy of the old policy, one product with the pass that verl makes anyway", None,
             products(1, tokens, model, gpu)),
    ]  # fmt: skip


def rest(step: Step, model: Model, gpu: Gpu) -> float:
    """Seconds of scoring (2 operations a parameter and token) and of forward and backward with checkpointing (8)."""
    return 10 * model.parameters * step.tokens / model.ranks / (gpu.peak_flops * step.utilisation)


def table(name: str, step: Step, model: Model, gpu_name: str) -> str:
    gpu = GPUS[gpu_name]
    whole = rest(step, model, gpu)
    lines = [
        f"{name} on {model.ranks} {gpu_name}: {step.rows} responses, {step.longest} tokens at most, "
        f"{step.mean:g} on average",
        f"scoring and update of the whole model: {whole:.0f} s on each rank, sampling not counted",
        f"{'':<2}{'part':<88}{'GB':>8}{'s':>9}{'share':>9}",
    ]
    for line in (*phase_one(step), *update(step, model, gpu)):
        memory = "" if line.gigabytes is None else f"{line.gigabytes:.2g}"
        seconds = "" if line.seconds is None else f"{line.seconds:.2g}"
        percent = 0.0 if line.seconds is None else 100 * line.seconds / whole
        share = "" if line.seconds is None else f"{percent:.2g} %" if percent >= 0.01 else "< 0.01 %"
        lines.append(f"{'':<2}{line.what:<88}{memory:>8}{seconds:>9}{share:>9}")
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", nargs="+", choices=GPUS, default=["H100"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--longest", type=int, default=Step.longest)
    parser.add_argument("--mean", type=float, default=Step.mean)
    options = parser.parse_args(arguments)
    step = Step(longest=options.longest, mean=options.mean)
    print("\n\n".join(table(name, step, MODELS[name], gpu) for gpu in options.gpu for name in options.models))


if __name__ == "__main__":
    main()
