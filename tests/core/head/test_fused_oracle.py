"""The fused objective against its loss written as one straight line from all logits, in float64, at every chunk.

The loss is -1/M Σ (min(r A, clip(r, 0.8, 1.28) A) + c H), r = exp(lp - lp_old), over the M tokens of all responses:
with c = 0.1 it sends a gradient through the entropy, too. A vocabulary of 5, below the hidden size of 6, takes all rows
of logits back; one of 50 picks out those whose gradient is not 0.
"""

import dataclasses
import functools
import itertools

import pytest
import torch
from torch import Tensor

import tokenpo
from tokenpo.core.head.fused import fused_gradient, fused_loss
from tokenpo.core.objective import Objective
from tokenpo.core.parts import Clip, EntropyBonus, FixedBounds, GroupAdvantage, TokenMean
from tokenpo.core.types import Rollouts, Totals

H = 6
LENGTHS = (3, 0, 9, 1, 4, 4, 2, 5)
M = sum(LENGTHS)
PLAIN = Objective(credit=GroupAdvantage(), surrogate=Clip(FixedBounds(0.2, 0.28)), aggregate=TokenMean(), name="plain")
BONUS = dataclasses.replace(PLAIN, name="bonus", penalties=(EntropyBonus(0.1),))


class Step:
    """Eight responses in groups of four: in the second all rewards are equal, so that its advantages are 0."""

    def __init__(self, v: int, *, dead: bool = True) -> None:
        g = torch.Generator().manual_seed(v)
        draw = functools.partial(torch.randn, generator=g, dtype=torch.float64)
        self.mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
        self.hidden, self.head, self.bias = (x.requires_grad_() for x in (draw(M, H), draw(v, H), draw(v)))
        self.target = torch.randint(v, (M,), generator=g)
        self.heat = 0.5 + draw(M).sigmoid()
        self.reward = torch.tensor([1.0, 0, 0, 1, *([1, 1, 1, 1] if dead else [0, 1, 1, 0])], dtype=torch.float64)
        self.old = (self.stats()[0] + 0.2 * draw(M)).clamp(max=-1e-3).detach()
        tables = {"old_logprob": self.old, "token_ids": self.target, "temperature": self.heat}
        self.rollouts = Rollouts(
            mask=self.mask, reward=self.reward, group=torch.arange(8) // 4,
            **{name: self.table(x, 1.0 if name == "temperature" else 0.0) for name, x in tables.items()},
        )  # fmt: skip
        self.leaves = self.hidden, self.head, self.bias

    def table(self, x: Tensor, fill: float = 0.0) -> Tensor:
        return torch.full(self.mask.shape, fill, dtype=x.dtype).masked_scatter(self.mask, x)

    def stats(self) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy [M]."""
        logp = torch.log_softmax((self.hidden @ self.head.T + self.bias) / self.heat[:, None], -1)
        return logp.gather(-1, self.target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)

    def oracle(self, c: float) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
        """The loss; its gradients at hidden, head and bias; and the entropies and the gradient at lp, [M]."""
        lp, entropy = self.stats()
        A = torch.zeros(8, 1, dtype=torch.float64)
        for rows in ([0, 2, 3], [4, 5, 6, 7]):  # the second response has no tokens and counts nowhere
            R = self.reward[rows, None]
            if R.min() < R.max():
                A[rows] = (R - R.mean()) / (R.std() + 1e-6)
        A = A.expand(self.mask.shape)[self.mask]
        r = (lp - self.old).exp()
        J = torch.minimum(r * A, r.clamp(0.8, 1.28) * A) + c * entropy
        loss = -J.sum() / M
        gradients = torch.autograd.grad(loss, (*self.leaves, lp))
        return loss.detach(), list(gradients[:3]), entropy.detach(), gradients[3]

    @property
    def given(self) -> tuple:
        return self.hidden, self.head, self.rollouts, PLAIN.prepare(self.rollouts), Totals.of(self.rollouts)


near = functools.partial(torch.testing.assert_close, rtol=1e-10, atol=1e-13)


@pytest.mark.filterwarnings("error")  # torch warns where the place of a product has not its shape
@pytest.mark.parametrize("c", [0.0, 0.1])
@pytest.mark.parametrize("dead", [True, False])
@pytest.mark.parametrize("v", [5, 50])
def test_every_chunk_from_one_token_to_all_of_them(v: int, dead: bool, c: float) -> None:
    step, objective = Step(v, dead=dead), BONUS if c else PLAIN
    loss, gradients, entropy, pull = step.oracle(c)
    assert (pull != 0).any() and (pull == 0).any()
    for chunk in range(1, M + 2):
        fused = fused_loss(objective, *step.given, bias=step.bias, chunk=chunk)
        near(fused.loss.value, loss)
        for mine, theirs in zip(torch.autograd.grad(fused.loss.value, step.leaves), gradients, strict=True):
            near(mine, theirs)
        near(fused.pull[step.mask], pull)
        near(fused.entropy[step.mask], entropy)
        near(fused.loss.terms["ratio"][step.mask], (step.stats()[0] - step.old).exp().detach())
        tables = (fused.pull, fused.entropy, fused.policy.logprob, fused.policy.entropy)
        assert not any(x.requires_grad or x[~step.mask].any() for x in tables if x is not None)
        assert (fused.policy.entropy is not None) == (c > 0)


@pytest.mark.parametrize("c", [0.0, 0.1])
@pytest.mark.parametrize("lean", [False, True])
def test_float32_is_not_rounded_to_less(lean: bool, c: float) -> None:
    """Bf16 would be off by 4e-3."""
    step = Step(50)
    hidden, head, bias = (x.detach().float().requires_grad_() for x in step.leaves)
    step.leaves = [x.detach().double().requires_grad_() for x in (hidden, head, bias)]
    step.hidden, step.head, step.bias = step.leaves
    _, gradients, _, _ = step.oracle(c)
    _, pulled = fused_gradient(BONUS if c else PLAIN, hidden, head, *step.given[2:], bias=bias, chunk=7, lean=lean)
    for mine, theirs in zip((pulled, head.grad, bias.grad), gradients, strict=True):
        assert mine is not None and mine.dtype == torch.float32
        assert (mine.double() - theirs).norm() < 3e-6 * theirs.norm()


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("c", [0.0, 0.1])
@pytest.mark.parametrize("v", [5, 50])
def test_only_what_wants_a_gradient_gets_one(v: int, c: float, wanted: tuple[bool, ...]) -> None:
    step, objective = Step(v), BONUS if c else PLAIN
    loss, gradients, _, _ = step.oracle(c)
    leaves = [x.detach().requires_grad_(wants) for x, wants in zip(step.leaves, wanted, strict=True)]
    for chunk in (4, 11, M):
        fused = fused_loss(objective, *leaves[:2], *step.given[2:], bias=leaves[2], chunk=chunk)
        near(fused.loss.value.detach(), loss)
        assert fused.loss.value.requires_grad == any(wanted)
        for x, theirs in zip(leaves, gradients, strict=True):
            if x.requires_grad:
                near(torch.autograd.grad(fused.loss.value, x, retain_graph=True)[0], theirs)
    frozen = [x.detach().requires_grad_(wants) for x, wants in zip(step.leaves, wanted, strict=True)]
    for x in frozen:
        x.grad = torch.ones_like(x)  # left over from a time when it was trained
    _, pulled = fused_gradient(objective, *frozen[:2], *step.given[2:], bias=frozen[2], chunk=11)
    near(pulled, gradients[0])
    for x, theirs, wants in zip(frozen[1:], gradients[1:], wanted[1:], strict=True):
        assert x.grad is not None
        near(x.grad, 1 + theirs if wants else torch.ones_like(x))


def test_what_a_bf16_head_has_gathered_is_rounded_once() -> None:
    """The same products, summed into a float32 leaf by autocast, added to what was there and rounded."""
    step = Step(50)
    hidden, head = step.hidden.detach().bfloat16(), step.head.detach().bfloat16().requires_grad_()
    wide = head.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused_gradient(PLAIN, hidden, wide, *step.given[2:], chunk=1)
    assert wide.grad is not None
    before = wide.grad.flip(0).bfloat16()
    head.grad = before.clone()
    fused_gradient(PLAIN, hidden, head, *step.given[2:], chunk=1)
    assert torch.equal(head.grad, (before.float() + wide.grad).bfloat16())


def products_with_the_head(run) -> list[int]:
    """The tokens of each product of hidden states with the head."""
    found: list[int] = []

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket is torch.ops.aten.addmm:
                found.append(len(args[1]))
            return func(*args, **(kwargs or {}))

    with Seen(), torch.no_grad():
        run()
    return found


@pytest.mark.parametrize("chunk", range(1, M + 2))
def test_responses_share_a_chunk_for_as_long_as_they_fit(chunk: int) -> None:
    step, expected = Step(50), [0]
    for length in LENGTHS:
        if expected[-1] and expected[-1] + length > chunk:
            expected.append(0)
        expected[-1] += length
    split = [min(chunk, whole - at) for whole in expected for at in range(0, whole, chunk)]
    assert products_with_the_head(lambda: fused_loss(PLAIN, *step.given, bias=step.bias, chunk=chunk)) == split


def test_a_step_that_was_observed_is_not_looked_at_again() -> None:
    """Else the statistics of a batch scope take a product with all tokens before that of the loss."""
    objective, step = tokenpo.method("clip_cov"), Step(50)
    first = fused_loss(objective, *step.given, bias=step.bias, generator=torch.Generator().manual_seed(1))
    batch = first.batch(step.rollouts, objective.prepare(step.rollouts))
    observed = objective.observe(batch, torch.Generator().manual_seed(1)).credit
    given = *step.given[:3], observed, step.given[4]
    assert products_with_the_head(lambda: fused_loss(objective, *step.given, bias=step.bias)) == [M, M]
    assert products_with_the_head(lambda: fused_loss(objective, *given, bias=step.bias)) == [M]
