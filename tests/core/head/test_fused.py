"""The objective fused with the head against the plain way: all logits, autograd, one loss of all rows."""

import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tokenpo
from method_kinds import of_each_kind
from naive_head import naive_divergence, naive_stats
from timing import peak_bytes
from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.core.head import tiles
from tokenpo.core.head.fused import Fused, fused_gradient, fused_loss
from tokenpo.core.head.projection import HeadGradient
from tokenpo.core.head.teacher import Teacher
from tokenpo.core.head.token_stats import token_stats
from tokenpo.core.trial import example
from tokenpo.core.types import Batch, Credit, Policy, Rollouts, Totals

V, H = 50, 6


class Problem:
    """Hidden states, head and bias of the tokens of ragged responses; the policy near the one that sampled."""

    def __init__(self, objective, dtype=torch.float64, seed: int = 0, *, bias: bool = False, dead: bool = False):
        g = torch.Generator().manual_seed(seed)
        inputs = example(seed).map(lambda x: x.to(dtype) if x.is_floating_point() else x)
        mask = inputs.rollouts["mask"].clone()
        mask[5] = False  # a response without tokens
        mask[2, 1:3] = False  # and one with a gap
        m = int(mask.sum())
        self.hidden = torch.randn(m, H, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
        self.head = torch.randn(V, H, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
        self.bias = torch.randn(V, generator=g, dtype=torch.float64).to(dtype).requires_grad_() if bias else None
        fields = {k: x for k, x in inputs.rollouts.items() if k in objective.needs or k in ("reward", "group")}
        fields |= {"token_ids": inputs.rollouts["token_ids"], "temperature": inputs.rollouts["temperature"]}
        if dead:
            fields["reward"] = torch.where(fields["group"] % 2 == 0, 1.0, fields["reward"]).to(dtype)
        heat = fields["temperature"].nan_to_num(1.0)
        with torch.no_grad():
            now = torch.zeros(mask.shape, dtype=dtype)
            target = fields["token_ids"][mask]
            now[mask] = naive_stats(self.logits(), target, 1 / heat[mask][:, None]).logprob.to(dtype)
        old = (now + 0.3 * torch.randn(mask.shape, generator=g, dtype=torch.float64).to(dtype)).clamp(max=-1e-3)
        self.rollouts = Rollouts(**{**fields, "mask": mask, "old_logprob": old, "temperature": heat})
        self.teacher = Teacher(hidden=torch.roll(self.hidden, 1, 0), head=self.head.detach() / 2)
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

    def plain(self, objective) -> tuple[Tensor, list[Tensor], dict[str, Tensor], Credit]:
        """Loss, gradients, terms and observed credit from all logits at once."""
        mask = self.rollouts.mask
        assert self.rollouts.temperature is not None and self.rollouts.token_ids is not None
        scale = 1 / self.rollouts.temperature[mask].unsqueeze(-1)
        flat = naive_stats(
            self.logits(), self.rollouts.token_ids[mask], scale, drift=True, entropy_grad=objective.entropy_gradient
        )
        if objective.teacher_beta is not None:
            taught = self.teacher.hidden.detach() @ self.teacher.head.T
            divergence = naive_divergence(self.logits(), taught, scale, objective.teacher_beta)
            flat = flat._replace(teacher_divergence=divergence)
        wanted = {k: x for k, x in flat._asdict().items() if k == "logprob" or k in objective.needs}
        policy = Policy(
            **{k: torch.zeros(mask.shape, dtype=x.dtype).masked_scatter(mask, x) for k, x in wanted.items()}
        )
        batch = Batch(self.rollouts, self.credit, policy)
        batch = objective.observe(batch, torch.Generator().manual_seed(3))
        loss = objective.loss(batch, self.totals)
        return loss.value, list(torch.autograd.grad(loss.value, self.leaves)), dict(loss.terms), batch.credit

    def fused(self, objective, chunk: int | None) -> Fused:
        generator = torch.Generator().manual_seed(3)
        return fused_loss(objective, *self.step, bias=self.bias, generator=generator, chunk=chunk, teacher=self.teacher)


def close(got: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert (got - wanted).norm() <= tolerance * wanted.norm().clamp(min=1e-6)


# A chunk of 4 is shorter than many responses, one of 20 holds several, and by default one holds them all; "lean" takes
# blocks of 7 tokens and 16 of the vocabulary of 50.
@pytest.mark.parametrize("chunk", [4, 20, None, "lean"])
@pytest.mark.parametrize("name", of_each_kind())
def test_is_the_plain_way_for_every_method(name, chunk, monkeypatch):
    monkeypatch.setattr("tokenpo.core.head.tiles._SHAPE", (7, 16))
    objective = tokenpo.method(name)
    if chunk == "lean" and objective.teacher_beta is not None:
        pytest.skip("refused: test_teacher.py")
    problem = Problem(objective, bias=chunk in (20, "lean"), dead=chunk == "lean")
    value, gradients, terms, _ = problem.plain(objective)
    if chunk == "lean":
        generator = torch.Generator().manual_seed(3)
        got, pulled = fused_gradient(objective, *problem.step, bias=problem.bias, generator=generator, lean=True)
        mine = pulled, problem.head.grad, problem.bias.grad
    else:
        got = problem.fused(objective, chunk)
        mine = [x / 3 for x in torch.autograd.grad(3 * got.loss.value, problem.leaves)]
    close(got.loss.value, value, 1e-10)
    for ours, theirs in zip(mine, gradients, strict=True):
        close(ours, theirs, 1e-10)
    mask = problem.rollouts.mask
    for term, wanted in terms.items():
        torch.testing.assert_close(got.loss.terms[term][mask], wanted[mask], rtol=1e-9, atol=1e-9)
    fields = {name for name, x in vars(got.policy).items() if x is not None}
    assert fields == {"logprob"} | (objective.needs & {"entropy", "entropy_drift", "teacher_divergence"})


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


def test_a_gradient_stays_in_halves_only_where_one_product_makes_it(monkeypatch):
    """Or each tile adds once; not with a second chunk, and not under autocast, where the head itself is wider."""
    objective = tokenpo.method("grpo")
    problem = Problem(objective)
    hidden, head = (x.detach().bfloat16().requires_grad_() for x in (problem.hidden, problem.head))
    step = problem.rollouts, problem.credit, problem.totals
    m, seen = len(hidden), []
    start = HeadGradient.start

    def watched(*args, once=False, **named):
        seen.append(once)
        return start(*args, once=once, **named)

    monkeypatch.setattr(HeadGradient, "start", watched)
    for chunk in (m, m - 1):
        fused_loss(objective, hidden, head, *step, chunk=chunk)
        fused_gradient(objective, hidden, head, *step, chunk=chunk)
        token_stats(hidden, head, problem.rollouts.token_ids[step[0].mask], chunk=chunk).logprob.sum().backward()
    assert seen == [True, True, True, False, False, False]
    fused_gradient(objective, hidden, head, *step, lean=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused_gradient(objective, hidden, head.detach().float().requires_grad_(), *step, chunk=m)
    assert seen[6:] == [True, False]


@pytest.mark.parametrize("chunk", [4, 20, None])
@pytest.mark.parametrize("name", ["grpo", "gspo", "hapo", "aer", "clip_cov"])
def test_bf16_against_the_plain_way_in_bf16(name, chunk):
    """From the same rounded logits, so that the same tokens are clipped; both round the gradient to 8 bits."""
    objective = tokenpo.method(name)
    ours = Problem(objective)
    ours.hidden, ours.head = (x.detach().bfloat16().requires_grad_() for x in (ours.hidden, ours.head))
    value, gradients, _, _ = ours.plain(objective)
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
    """Three, a fourth where a response exceeds the chunk, two with a frozen head, one where no gradient is wanted."""
    objective = tokenpo.method("gpg")
    problem = Problem(objective)
    m = len(problem.hidden)
    lengths = problem.rollouts.mask.sum(1)
    live = (problem.credit.advantage != 0).any(1)
    alive, longer = int(lengths[live].sum()), int(lengths[live & (lengths > 4)].sum())
    assert 0 < longer < alive <= m
    assert sum(rows_of_products(lambda: problem.fused(objective, 1000))) == m + 2 * alive
    assert sum(rows_of_products(lambda: problem.fused(objective, 4))) == m + 2 * alive + longer
    problem.head = problem.head.detach()
    assert sum(rows_of_products(lambda: problem.fused(objective, 1000))) == m + alive
    with torch.no_grad():
        assert sum(rows_of_products(lambda: problem.fused(objective, 20))) == m


@pytest.mark.parametrize("chunk", [4, 20, None])
@pytest.mark.parametrize("name", ["grpo", "gspo", "hapo", "aer"])
def test_tokens_without_gradient_are_skipped_exactly(name, chunk):
    objective = tokenpo.method(name)
    problem = Problem(objective, dead=True)
    _, gradients, _, _ = problem.plain(objective)
    dead = (gradients[0] == 0).all(1)
    assert name == "aer" or dead.sum() > len(dead) // 3
    got = []
    products = rows_of_products(
        lambda: got.extend(torch.autograd.grad(problem.fused(objective, chunk).loss.value, problem.leaves))
    )
    for mine, theirs in zip(got, gradients, strict=True):
        close(mine, theirs, 1e-10)
    assert not got[0][dead].any()
    if chunk is None:
        assert sum(products) == len(dead) + 2 * int((~dead).sum())


def test_a_part_of_a_batch_scope_step_is_refused():
    objective = tokenpo.method("clip_cov")
    problem = Problem(objective)
    problem.totals = dataclasses.replace(problem.totals, tokens=2 * problem.totals.tokens)
    with pytest.raises(TokenPOError, match="statistics of the current policy over the whole optimiser step"):
        problem.fused(objective, None)


def large(
    objective, n: int, length: int, v: int, h: int, lp: float, dtype: torch.dtype = torch.float32, **how
) -> Callable[[], tuple[Fused, Tensor]]:
    """`fused_gradient` on n responses in groups of 8, called once so that the head's gradient is there."""
    g = torch.Generator().manual_seed(0)
    facts = Rollouts(
        mask=torch.ones(n, length, dtype=torch.bool), reward=torch.arange(n).remainder(2).float(),
        group=torch.arange(n) // 8, old_logprob=torch.full((n, length), lp),
        token_ids=torch.randint(v, (n, length), generator=g), old_entropy=torch.full((n, length), 6.8),
    )  # fmt: skip
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


def test_lean_holds_no_row_of_logits():
    """64 tokens of a vocabulary of 100,000: what is held at once stays below a twelfth of the logits, 25.6 MB."""
    n, length, v = 4, 16, 100_000
    assert peak_bytes(large(tokenpo.method("grpo"), n, length, v, 8, -11.0, lean=True)) < n * length * v * 4 / 12


def test_lean_sums_the_gradient_of_a_half_precision_head_in_float32_a_tile_at_a_time(monkeypatch):
    """In tiles of 7 words and single tokens; also onto an earlier gradient."""
    monkeypatch.setattr(tiles, "_SHAPE", (1, 7))
    seen, add = set(), HeadGradient.add

    def watched(self, *args, **named):
        seen.add(self.head.dtype)
        add(self, *args, **named)

    objective = tokenpo.method("grpo")
    problem = Problem(objective)
    hidden, head = (x.detach().bfloat16() for x in (problem.hidden, problem.head))
    for earlier in (None, 1e-3 * torch.randn(V, H, generator=torch.Generator().manual_seed(5)).bfloat16()):
        made = []
        for how in ({"chunk": len(hidden)}, {"lean": True}):
            monkeypatch.setattr(HeadGradient, "add", watched if "lean" in how else add)
            own = head.clone().requires_grad_()
            own.grad = None if earlier is None else earlier.clone()
            _, pulled = fused_gradient(objective, hidden.clone().requires_grad_(), own, *problem.step[2:], **how)
            made.append((own.grad.double(), pulled.double()))
        for whole, lean in zip(*made, strict=True):
            close(lean, whole, 6e-3)
    assert seen == {torch.float32}


def test_lean_needs_no_float32_copy_of_a_half_precision_head():
    """Beyond a head of 100,000 x 32 in halves, 6.4 MB, and its gradient."""
    run = large(tokenpo.method("grpo"), 4, 16, 100_000, 32, -11.0, lean=True, dtype=torch.bfloat16)
    assert peak_bytes(run) < 100_000 * 32 * 4 / 2


@pytest.mark.parametrize(
    ("name", "v", "h", "chunk", "most"),
    # Beyond the chunk's logits, 1: gradients of as many numbers where V = H, 1, and blocks that are worked on.
    [("dapo", 500, 500, 2048, 2.6), ("aer", 20_000, 8, 256, 1.5)],
)
def test_the_gradient_of_the_logits_takes_their_place(name, v, h, chunk, most):
    """What the head and the entropy make of the residual is written over it: no second chunk of logits."""
    assert peak_bytes(large(tokenpo.method(name), 32, 64, v, h, -6.9, chunk=chunk)) < most * chunk * v * 4


def test_bad_input_is_named():
    objective = tokenpo.method("grpo")
    problem = Problem(objective)
    with pytest.raises(TokenPOError, match="fused_gradient: head is computed from something else"):
        fused_gradient(objective, problem.hidden, 2 * problem.head, *problem.step[2:])
    problem.hidden = problem.hidden[1:]
    with pytest.raises(TokenPOError, match=r"hidden \[\d+, 6\] and head \[50, 6\] must be \[M, H\] and \[V, H\]"):
        problem.fused(objective, None)
    inputs = {k: x for k, x in example().rollouts.items() if k in ("mask", "reward", "group", "old_logprob")}
    problem.rollouts = Rollouts(**inputs)
    with pytest.raises(MissingInput, match="grpo fused with the head needs token_ids"):
        problem.fused(objective, None)
