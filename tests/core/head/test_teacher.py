"""Divergences from a teacher against autograd through the written formula in float64, and against numbers by hand."""

import dataclasses
import functools
import math

import pytest
import torch
from torch import Tensor

import tokenpo
from naive_head import naive_divergence
from tokenpo.base.errors import MissingInput, TokenPOError, Unsupported
from tokenpo.core.head.fused import fused_gradient, fused_loss
from tokenpo.core.head.teacher import Teacher
from tokenpo.core.head.token_stats import stats_from_logits, token_stats
from tokenpo.core.parts import EntropyBonus, TeacherDivergence
from tokenpo.core.types import Batch, Policy, Rollouts, Totals

BETAS = (0.0, 0.1, 0.5, 1.0)
LENGTHS = (3, 0, 5, 1)
M = sum(LENGTHS)
near = functools.partial(torch.testing.assert_close, rtol=1e-10, atol=1e-13)


class Problem:
    """Hidden states of a student and of a wider teacher over the same vocabulary."""

    def __init__(self, v: int) -> None:
        g = torch.Generator().manual_seed(v)
        draw = functools.partial(torch.randn, generator=g, dtype=torch.float64)
        self.leaves = tuple(x.requires_grad_() for x in (draw(M, 6), draw(v, 6), draw(v)))
        self.teacher = Teacher(draw(M, 9), draw(v, 9) / 2, draw(v))
        self.target = torch.randint(v, (M,), generator=g)
        self.heat = 0.5 + draw(M).sigmoid()
        self.mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
        old = self.table(self.student().log_softmax(-1).gather(-1, self.target[:, None])[:, 0].detach() - 0.1)
        self.rollouts = Rollouts(
            mask=self.mask, reward=torch.tensor([1.0, 0, 0, 1]).double(), group=torch.zeros(4, dtype=torch.long),
            old_logprob=old, token_ids=self.table(self.target), temperature=self.table(self.heat, 1.0),
        )  # fmt: skip

    def table(self, x: Tensor, fill: float = 0.0) -> Tensor:
        return torch.full(self.mask.shape, fill, dtype=x.dtype).masked_scatter(self.mask, x)

    def student(self) -> Tensor:
        hidden, head, bias = self.leaves
        return (hidden @ head.T + bias) / self.heat[:, None]

    def divergence(self, beta: float) -> Tensor:
        taught = (self.teacher.hidden @ self.teacher.head.T + self.teacher.bias) / self.heat[:, None]
        return naive_divergence(self.student(), taught, 1.0, beta)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("v", [4, 40])
def test_values_and_gradients(v: int, chunk: int | None, beta: float) -> None:
    """From hidden states and from logits, beside gradients through log-probability and entropy."""
    problem, weight = Problem(v), torch.linspace(-1, 2, M).double()
    problem.heat[1:3] = 1.0
    weight = weight * (torch.arange(M) % 4 != 1)
    hidden, head, bias = problem.leaves
    z, taught = hidden @ head.T + bias, problem.teacher.hidden @ problem.teacher.head.T + problem.teacher.bias
    logp = problem.student().log_softmax(-1)
    lp, entropy = logp.gather(-1, problem.target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)
    exact = problem.divergence(beta)
    for with_entropy in (False, True):
        how = {"entropy_grad": with_entropy, "beta": beta}
        wanted = (weight * (exact + 0.3 * lp + with_entropy * 0.2 * entropy)).sum()
        for seen in (
            token_stats(
                hidden, head, problem.target, problem.heat, bias=bias, teacher=problem.teacher, chunk=chunk, **how
            ),
            stats_from_logits(z, problem.target, problem.heat, teacher=taught, **how),
        ):
            divergence = seen.teacher_divergence
            near(divergence, exact)
            value = (weight * (divergence + 0.3 * seen.logprob + with_entropy * 0.2 * seen.entropy)).sum()
            for _ in range(2):  # what is kept serves a second pass
                mine = torch.autograd.grad(value, problem.leaves, retain_graph=True)
                for one, other in zip(
                    mine, torch.autograd.grad(wanted, problem.leaves, retain_graph=True), strict=True
                ):
                    near(one, other)


def objective(beta: float, *, bonus: bool = False) -> tokenpo.Objective:
    penalties = (TeacherDivergence(0.7, beta), *((EntropyBonus(0.1),) if bonus else ()))
    return dataclasses.replace(tokenpo.method("dr_grpo"), penalties=penalties)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bonus", [False, True])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("v", [4, 40])
def test_fused_is_the_plain_way_at_every_chunk(v: int, beta: float, bonus: bool) -> None:
    problem, made = Problem(v), objective(beta, bonus=bonus)
    assert made.teacher_beta == beta
    credit, totals = made.prepare(problem.rollouts), Totals.of(problem.rollouts)
    logp = problem.student().log_softmax(-1)
    lp = logp.gather(-1, problem.target[:, None])[:, 0]
    fields = {"entropy": -(logp.exp() * logp).sum(-1), "teacher_divergence": problem.divergence(beta)}
    policy = Policy(problem.table(lp), **{name: problem.table(x) for name, x in fields.items()}).only(made.needs)
    loss = made.loss(Batch(problem.rollouts, credit, policy), totals).value
    gradients = torch.autograd.grad(loss, problem.leaves)
    hidden, head, bias = problem.leaves
    for chunk in range(1, M + 2):
        step = (made, hidden, head, problem.rollouts, credit, totals)
        fused = fused_loss(*step, bias=bias, teacher=problem.teacher, chunk=chunk)
        near(fused.loss.value, loss)
        near(fused.policy.need("teacher_divergence"), policy.need("teacher_divergence").detach())
        for one, other in zip(torch.autograd.grad(fused.loss.value, problem.leaves), gradients, strict=True):
            near(one, other)
        leaves = [x.detach().clone().requires_grad_() for x in problem.leaves]
        _, pulled = fused_gradient(made, *leaves[:2], *step[3:], bias=leaves[2], teacher=problem.teacher, chunk=chunk)
        for one, other in zip((pulled, leaves[1].grad, leaves[2].grad), gradients, strict=True):
            near(one, other)


