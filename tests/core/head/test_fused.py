"""The objective fused with the head against the plain way: all logits, autograd, one loss of all rows."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import tokenpo
from method_kinds import of_each_kind
from naive_head import naive_divergence, naive_stats
from timing import peak_bytes
from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.core.head.fused import Fused, fused_gradient, fused_loss
from tokenpo.core.head.teacher import Teacher, TopTokens
from tokenpo.core.parts import EntropyBonus, TeacherDivergence
from tokenpo.core.trial import example
from tokenpo.core.types import Batch, Policy, Rollouts, Totals

V, H = 50, 6
DAPO = tokenpo.method("dapo")
BONUS = dataclasses.replace(DAPO, name="bonus", penalties=(EntropyBonus(0.1),))


def taught(beta: float, *more: EntropyBonus) -> tokenpo.Objective:
    return dataclasses.replace(tokenpo.method("dr_grpo"), penalties=(TeacherDivergence(0.7, beta), *more))


class Plain(NamedTuple):
    """From all logits at once: loss, gradients at the leaves and at lp [N, T], terms, policy and entropies [N, T]."""

    value: Tensor
    gradients: list[Tensor]
    pull: Tensor
    terms: dict[str, Tensor]
    policy: Policy
    entropy: Tensor


class Problem:
    """Hidden states, head and bias of the tokens of ragged responses; the policy near the one that sampled.

    The teacher has hidden states of its own, and some that have a graph.
    """

    def __init__(
        self, objective, dtype=torch.float64, seed: int = 0, *, bias: bool = False, dead: bool = False, v: int = V, **of
    ):
        g = torch.Generator().manual_seed(seed)
        draw = functools.partial(torch.randn, generator=g, dtype=torch.float64)
        inputs = example(seed, **of).map(lambda x: x.to(dtype) if x.is_floating_point() else x)
        mask = inputs.rollouts["mask"].clone()
        mask[5] = False  # a response without tokens
        mask[2, 1:3] = False  # and one with a gap
        m = int(mask.sum())
        self.hidden, self.head, weights = (x.to(dtype).requires_grad_() for x in (draw(m, H), draw(v, H), draw(v)))
        self.bias = weights if bias else None
        fields = {k: x for k, x in inputs.rollouts.items() if k in objective.needs or k in ("reward", "group")}
        fields |= {"token_ids": inputs.rollouts["token_ids"] % v, "temperature": inputs.rollouts["temperature"]}
        if dead:
            fields["reward"] = torch.where(fields["group"] % 2 == 0, 1.0, fields["reward"]).to(dtype)
        heat = fields["temperature"].nan_to_num(1.0)
        with torch.no_grad():
            now = torch.zeros(mask.shape, dtype=dtype)
            target = fields["token_ids"][mask]
            now[mask] = naive_stats(self.logits(), target, 1 / heat[mask][:, None]).logprob.to(dtype)
        old = (now + 0.3 * draw(mask.shape).to(dtype)).clamp(max=-1e-3)
        self.rollouts = Rollouts.of({**fields, "mask": mask, "old_logprob": old, "temperature": heat})
        self.teacher = Teacher(torch.cat([torch.roll(self.hidden, 1, 0), draw(m, 3)], 1), draw(v, H + 3) / 2, draw(v))
        self.credit = objective.prepare(self.rollouts)
        self.totals = Totals.of(self.rollouts)

    def logits(self) -> Tensor:
        return torch.nn.functional.linear(self.hidden, self.head, self.bias)

    @property
    def leaves(self) -> list[Tensor]:
        return [x for x in (self.hidden, self.head, self.bias) if x is not None]

    @property
    def step(self) -> tuple:
        return self.hidden, self.head, self.rollouts, self.credit, self.totals

    def table(self, x: Tensor) -> Tensor:
        mask = self.rollouts.mask
        return torch.zeros(mask.shape, dtype=x.dtype).masked_scatter(mask, x)

    def plain(self, objective) -> Plain:
        mask = self.rollouts.mask
        assert self.rollouts.temperature is not None and self.rollouts.token_ids is not None
        scale = 1 / self.rollouts.temperature[mask].unsqueeze(-1)
        flat = naive_stats(
            self.logits(), self.rollouts.token_ids[mask], scale, drift=True, entropy_grad=objective.entropy_gradient
        )
        if objective.teacher_beta is not None:
            of_teacher = torch.nn.functional.linear(self.teacher.hidden.detach(), self.teacher.head, self.teacher.bias)
            divergence = naive_divergence(self.logits(), of_teacher, scale, objective.teacher_beta)
            flat = flat._replace(teacher_divergence=divergence)
        policy = Policy(**{name: self.table(x) for name, x in flat._asdict().items() if x is not None})
        batch = Batch(self.rollouts, self.credit, policy.only(objective.needs))
        batch = objective.observe(batch, torch.Generator().manual_seed(3))
        loss = objective.loss(batch, self.totals)
        *gradients, pull = torch.autograd.grad(loss.value, [*self.leaves, policy.logprob])
        return Plain(loss.value.detach(), gradients, pull, dict(loss.terms), batch.policy, policy.entropy.detach())

    def fused(self, objective, chunk: int | None) -> Fused:
        generator = torch.Generator().manual_seed(3)
        return fused_loss(objective, *self.step, bias=self.bias, generator=generator, chunk=chunk, teacher=self.teacher)


def close(got: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert (got - wanted).norm() <= tolerance * wanted.norm().clamp(min=1e-6)


near = functools.partial(torch.testing.assert_close, rtol=1e-10, atol=1e-13)


# A vocabulary of 5, below the hidden size of 6, takes all rows of logits back; one of 50 picks out those whose gradient
# is not 0. In a dead group all rewards are equal.
@pytest.mark.filterwarnings("error")  # torch warns where the place of a product has not its shape
@pytest.mark.parametrize("v", [5, 50])
@pytest.mark.parametrize(
    ("objective", "dead"),
    [
        *itertools.product((DAPO, BONUS), (True, False)),
        *((taught(beta), True) for beta in (0.0, 0.1, 0.5, 1.0)),
        *((taught(beta, EntropyBonus(0.1)), False) for beta in (0.0, 0.1, 0.5, 1.0)),
    ],
)
def test_every_chunk_from_one_token_to_all_of_them(objective, dead: bool, v: int) -> None:
    problem = Problem(objective, v=v, bias=True, dead=dead, groups=2, size=3)
    mask, wanted = problem.rollouts.mask, problem.plain(objective)
    still = (wanted.gradients[0] == 0).all(1)
    assert (wanted.pull[mask] != 0).any() and (not dead or (wanted.pull[mask] == 0).any())
    for chunk in range(1, len(problem.hidden) + 2):
        fused = problem.fused(objective, chunk)
        near(fused.loss.value.detach(), wanted.value)
        gradients = torch.autograd.grad(fused.loss.value, problem.leaves)
        for mine, theirs in zip(gradients, wanted.gradients, strict=True):
            near(mine, theirs)
        assert not gradients[0][still].any()
        near(fused.pull, wanted.pull)
        near(fused.entropy, wanted.entropy)
        near(fused.loss.terms["ratio"][mask], wanted.terms["ratio"][mask])
        fields = {name: x for name, x in vars(fused.policy).items() if x is not None}
        assert fields.keys() == {"logprob"} | objective.needs & vars(wanted.policy).keys()
        for name, x in fields.items():
            near(x, getattr(wanted.policy, name).detach())
        assert not any(x.requires_grad for x in (fused.pull, fused.entropy, *fields.values()))
        leaves = [x.detach().clone().requires_grad_() for x in problem.leaves]
        how = {"bias": leaves[2], "teacher": problem.teacher, "chunk": chunk}
        _, pulled = fused_gradient(objective, *leaves[:2], *problem.step[2:], **how)
        for mine, theirs in zip((pulled, leaves[1].grad, leaves[2].grad), wanted.gradients, strict=True):
            near(mine, theirs)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_a_teachers_top_tokens_with_one_other_are_the_whole(beta: float) -> None:
    problem, objective = Problem(taught(beta), v=12, bias=True, groups=2, size=3), taught(beta)
    wanted, heat = problem.plain(objective), problem.rollouts.temperature[problem.rollouts.mask][:, None]
    whole = torch.nn.functional.linear(problem.teacher.hidden.detach(), problem.teacher.head, problem.teacher.bias)
    logprob, ids = (whole / heat).log_softmax(-1).topk(11)
    fused = fused_loss(objective, *problem.step, bias=problem.bias, chunk=4, teacher=TopTokens(ids, logprob))
    near(fused.loss.value.detach(), wanted.value)
    for mine, theirs in zip(torch.autograd.grad(fused.loss.value, problem.leaves), wanted.gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("objective", [DAPO, BONUS])
def test_float32_is_not_rounded_to_less(objective) -> None:
    """Bf16 would be off by 4e-3."""
    problem = Problem(objective, bias=True)
    hidden, head, bias = (x.detach().float().requires_grad_() for x in problem.leaves)
    problem.hidden, problem.head, problem.bias = (x.detach().double().requires_grad_() for x in (hidden, head, bias))
    _, pulled = fused_gradient(objective, hidden, head, *problem.step[2:], bias=bias, chunk=7)
    for mine, theirs in zip((pulled, head.grad, bias.grad), problem.plain(objective).gradients, strict=True):
        assert mine is not None and mine.dtype == torch.float32
        assert (mine.double() - theirs).norm() < 3e-6 * theirs.norm()


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("objective", [DAPO, BONUS])
@pytest.mark.parametrize("v", [5, 50])
def test_only_what_wants_a_gradient_gets_one(v: int, objective, wanted: tuple[bool, ...]) -> None:
    problem = Problem(objective, v=v, bias=True, dead=True, groups=2, size=3)
    plain, step = problem.plain(objective), problem.step[2:]
    leaves, frozen = (
        [x.detach().requires_grad_(wants) for x, wants in zip(problem.leaves, wanted, strict=True)] for _ in range(2)
    )
    for chunk in (4, 11, len(problem.hidden)):
        fused = fused_loss(objective, *leaves[:2], *step, bias=leaves[2], chunk=chunk)
        near(fused.loss.value.detach(), plain.value)
        assert fused.loss.value.requires_grad == any(wanted)
        for x, theirs in zip(leaves, plain.gradients, strict=True):
            if x.requires_grad:
                near(torch.autograd.grad(fused.loss.value, x, retain_graph=True)[0], theirs)
    for x in frozen:
        x.grad = torch.ones_like(x)  # left over from a time when it was trained
    _, pulled = fused_gradient(objective, *frozen[:2], *step, bias=frozen[2], chunk=11)
    near(pulled, plain.gradients[0])
    for x, theirs, wants in zip(frozen[1:], plain.gradients[1:], wanted[1:], strict=True):
        assert x.grad is not None
        near(x.grad, 1 + theirs if wants else torch.ones_like(x))


def test_what_a_bf16_head_has_gathered_is_rounded_once() -> None:
    """The same products, summed into a float32 leaf by autocast, added to what was there and rounded."""
    problem = Problem(DAPO)
    hidden, head = problem.hidden.detach().bfloat16(), problem.head.detach().bfloat16().requires_grad_()
    wide = head.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused_gradient(DAPO, hidden, wide, *problem.step[2:], chunk=1)
    assert wide.grad is not None
    before = wide.grad.flip(0).bfloat16()
    head.grad = before.clone()
    fused_gradient(DAPO, hidden, head, *problem.step[2:], chunk=1)
    assert torch.equal(head.grad, (before.float() + wide.grad).bfloat16())


# A chunk of 4 is shorter than many responses, one of 20 holds several, and by default one holds them all.
@pytest.mark.parametrize("chunk", [4, 20, None])
@pytest.mark.parametrize("name", of_each_kind())
def test_is_the_plain_way_for_every_method(name, chunk):
    objective = tokenpo.method(name)
    problem = Problem(objective, bias=chunk == 20)
    value, gradients, _, terms, _, _ = problem.plain(objective)
    got = problem.fused(objective, chunk)
    mine = [x / 3 for x in torch.autograd.grad(3 * got.loss.value, problem.leaves)]
    close(got.loss.value, value, 1e-10)
    for ours, theirs in zip(mine, gradients, strict=True):
        close(ours, theirs, 1e-10)
    mask = problem.rollouts.mask
    for term, wanted in terms.items():
        torch.testing.assert_close(got.loss.terms[term][mask], wanted[mask], rtol=1e-9, atol=1e-9)
    fields = {name for name, x in vars(got.policy).items() if x is not None}
    assert fields == {"logprob"} | objective.needs & vars(got.policy).keys()


def test_under_autocast_the_gradient_of_a_float32_head_is_not_rounded_to_bf16():
    """It is a sum over tokens, of which each was rounded; `fused_gradient` adds into the same buffer."""
    objective = tokenpo.method("grpo")
    one, other = Problem(objective, torch.float32), Problem(objective, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = one.fused(objective, 20)
        fused_gradient(objective, *other.step, chunk=20)
    got.loss.value.backward()
    assert one.head.grad is not None and other.head.grad is not None
    torch.testing.assert_close(one.head.grad, other.head.grad, rtol=1e-6, atol=1e-9)
    assert (one.head.grad != one.head.grad.bfloat16().float()).any()


@pytest.mark.parametrize("chunk", [4, 20, None])
@pytest.mark.parametrize("name", ["grpo", "gspo", "hapo", "aer", "clip_cov"])
def test_bf16_against_the_plain_way_in_bf16(name, chunk):
    """From the same rounded logits, so that the same tokens are clipped; both round the gradient to 8 bits."""
    objective = tokenpo.method(name)
    ours = Problem(objective)
    ours.hidden, ours.head = (x.detach().bfloat16().requires_grad_() for x in (ours.hidden, ours.head))
    value, gradients, *_ = ours.plain(objective)
    got = ours.fused(objective, chunk).loss.value
    close(got.double(), value.double(), 1e-5)
    for mine, theirs in zip(torch.autograd.grad(got, ours.leaves), gradients, strict=True):
        assert mine.dtype == torch.bfloat16
        close(mine.double(), theirs.double(), 0.01)


@pytest.mark.parametrize("chunk", [4, None])
def test_keeps_the_terms_that_are_named(chunk):
    objective = tokenpo.method("tepo")
    problem = Problem(objective)
    step = objective, *problem.step
    whole, pulled = fused_gradient(*step, chunk=chunk)
    for names in ((), ("ratio", "clipped")):
        by_graph, (some, same) = (
            fused_loss(*step, chunk=chunk, terms=names),
            fused_gradient(*step, chunk=chunk, terms=names),
        )
        for fused in (by_graph, some):
            assert tuple(fused.loss.terms) == names
            assert all(torch.equal(x, whole.loss.terms[name]) for name, x in fused.loss.terms.items())
            assert torch.equal(fused.loss.value, whole.loss.value)
        assert torch.equal(same, pulled)
    with pytest.raises(TokenPOError, match=r"loss: term.*ratios"):
        fused_loss(*step, chunk=chunk, terms=("ratios",))


def rows_of_products(run) -> list[int]:
    """Of every product with the head or of its gradient, the number of tokens that went in."""
    found: list[int] = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_):
                a, b = args[-2], args[-1]
                found.append(a.numel() * b.shape[1] // (V * H))
            return func(*args, **(kwargs or {}))

    with Count():
        run()
    return found


def test_how_many_products_are_made():
    """Three, a fourth where a response exceeds the chunk, two with a frozen head, one where no gradient is wanted.

    Tokens without gradient, clipped or without advantage, are in the first alone.
    """
    objective = tokenpo.method("grpo")
    problem = Problem(objective, dead=True)
    m, lengths, live = len(problem.hidden), problem.rollouts.mask.sum(1), problem.plain(objective).pull != 0
    alive, longer = int(live.sum()), int(live[lengths > 4].sum())
    assert 0 < longer < alive < m * 2 / 3
    assert sum(rows_of_products(lambda: problem.fused(objective, 1000))) == m + 2 * alive
    assert sum(rows_of_products(lambda: problem.fused(objective, 4))) == m + 2 * alive + longer
    problem.head = problem.head.detach()
    assert sum(rows_of_products(lambda: problem.fused(objective, 1000))) == m + alive
    with torch.no_grad():
        assert sum(rows_of_products(lambda: problem.fused(objective, 20))) == m


@torch.no_grad()
def test_a_step_that_was_observed_is_not_looked_at_again() -> None:
    """Else the statistics of a batch scope take a product with all tokens before that of the loss."""
    objective = tokenpo.method("clip_cov")
    problem = Problem(objective)
    m, batch = len(problem.hidden), problem.fused(objective, None).batch(problem.rollouts, problem.credit)
    assert rows_of_products(lambda: problem.fused(objective, None)) == [m, m]
    problem.credit = objective.observe(batch, torch.Generator().manual_seed(3)).credit
    assert rows_of_products(lambda: problem.fused(objective, None)) == [m]


def large(
    objective, n: int, length: int, v: int, h: int, lp: float, dtype: torch.dtype = torch.float32, **how
) -> Callable[[], tuple[Fused, Tensor]]:
    """`fused_gradient` on n responses in groups of 8, called once so that the head's gradient is there."""
    g = torch.Generator().manual_seed(0)
    facts = Rollouts(
        mask=torch.ones(n, length, dtype=torch.bool),
        reward=torch.arange(n).remainder(2).float(),
        group=torch.arange(n) // 8,
        old_logprob=torch.full((n, length), lp),
        token_ids=torch.randint(v, (n, length), generator=g),
        old_entropy=torch.full((n, length), 6.8),
    )
    hidden = torch.randn(n * length, h, generator=g).to(dtype).requires_grad_()
    head = torch.zeros(v, h).normal_(std=0.01, generator=g).to(dtype).requires_grad_()
    step = objective, hidden, head, facts, objective.prepare(facts), Totals.of(facts)
    run = functools.partial(fused_gradient, *step, **how)
    run()
    return run


