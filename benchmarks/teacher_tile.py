"""The divergence from a teacher over the whole vocabulary, to the gradients of hidden states and head.

    python benchmarks/teacher_tile.py [--shapes taught] [--dtypes float32 bfloat16] [--rounds 5] [--memory]

"tile" is `fused_gradient` of `tokenpo.core.head.fused` with the method `gkd` (Jensen-Shannon, beta 0.5), "held" the
same divergence by autograd from the logits of both models, "trl" that of TRL's distillation, where it is installed. The
teacher is as wide as the student. The floor is four matrix products with outputs that exist already: the student's
three and the teacher's one. One thread; candidates take turns; medians of CPU time as multiples of the floor.

`--memory` shows instead the most memory held at once beyond the gradients.
"""

import torch

import tokenpo
from fused_objective import Step
from timing import fits, milliseconds
from token_stats import SHAPES, Problem, Run, options, peak_megabytes, report
from tokenpo.core.head.fused import fused_gradient
from tokenpo.core.head.teacher import Teacher

BETA = 0.5


def tile(step: Step, teacher: Teacher) -> Run:
    problem = step.problem
    given = step.objective, problem.hidden, problem.head, step.rollouts, step.credit, step.totals

    def run() -> None:
        problem.forget()
        _, problem.hidden.grad = fused_gradient(*given, chunk=step.chunk, terms=(), teacher=teacher)

    return run


def held(problem: Problem, teacher: Teacher) -> Run:
    """As a trainer writes it that has the logits of both."""

    def run() -> None:
        problem.forget()
        p = (problem.hidden @ problem.head.t()).float().log_softmax(-1)
        with torch.no_grad():
            q = (teacher.hidden @ teacher.head.t()).float().log_softmax(-1)
        middle = torch.logaddexp(p, q) + torch.tensor(BETA).log()
        divergence = BETA * (q.exp() * (q - middle)).sum(-1) + (1 - BETA) * (p.exp() * (p - middle)).sum(-1)
        divergence.mean().backward()

    return run


def trl(problem: Problem, teacher: Teacher) -> dict[str, Run]:
    try:
        from trl.kernels.chunked_divergence import ChunkedDivergenceFunction
    except ImportError:
        return {}

    def run() -> None:
        problem.forget()
        given = problem.hidden, problem.head, None, teacher.hidden, teacher.head, None, BETA, 1.0, 1.0, None, 1.0, None
        ChunkedDivergenceFunction.apply(*given)[0].mean().backward()

    return {"trl": run}


def main(arguments: list[str] | None = None) -> None:
    chosen = options(__doc__, arguments)
    for shape in chosen.shapes:
        for dtype in chosen.dtypes:
            problem = Problem.of(SHAPES[shape], getattr(torch, dtype), chosen.device)
            other = Problem.of(SHAPES[shape], getattr(torch, dtype), chosen.device)
            teacher = Teacher(other.hidden.detach().roll(1, 0), other.head.detach().roll(1, 0))
            step = Step(problem, tokenpo.method("gkd", beta=BETA), chunk=chosen.chunk)
            runs = {"tile": tile(step, teacher), "held": held(problem, teacher), **trl(problem, teacher)}
            runs = {name: run for name, run in runs.items() if not chosen.only or name in chosen.only}
            if chosen.memory:
                for name, run in runs.items():
                    if fits(name, run):
                        extra = peak_megabytes(run, problem)
                        print(f"{shape:<7}{dtype:<9}{name:<6}{extra:8.0f} MB beyond the gradients", flush=True)
                continue
            three, one = problem.floor(), other.floor(1)
            runs = {"floor": lambda three=three, one=one: (three(), one()), **runs}
            report(shape, dtype, milliseconds(runs, chosen.rounds, chosen.device), "floor")


if __name__ == "__main__":
    main()
