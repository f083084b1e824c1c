"""Divergences from a teacher against autograd through the written formula in float64, and against numbers by hand."""

import functools
import math

import pytest
import torch
from torch import Tensor

from naive_head import naive_divergence, naive_stats
from tokenpo.base.errors import TokenPOError
from tokenpo.core.head.teacher import Teacher, TopTokens
from tokenpo.core.head.token_stats import stats_from_logits, token_stats

BETAS = (0.0, 0.1, 0.5, 1.0)
M = 9
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

    def logits(self) -> tuple[Tensor, Tensor]:
        hidden, head, bias = self.leaves
        return hidden @ head.T + bias, self.teacher.hidden @ self.teacher.head.T + self.teacher.bias


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("v", [4, 40])
def test_values_and_gradients(v: int, chunk: int | None, beta: float) -> None:
    """From hidden states and from logits, beside gradients through log-probability and entropy."""
    problem, weight = Problem(v), torch.linspace(-1, 2, M).double()
    problem.heat[1:3] = 1.0
    weight = weight * (torch.arange(M) % 4 != 1)
    hidden, head, bias = problem.leaves
    (z, taught), target, heat = problem.logits(), problem.target, problem.heat
    exact = naive_stats(z, target, 1 / heat[:, None], entropy_grad=True)
    exact = exact._replace(teacher_divergence=naive_divergence(z, taught, 1 / heat[:, None], beta))
    for share in (0.0, 0.2):
        how = {"entropy_grad": share > 0, "beta": beta}
        from_hidden = token_stats(hidden, head, target, heat, bias=bias, teacher=problem.teacher, chunk=chunk, **how)
        wanted, *values = (
            (weight * (seen.teacher_divergence + 0.3 * seen.logprob + share * seen.entropy)).sum()
            for seen in (exact, from_hidden, stats_from_logits(z, target, heat, teacher=taught, **how))
        )
        gradients = torch.autograd.grad(wanted, problem.leaves, retain_graph=True)
        near(from_hidden.teacher_divergence, exact.teacher_divergence)
        for value in values:
            near(value, wanted)
            for _ in range(2):  # what is kept serves a second pass
                mine = torch.autograd.grad(value, problem.leaves, retain_graph=True)
                for one, other in zip(mine, gradients, strict=True):
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
)
def test_by_hand(beta: float, value: float, slope: float) -> None:
    z = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    taught = torch.tensor([[math.log(3), 0.0]], dtype=torch.float64)
    seen = stats_from_logits(z, torch.tensor([0]), teacher=taught, beta=beta).teacher_divergence
    near(seen, torch.tensor([value], dtype=torch.float64))
    usual = stats_from_logits(z, torch.tensor([0]), teacher=taught).teacher_divergence
    assert (beta == 0.5) == torch.equal(usual, seen)
    near(torch.autograd.grad(seen.sum(), z)[0], torch.tensor([[slope, -slope]], dtype=torch.float64))


@pytest.mark.parametrize("beta", BETAS)
def test_a_teacher_that_agrees_has_no_divergence_and_no_gradient(beta: float) -> None:
    """Up to a constant of the logits; a token that neither has counts as none."""
    z = torch.tensor([[0.3, -1.0, 2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    seen = stats_from_logits(z, torch.tensor([0]), teacher=z.detach() + 5, beta=beta).teacher_divergence
    near(seen, torch.zeros(1, dtype=torch.float64))
    near(torch.autograd.grad(seen.sum(), z)[0], torch.zeros_like(z))


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


def test_a_teacher_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(TokenPOError, match="must be like logits"):
        stats_from_logits(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), teacher=torch.zeros(2, 4))


def _top(problem: Problem, k: int) -> TopTokens:
    """The k likeliest tokens of the problem's teacher, at its temperatures."""
    logprob, ids = (problem.logits()[1] / problem.heat[:, None]).log_softmax(-1).detach().topk(k)
    return TopTokens(ids, logprob)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("k", [1, 5, 39])
def test_top_tokens_and_a_tail(k: int, chunk: int | None, beta: float) -> None:
    """Beside autograd through the K + 1 masses; with one token in the tail it is the whole divergence, else less."""
    problem = Problem(40)
    hidden, head, bias = problem.leaves
    top, (z, taught) = _top(problem, k), problem.logits()
    p, q = ((x / problem.heat[:, None]).softmax(-1).gather(1, top.ids) for x in (z, taught.detach()))
    p, q = (torch.cat([x, 1 - x.sum(1, keepdim=True)], 1).log() for x in (p, q))
    coarse, whole = naive_divergence(p, q, 1.0, beta), naive_divergence(z, taught, 1 / problem.heat[:, None], beta)
    seen = token_stats(
        hidden, head, problem.target, problem.heat, bias=bias, teacher=top, chunk=chunk, beta=beta
    ).teacher_divergence
    torch.testing.assert_close(seen, coarse, rtol=1e-9, atol=1e-11)
    (torch.testing.assert_close if k == 39 else _less)(seen, whole, rtol=1e-9, atol=1e-11)
    weight = torch.linspace(-1, 2, M).double()
    mine, exact = (torch.autograd.grad((weight * x).sum(), problem.leaves) for x in (seen, coarse))
    for one, other in zip(mine, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def _less(x: Tensor, y: Tensor, **_: float) -> None:
    assert (x < y - 1e-6).all() and (x > 0).all()


def test_top_tokens_by_hand() -> None:
    """p = 1/2, 1/4, 1/4; of q one token is known, 3/4: the divergence of (3/4, 1/4) from (1/2, 1/2), as above.

    The tail's slope 1/4 is shared by the masses of its tokens: 1/8 each.
    """
    z = torch.tensor([[math.log(2), 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    top = TopTokens(torch.tensor([[0]]), torch.tensor([[0.75]], dtype=torch.float64).log())
    seen = token_stats(
        z, torch.eye(3, dtype=torch.float64), torch.tensor([0]), teacher=top, beta=0.0
    ).teacher_divergence
    near(seen, torch.tensor([0.75 * math.log(1.5) - 0.25 * math.log(2)], dtype=torch.float64))
    near(torch.autograd.grad(seen.sum(), z)[0], torch.tensor([[-0.25, 0.125, 0.125]], dtype=torch.float64))


@pytest.mark.parametrize(("ids", "k"), [(2, 3), (3, 3), (0, 0)])
def test_top_tokens_of_another_shape_are_refused(ids: int, k: int) -> None:
    top = TopTokens(torch.zeros(1, ids, dtype=torch.long), torch.zeros(1, k))
    with pytest.raises(TokenPOError, match=r"must be \[M, K\]"):
        token_stats(torch.zeros(1, 3), torch.eye(3), torch.tensor([0]), teacher=top)
