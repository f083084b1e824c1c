"""The objective with its head at shapes that the field quotes, as multiples of the bare products of the same run.

8,192 tokens with H = 4096 and 32,768 tokens with H = 3584, V = 151,936, bf16; responses of 1,024 tokens in groups of
two. The work is log-probability, entropy (without gradient), the clipped policy loss and both gradients. Peers get the
three lines of the clipped loss on their own log-probabilities; Liger's GRPO loss computes no entropy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

import tokenpo
from fused_objective import Step
from timing import Run, fits, milliseconds
from token_stats import SHAPES, Problem, naive, peak_megabytes, peers
from tokenpo.core.head.projection import chunk_rows

Case = Callable[[], dict[str, Any]]
WEIGHTY = {"fused", "trl", "verl", "verl's Triton", "torch", "Liger"}


def cases(small: bool, device: str) -> dict[str, Case]:
    """The weightiest of all shapes first."""
    shapes = {"small": (64, 2)} if small else {"gpu8k": (1024, 5), "gpu": (1024, 3)}
    first: dict[str, Case] = {}
    then: dict[str, Case] = {}
    for shape, (length, rounds) in shapes.items():
        place = Place(shape, length, rounds, torch.float32 if small else torch.bfloat16, device)
        for name, make in place.candidates().items():
            found = first if name in WEIGHTY else then
            found[f"{shape} {name}"] = functools.partial(place.measured, name, make)
        if device == "cuda":
            first[f"{shape} kernels"] = place.kernels
        first[f"{shape} gradient"] = place.agreement
    return first | then


class Place:
    """One shape: its problem and its steps, made when they are first asked for; one shape at a time is alive."""

    alive: Place | None = None

    def __init__(self, shape: str, length: int, rounds: int, dtype: torch.dtype, device: str) -> None:
        self.shape, self.length, self.rounds, self.dtype, self.device = shape, length, rounds, dtype, device

    @functools.cached_property
    def problem(self) -> Problem:
        if Place.alive is not None:
            Place.alive.forget()
        Place.alive = self
        return Problem.of(SHAPES[self.shape], self.dtype, self.device)

    def forget(self) -> None:
        for name in ("problem",):
            self.__dict__.pop(name, None)

    def step(self, name: str = "dapo", **options: Any) -> Step:
        settings = {"dapo": {"dual": None}, "gspo": {"low": 0.2, "high": 0.28}}.get(name, {})
        return Step(self.problem, tokenpo.method(name, **settings), length=self.length, **options)

    def candidates(self) -> dict[str, Callable[[], Run]]:
        """Name to what makes the run, from the most to the least important."""
        whole = SHAPES[self.shape][0]

        def peer(stats: Any) -> Callable[[], Run]:
            return lambda: self.step().three_lines(stats)

        found: dict[str, Callable[[], Run]] = {
            "fused": lambda: self.step().fused(),
            "fused, one chunk": lambda: self.step(chunk=whole).fused(),
            "fused, half of the groups dead": lambda: self.step(dead=0.5).fused(),
            "fused, tepo": lambda: self.step("tepo").fused(),
            "fused, gspo": lambda: self.step("gspo").fused(),
            "fused, aer, a gradient of the entropy": lambda: self.step("aer").fused(),
            "apart, through autograd": lambda: self.step().apart(),
        }
        found |= {name: peer(stats) for name, stats in peers().items()}
        found["torch"] = peer(naive)
        for size in (2**29, 2**30, 2**31):
            rows = size // (SHAPES[self.shape][2] * self.dtype.itemsize)
            if self.length <= rows < whole:
                found[f"fused, chunk of {size / 2**30:g} GiB"] = lambda rows=rows: self.step(chunk=rows).fused()
        if self.device == "cuda":
            found["Liger"] = lambda: self.liger(compiled=False)
            found["Liger, compiled"] = lambda: self.liger(compiled=True)
        return found

    def liger(self, *, compiled: bool) -> Run:
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

        loss = LigerFusedLinearGRPOLoss(
            beta=0.0, compiled=compiled, use_ref_model=False, epsilon_low=0.2, epsilon_high=0.28, loss_type="dapo"
        )
        step, problem = self.step(), self.problem
        rollouts = step.rollouts
        advantage = step.credit.advantage[:, 0].contiguous()

        def run() -> None:
            problem.forget()
            hidden = problem.hidden.view(*rollouts.mask.shape, -1)
            value, _ = loss(
                hidden,
                problem.head,
                rollouts.token_ids,
                rollouts.mask.long(),
                advantage,
                old_per_token_logps=rollouts.old_logprob,
            )
            value.backward()

        return run

    def measured(self, name: str, make: Callable[[], Run]) -> dict[str, Any]:
        """Milliseconds of a run and of the three products beside it, their ratio, and the peak memory of the run."""
        try:
            run = make()
        except ImportError as error:
            return {"left out": str(error)}
        if not fits(name, run):
            return {"left out": "more memory than the card has"}
        floor = self.problem.floor()
        times = milliseconds({"floor": floor, "run": run}, self.rounds, self.device)
        del floor
        peak = peak_megabytes(run, self.problem)
        return {
            "ms": round(times["run"], 2),
            "floor_ms": round(times["floor"], 2),
            "multiple": round(times["run"] / (times["floor"] or 1e-9), 3),
            "peak_gib": round(peak / 1024, 3),
            "rows_of_a_chunk": chunk_rows(SHAPES[self.shape][2], self.dtype, torch.device(self.device)),
        }

    def agreement(self) -> dict[str, Any]:
        """Relative distance of our gradients from those of plain torch with logits in float32."""
        step, problem = self.step(), self.problem
        step.fused()()
        ours = problem.hidden.grad.float(), problem.head.grad.float()
        if not fits("torch", run := step.three_lines(naive)):
            return {"left out": "more memory than the card has"}
        run()
        theirs = problem.hidden.grad.float(), problem.head.grad.float()
        distance = [float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True)]
        return {"hidden": distance[0], "head": distance[1]}

    def kernels(self) -> dict[str, Any]:
        """Milliseconds of the kernels that take most of one fused run."""
        run = self.step().fused()
        run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            run()
            torch.cuda.synchronize()
        total: dict[str, list[float]] = {}
        for event in seen.events():
            total.setdefault(event.name[:60], []).append(event.device_time_total / 1e3)
        most = sorted(total.items(), key=lambda item: -sum(item[1]))[:12]
        return {f"{len(times)} x {name}": round(sum(times), 2) for name, times in most}