@pytest.mark.parametrize(
    ("beta", "value", "slope"),
    [
        # p = (1/2, 1/2), q = (3/4, 1/4): 3/4 ln 3/2 - 1/4 ln 2, and p - q
        (0.0, 0.75 * math.log(1.5) - 0.25 * math.log(2), -0.25),
        # -1/2 ln 3/2 + 1/2 ln 2 = 1/2 ln 4/3, and 1/2 (-ln 3/2 - 1/2 ln 4/3) = -1/4 ln 3
        (1.0, 0.5 * math.log(4 / 3), -0.25 * math.log(3)),
        # m = (5/8, 3/8): half of 3/4 ln 6/5 + 1/4 ln 2/3 and of 1/2 ln 4/5 + 1/2 ln 4/3; slope -1/8 ln 5/3
        (0.5, 0.5 * (0.75 * math.log(1.2) + 0.25 * math.log(2 / 3) + 0.5 * math.log(16 / 15)), -math.log(5 / 3) / 8),
    ],
)  # fmt: skip
def test_by_hand(beta: float, value: float, slope: float) -> None:
    z = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    taught = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)
    seen = stats_from_logits(z, torch.tensor([0]), teacher=taught, beta=beta).teacher_divergence
    near(seen, torch.tensor([value], dtype=torch.float64))
    near(torch.autograd.grad(seen.sum(), z)[0], torch.tensor([[slope, -slope]], dtype=torch.float64))


@pytest.mark.parametrize("beta", BETAS)
def test_a_teacher_that_agrees_has_no_divergence_and_no_gradient(beta: float) -> None:
    """Up to a constant of the logits; a token that neither has counts as none."""
    z = torch.tensor([[0.3, -1.0, 2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    seen = stats_from_logits(z, torch.tensor([0]), teacher=z.detach() + 5, beta=beta).teacher_divergence
    near(seen, torch.zeros(1, dtype=torch.float64))
    near(torch.autograd.grad(seen.sum(), z)[0], torch.zeros_like(z))


def test_the_jensen_shannon_divergence_vanishes_toward_its_ends() -> None:
    """D_beta / beta goes to KL(q ‖ p) and D_beta / (1 - beta) to KL(p ‖ q), where D_0 and D_1 are these themselves."""
    z, taught = Problem(7).student().detach(), torch.linspace(-2, 2, 7 * M).double().view(M, 7)
    of = {b: stats_from_logits(z, torch.zeros(M, dtype=torch.long), teacher=taught, beta=b).teacher_divergence
          for b in (0.0, 1e-6, 1 - 1e-6, 1.0)}  # fmt: skip
    torch.testing.assert_close(of[1e-6] / 1e-6, of[0.0], rtol=5e-3, atol=0)
    torch.testing.assert_close(of[1 - 1e-6] / 1e-6, of[1.0], rtol=5e-3, atol=0)


def test_half_precision_keeps_its_digits() -> None:
    """bf16 hidden states: logits of 8 bits, divergence and gradient of what these are, to the same 8 bits."""
    problem = Problem(40)
    hidden, head = (x.detach().bfloat16().requires_grad_() for x in problem.leaves[:2])
    teacher = Teacher(problem.teacher.hidden.bfloat16(), problem.teacher.head.bfloat16())
    seen = token_stats(hidden, head, problem.target, teacher=teacher).teacher_divergence
    wide = [x.detach().double().requires_grad_() for x in (hidden, head)]
    exact = naive_divergence(wide[0] @ wide[1].T, teacher.hidden.double() @ teacher.head.double().T, 1.0, 0.5)
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen.double(), exact, rtol=0.03, atol=1e-3)
    for one, other in zip(
        torch.autograd.grad(seen.sum(), (hidden, head)), torch.autograd.grad(exact.sum(), wide), strict=True
    ):
        assert (one.double() - other).norm() < 0.02 * other.norm()


def test_what_does_not_fit_is_refused() -> None:
    problem, made = Problem(7), objective(0.5)
    hidden, head, _ = problem.leaves
    step = (made, hidden, head, problem.rollouts, made.prepare(problem.rollouts), Totals.of(problem.rollouts))
    with pytest.raises(MissingInput, match="needs teacher_divergence: give teacher"):
        fused_loss(*step)
    with pytest.raises(Unsupported, match="tiles of the vocabulary"):
        fused_gradient(*step, teacher=problem.teacher, lean=True)
    for wrong in (
        dataclasses.replace(problem.teacher, head=problem.teacher.head[:5]),
        dataclasses.replace(problem.teacher, hidden=problem.teacher.hidden[:4]),
    ):
        with pytest.raises(TokenPOError, match=r"M = 9 tokens and vocabulary of V = 7"):
            fused_loss(*step, teacher=wrong)
    with pytest.raises(TokenPOError, match="must be like logits"):
        stats_from_logits(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), teacher=torch.zeros(2, 4))
    with pytest.raises(TokenPOError, match="two divergences from a teacher"):
        dataclasses.replace(made, penalties=(TeacherDivergence(1.0, 0.0), TeacherDivergence(1.0, 1.0)))
