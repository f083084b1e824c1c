"""Log-probability and entropy from hidden states and head, forward and backward, beside the products they cannot avoid.

    python benchmarks/token_stats.py [--shapes small middle large] [--dtypes float32 bfloat16] [--rounds 5] [--memory]
    python benchmarks/token_stats.py --device cuda --dtypes bfloat16 --shapes gpu

The work is the log-probability and the full-vocabulary entropy (without gradient) of N tokens, and the gradients to
hidden states and head. The floor is the three matrix products of it with outputs that exist already; scoring alone has
one. One thread; candidates take turns; medians of the process's CPU time, as multiples of the floor; on a GPU, of what
lies between two of its events. TRL's
ChunkedLogProbFunction and verl's FusedLinearForPPO stand beside ours where they are installed.

`--memory` shows instead the most memory held at once beyond the gradients, from the allocator's own record.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from timing import fits, keep_memory, milliseconds, peak_bytes
from tokenpo.core.head.token_stats import token_stats

SHAPES = {
    "least": (128, 16, 40),
    "small": (4096, 192, 64),
    "middle": (2048, 256, 8192),
    "large": (384, 896, 151936),
    "taught": (2048, 256, 32768),
    "gpu8k": (8192, 4096, 151936),
    "gpu": (32768, 3584, 151936),
}
Run = Callable[[], None]
# (hidden, head, target) -> log-probability and entropy [N]
Stats = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Problem:
    """hidden [N, H] and head [V, H], leaves; target [N]; g [N], the gradient that arrives at each log-probability."""

    hidden: Tensor
    head: Tensor
    target: Tensor
    g: Tensor

    @staticmethod
    def of(shape: tuple[int, int, int], dtype: torch.dtype, device: str = "cpu") -> Problem:
        n, h, v = shape
        here: Any = {"generator": torch.Generator(device).manual_seed(0), "device": device}
        hidden = torch.randn(n, h, **here).to(dtype).requires_grad_()
        head = (torch.randn(v, h, **here) / h**0.5).to(dtype).requires_grad_()
        target = torch.randint(v, (n,), **here)
        return Problem(hidden, head, target, torch.randn(n, **here) / n)

    def forget(self) -> None:
        self.hidden.grad = self.head.grad = None

    def floor(self, products: int = 3) -> Run:
        """The first of the unavoidable products, or all three."""
        hidden, head = self.hidden.detach(), self.head.detach()
        logits = hidden.new_empty(len(hidden), len(head))
        outputs = torch.empty_like(hidden), torch.empty_like(head)

        def run() -> None:
            torch.mm(hidden, head.t(), out=logits)
            if products == 3:
                torch.mm(logits, head, out=outputs[0])
                torch.mm(logits.t(), hidden, out=outputs[1])

        return run


def ours(hidden: Tensor, head: Tensor, target: Tensor, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    seen = token_stats(hidden, head, target, chunk=chunk)
    return seen.logprob, seen.entropy


def naive(hidden: Tensor, head: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax((hidden @ head.t()).float(), -1)
    entropy = -(logp.exp() * logp).sum(-1).detach()
    return logp.gather(-1, target.unsqueeze(-1)).squeeze(-1), entropy


def peers() -> dict[str, Stats]:
    """What other packages have for it, as far as they can be imported."""
    found: dict[str, Stats] = {}
    try:
        from trl.kernels import ChunkedLogProbFunction

        def trl(hidden: Tensor, head: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            out = ChunkedLogProbFunction.apply(
                hidden, head, None, target, 1.0, 32768, None, 1.0, ("log_probs", "entropy")
            )
            return out[0], out[1].detach()

        found["trl"] = trl
    except ImportError:
        pass
    try:
        from verl.utils.experimental.torch_functional import FusedLinearForPPO

        layer = FusedLinearForPPO()

        def verl(hidden: Tensor, head: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            logprob, entropy = layer(hidden, head, target)
            return logprob, entropy.detach()

        found["verl"] = verl
    except ImportError:
        pass
    try:
        from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy

        def verl_triton(hidden: Tensor, head: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            logprob, entropy = linear_cross_entropy(hidden, head, target, 1.0, "none", None)
            return logprob, entropy.detach()

        if torch.cuda.is_available():
            found["verl's Triton"] = verl_triton
    except ImportError:
        pass
    return found


def both_ways(problem: Problem, stats: Stats) -> Run:
    def run() -> None:
        problem.forget()
        stats(problem.hidden, problem.head, problem.target)[0].backward(problem.g)

    return run


def scoring(problem: Problem, stats: Stats) -> Run:
    def run() -> None:
        with torch.no_grad():
            stats(problem.hidden, problem.head, problem.target)

    return run


def peak_megabytes(run: Run, problem: Problem) -> float:
    """Most memory held at once by one run, not its first, less the gradients that it leaves."""
    # What is freed must have been seen when it was made.
    problem.forget()
    gradients = sum(x.numel() * x.element_size() for x in (problem.hidden, problem.head))
    return (peak_bytes(run, str(problem.hidden.device)) - gradients) / 2**20


def report(shape: str, dtype: str, times: dict[str, float], floor: str) -> None:
    least = times[floor] or 1e-9
    print(f"{shape:<7}{dtype:<9}floor {times[floor]:8.1f} ms  ", end="")
    print("  ".join(f"{name} {ms / least:5.2f}" for name, ms in times.items() if name != floor), flush=True)


def options(description: str, arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["small", "middle"])
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="of the candidates")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--chunk", type=int, help="tokens whose logits are alive at a time")
    parser.add_argument("--fresh", action="store_true", help="large memory goes back to the system when it is freed")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not (chosen.fresh or keep_memory()):
        print("the C library cannot be told to keep memory: every large tensor begins with page faults")
    return chosen


def main(arguments: list[str] | None = None) -> None:
    chosen = options(__doc__, arguments)
    candidates: dict[str, Stats] = {"ours": functools.partial(ours, chunk=chosen.chunk), "naive": naive, **peers()}
    candidates = {name: x for name, x in candidates.items() if not chosen.only or name in chosen.only}
    for shape in chosen.shapes:
        for dtype in chosen.dtypes:
            problem = Problem.of(SHAPES[shape], getattr(torch, dtype), chosen.device)
            runs = {name: both_ways(problem, stats) for name, stats in candidates.items()}
            if chosen.memory:
                for name, run in runs.items():
                    if fits(name, run):
                        extra = peak_megabytes(run, problem)
                        print(f"{shape:<7}{dtype:<9}{name:<6}{extra:8.0f} MB beyond the gradients", flush=True)
                continue
            report(
                shape, dtype, milliseconds({"floor": problem.floor(), **runs}, chosen.rounds, chosen.device), "floor"
            )
            runs = {f"score {name}": scoring(problem, stats) for name, stats in candidates.items()}
            report(
                shape,
                dtype,
                milliseconds({"one product": problem.floor(1), **runs}, chosen.rounds, chosen.device),
                "one product",
            )


if __name__ == "__main__":
    main()
