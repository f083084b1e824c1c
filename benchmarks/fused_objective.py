"""An objective from hidden states and head to their gradients, beside the products it cannot avoid.

    python benchmarks/fused_objective.py [--shapes small middle large] [--dtypes float32 bfloat16] [--rounds 5]
    python benchmarks/fused_objective.py --device cuda --dtypes bfloat16 --shapes gpu [--memory]

Log-probability, entropy (recorded, without gradient), the clipped policy loss of responses of 32 tokens, gradients to
hidden states and head. Ours is `fused_gradient` of `tokenpo.core.head.fused` with DAPO's loss, which like the peers
keeps none of the loss's terms; "half dead" is the same where half of the groups have equal rewards, "half live" without
the rows of these groups, as the embedded engine hands it over, "half floor" the three products of the rows that are
left, "sequence" with GSPO's ratio, "apart" by `token_stats` and the loss through
autograd. TRL's and verl's fused heads get the three lines of the clipped loss.

The floor is the three matrix products with outputs that exist already. So that fresh memory costs nobody much, the
process keeps what it frees, as on a GPU; with `--fresh` it gives it back. One thread; candidates take turns; medians of
CPU time as multiples of the floor; on a GPU, of what lies between two of its events.

`--memory` shows instead the most memory held at once beyond the gradients, which have the leaves' dtype.
"""

from __future__ import annotations

import copy
import dataclasses

import torch

import tokenpo
from timing import fits, milliseconds
from token_stats import SHAPES, Problem, Run, Stats, naive, options, peak_megabytes, peers, report
from tokenpo.core.head.fused import fused_gradient
from tokenpo.core.head.token_stats import token_stats

LENGTH, GROUP = 32, 2


class Step:
    """The responses of a problem as one optimiser step; the policy is near the one that sampled."""

    def __init__(
        self,
        problem: Problem,
        method: tokenpo.Objective,
        *,
        dead: float = 0.0,
        chunk: int | None = None,
        length: int = LENGTH,
    ) -> None:
        n = len(problem.target) // length
        with torch.no_grad():
            seen = token_stats(problem.hidden, problem.head, problem.target, chunk=chunk)
            now = seen.logprob.view(n, length)
        device = now.device
        generator = torch.Generator(device).manual_seed(1)
        group = torch.arange(n, device=device) // GROUP
        reward = torch.arange(n, device=device).remainder(2).float().masked_fill(group < dead * n / GROUP, 1.0)
        self.problem, self.objective, self.chunk = problem, method, chunk
        self.rollouts = tokenpo.Rollouts(
            mask=torch.ones(n, length, dtype=torch.bool, device=device),
            reward=reward,
            group=group,
            old_logprob=now + 0.05 * torch.randn(n, length, generator=generator, device=device),
            old_entropy=seen.entropy.view(n, length),
            token_ids=problem.target.view(n, length),
        )
        self.credit, self.totals = method.prepare(self.rollouts), tokenpo.Totals.of(self.rollouts)

    def live(self) -> Step:
        """The rows that the embedded engine does not know to add nothing; the denominators stay."""
        live = ((self.credit.advantage != 0) & self.rollouts.mask).any(1)
        rows, part = live.nonzero()[:, 0], copy.copy(self)
        hidden = (
            self.problem.hidden.detach().unflatten(0, self.rollouts.mask.shape)[rows].flatten(0, 1).requires_grad_()
        )
        part.problem = dataclasses.replace(self.problem, hidden=hidden)
        part.rollouts, part.credit = self.rollouts.rows(rows), self.credit.rows(rows)
        return part

    def fused(self) -> Run:
        problem = self.problem
        step = (self.objective, problem.hidden, problem.head, self.rollouts, self.credit, self.totals)

        def run() -> None:
            problem.forget()
            _, pulled = fused_gradient(*step, chunk=self.chunk, terms=())
            problem.hidden.grad = pulled

        return run

    def apart(self) -> Run:
        problem, shape = self.problem, self.rollouts.mask.shape

        def run() -> None:
            problem.forget()
            logprob = token_stats(problem.hidden, problem.head, problem.target, chunk=self.chunk).logprob
            batch = tokenpo.Batch(self.rollouts, self.credit, tokenpo.Policy(logprob.view(shape)))
            self.objective.loss(batch, self.totals, ()).value.backward()

        return run

    def three_lines(self, stats: Stats) -> Run:
        problem = self.problem
        old, advantage = self.rollouts.old_logprob.flatten(), self.credit.advantage.flatten()

        def run() -> None:
            problem.forget()
            logprob, _ = stats(problem.hidden, problem.head, problem.target)
            ratio = (logprob - old).exp()
            clipped = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
            (-clipped.sum() / self.totals.tokens).backward()

        return run


def main(arguments: list[str] | None = None) -> None:
    chosen = options(__doc__, arguments)
    dapo, gspo = tokenpo.method("dapo", dual=None), tokenpo.method("gspo", low=0.2, high=0.28)
    for shape in chosen.shapes:
        for dtype in chosen.dtypes:
            problem = Problem.of(SHAPES[shape], getattr(torch, dtype), chosen.device)
            step = Step(problem, dapo, chunk=chosen.chunk)
            half = Step(problem, dapo, dead=0.5, chunk=chosen.chunk)
            live = half.live()
            runs = {
                "fused": step.fused(),
                "half dead": half.fused(),
                "half live": live.fused(),
                "half floor": live.problem.floor(),
                "sequence": Step(problem, gspo, chunk=chosen.chunk).fused(),
                "apart": step.apart(),
            }
            runs |= {name: step.three_lines(stats) for name, stats in {"naive": naive, **peers()}.items()}
            runs = {name: run for name, run in runs.items() if not chosen.only or name in chosen.only}
            if chosen.memory:
                for name, run in runs.items():
                    if fits(name, run):
                        extra = peak_megabytes(run, problem)
                        print(f"{shape:<7}{dtype:<9}{name:<10}{extra:8.0f} MB beyond the gradients", flush=True)
                continue
            report(
                shape, dtype, milliseconds({"floor": problem.floor(), **runs}, chosen.rounds, chosen.device), "floor"
            )


if __name__ == "__main__":
    main()