@pytest.mark.parametrize("name", ["gspo", "aer"])
def test_memory_is_bounded_by_the_chunk_whatever_the_number_of_responses(name):
    """Between 32 and 256 responses of 16 tokens, what is held grows by their hidden states and tables alone.

    Each token costs H float32 of gradient and a few tables [N, T] of at most 8 bytes: less than 1 KB at H = 8. Its
    logits would be 4 KB. A chunk of 64 tokens holds 256 KB, and as much again is worked on in blocks.
    """
    objective, v, length, chunk = tokenpo.method(name), 1000, 16, 64
    few, many = (peak_bytes(large(objective, n, length, v, 8, -6.9, chunk=chunk)) for n in (32, 256))
    assert many - few < 1024 * (256 - 32) * length
    assert few < 4 * chunk * v * 4 + 1024 * 32 * length


def test_bad_input_is_named():
    objective = tokenpo.method("grpo")
    problem = Problem(objective)
    with pytest.raises(TokenPOError, match="fused_gradient: head is computed from something else"):
        fused_gradient(objective, problem.hidden, 2 * problem.head, *problem.step[2:])
    problem.hidden = problem.hidden[1:]
    with pytest.raises(TokenPOError, match=r"hidden \[\d+, 6\] and head \[50, 6\] must be \[M, H\] and \[V, H\]"):
        problem.fused(objective, None)
    objective = taught(0.5)
    problem = Problem(objective)
    with pytest.raises(MissingInput, match="needs teacher_divergence: give teacher"):
        fused_loss(objective, *problem.step)
    for wrong in ({"head": problem.teacher.head[:5]}, {"hidden": problem.teacher.hidden[:4]}):
        with pytest.raises(TokenPOError, match=rf"M = {len(problem.hidden)} tokens and vocabulary of V = 50"):
            fused_loss(objective, *problem.step, teacher=dataclasses.replace(problem.teacher, **wrong))
    inputs = {k: x for k, x in example().rollouts.items() if k in ("mask", "reward", "group", "old_logprob")}
    problem.rollouts = Rollouts(**inputs)
    with pytest.raises(MissingInput, match="dr_grpo fused with the head needs token_ids"):
        problem.fused(objective, None)
