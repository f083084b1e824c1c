"""The softmax over kept tokens against one row at a time, from the logits of these tokens alone."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.core.head.fused import fused_gradient, fused_loss
from tokenpo.core.head.teacher import Teacher
from tokenpo.core.head.token_stats import stats_from_logits, token_stats
from tokenpo.core.parts import EntropyBonus, TeacherDivergence
from tokenpo.core.trial import example
from tokenpo.core.types import Batch, Policy, Rollouts, Totals

near = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)  # noqa: E731


def kept_sets(target: Tensor, v: int, seed: int = 0) -> Tensor:
    """[M, K] ids with each target among them, in any order; the first row keeps everything, the second its target."""
    g = torch.Generator().manual_seed(seed)
    width = max(1, v - 1)
    table = torch.full((len(target), width), -1, dtype=torch.int32)
    for row, y in enumerate(target.tolist()):
        others = [i for i in torch.randperm(v, generator=g).tolist() if i != y]
        size = 0 if row == 1 else int(torch.randint(0, width, (), generator=g))
        ids = others[:size]
        ids.insert(int(torch.randint(0, size + 1, (), generator=g)), y)
        if row:
            table[row, : len(ids)] = torch.tensor(ids)
    return table


def one_by_one(logits: Tensor, target: Tensor, scale: Tensor, kept: Tensor) -> list[Tensor]:
    """log p_y, H and drift [M], from each row's own short list of logits."""
    found: list[list[Tensor]] = [[], [], []]
    for z, y, a, ids in zip(logits, target.tolist(), scale, kept.tolist(), strict=True):
        own = [i for i in ids if i >= 0] or list(range(len(z)))
        p = (z[own] * a).softmax(0)
        h = -(p * p.log()).sum()
        for column, x in zip(found, (p[own.index(y)].log(), h, (p**2 * (p.log() + h)).sum()), strict=True):
            column.append(x)
    return [torch.stack(column) for column in found]


def test_by_hand():
    logits = torch.tensor([[0.0, math.log(2), math.log(3), 5.0]], dtype=torch.float64, requires_grad=True)
    got = stats_from_logits(logits, torch.tensor([2]), drift=True, kept=torch.tensor([[2, 1, -1]]))
    entropy = -0.4 * math.log(0.4) - 0.6 * math.log(0.6)
    drift = 0.16 * (math.log(0.4) + entropy) + 0.36 * (math.log(0.6) + entropy)
    for x, wanted in zip(got[:3], (math.log(0.6), entropy, drift), strict=True):
        assert x is not None and float(x.detach()) == pytest.approx(wanted, abs=1e-14)
    assert torch.autograd.grad(got.logprob, logits)[0][0].tolist() == pytest.approx([0, -0.4, 0.4, 0], abs=1e-14)


@pytest.mark.parametrize("way", [None, 4, "logits"])
@pytest.mark.parametrize(("m", "h", "v"), [(9, 4, 7), (30, 3, 50), (6, 12, 5), (3, 2, 2)])
def test_values_and_gradients(m: int, h: int, v: int, way) -> None:
    g = torch.Generator().manual_seed(m)
    hidden, head, bias = (torch.randn(*s, generator=g).double().requires_grad_() for s in ((m, h), (v, h), (v,)))
    target, heat = torch.randint(v, (m,), generator=g), torch.rand(m, generator=g).double() + 0.5
    kept, leaves = kept_sets(target, v), [hidden, head, bias]
    a, b = torch.randn(2, m, generator=g).double()
    a[::3] = b[::3] = 0
    logits = linear(hidden, head, bias)
    before = logits.detach().clone()
    how = {"drift": True, "entropy_grad": True, "kept": kept}
    if way == "logits":
        got = stats_from_logits(logits, target, heat, **how)
    else:
        got = token_stats(hidden, head, target, heat, bias=bias, chunk=way, **how)
    wanted = one_by_one(logits, target, 1 / heat, kept)
    for ours, theirs in zip(got[:3], wanted, strict=True):
        near(ours, theirs)
    assert torch.equal(logits, before)
    value, plain = ((a * x[0] + b * x[1]).sum() for x in (got, wanted))
    once, again, exact = (torch.autograd.grad(x, leaves, retain_graph=True) for x in (value, value, plain))
    for x, y, z in zip(once, again, exact, strict=True):
        assert torch.equal(x, y)
        near(x, z)


DAPO = tokenpo.method("dapo")
BONUS = dataclasses.replace(DAPO, name="bonus", penalties=(EntropyBonus(0.1),))


@pytest.mark.parametrize("v", [5, 50])
@pytest.mark.parametrize("chunk", [1, 4, 20, None])
@pytest.mark.parametrize("objective", [DAPO, BONUS, tokenpo.method("gspo"), tokenpo.method("clip_cov")])
def test_the_fused_loss(objective, chunk, v: int) -> None:
    """Value and gradients are those of plain statistics of each token's own list."""
    g = torch.Generator().manual_seed(7)
    inputs = example(3)
    mask = inputs.rollouts["mask"]
    m, ids = int(mask.sum()), inputs.rollouts["token_ids"] % v
    leaves = [torch.randn(*s, generator=g).double().requires_grad_() for s in ((m, 6), (v, 6), (v,))]
    hidden, head, bias = leaves
    flat = kept_sets(ids[mask], v)
    kept = torch.full((*mask.shape, flat.shape[1]), -1, dtype=torch.int32)
    kept[mask] = flat
    stats = one_by_one(linear(hidden, head, bias), ids[mask], torch.ones(m).double(), flat)
    logprob, entropy, drift = (torch.zeros(mask.shape).double().masked_scatter(mask, x) for x in stats)
    fields = {name: x for name, x in inputs.rollouts.items() if name in objective.needs or name in ("reward", "group")}
    old = (logprob.detach() + 0.3 * torch.randn(mask.shape, generator=g).double()).clamp(max=-1e-3)
    fields |= {"token_ids": ids, "kept_ids": kept, "mask": mask, "old_logprob": old}
    rollouts = Rollouts.of(fields)
    credit, totals = objective.prepare(rollouts), Totals.of(rollouts)
    batch = Batch(rollouts, credit, Policy(logprob, entropy, drift.detach()).only(objective.needs))
    loss = objective.loss(objective.observe(batch, torch.Generator().manual_seed(1)), totals).value
    wanted = torch.autograd.grad(loss, leaves)
    step = objective, hidden, head, rollouts, credit, totals
    got = fused_loss(*step, bias=bias, chunk=chunk, generator=torch.Generator().manual_seed(1))
    near(got.loss.value, loss)
    near(got.entropy, entropy.detach())
    for ours, theirs in zip(torch.autograd.grad(got.loss.value, leaves), wanted, strict=True):
        near(ours, theirs)
    _, pulled = fused_gradient(*step, bias=bias, chunk=chunk, generator=torch.Generator().manual_seed(1))
    for ours, theirs in zip((pulled, head.grad, bias.grad), wanted, strict=True):
        near(ours, theirs)


def test_rows_of_the_rollouts_keep_their_sets():
    mask = torch.tensor([[True, True], [True, False]])
    kept = torch.arange(12).view(2, 2, 3)
    given = {"mask": mask, "reward": torch.ones(2), "group": torch.zeros(2).long(), "old_logprob": -mask.float()}
    rollouts = Rollouts(**given, token_ids=torch.tensor([[0, 5], [7, 0]]), kept_ids=kept)
    one = rollouts.rows(torch.tensor([1])).kept_ids
    assert one is not None and one.tolist() == [[[6, 7, 8], [9, 10, 11]]]
    assert rollouts.only(()).kept_ids is kept


def rollouts_with(kept_ids: Tensor) -> Rollouts:
    mask = torch.ones(1, 2, dtype=torch.bool)
    given = {"mask": mask, "reward": torch.ones(1), "group": torch.zeros(1).long(), "old_logprob": -torch.ones(1, 2)}
    return Rollouts(**given, token_ids=torch.tensor([[3, 4]]), kept_ids=kept_ids)


def test_what_is_refused():
    with pytest.raises(TokenPOError, match=r"token_ids\[0, 1\] is 4, which is not in its kept_ids"):
        rollouts_with(kept_ids=torch.tensor([[[3, 4], [3, 5]]]))
    for wrong in (torch.zeros(1, 2).long(), torch.zeros(1, 2, 3), torch.zeros(1, 2, 0).long()):
        with pytest.raises(TokenPOError, match="kept_ids has shape"):
            rollouts_with(kept_ids=wrong)
    sound = rollouts_with(kept_ids=torch.tensor([[[3, 4], [-1, -1]]]))
    hidden, head = torch.ones(2, 3), torch.ones(6, 3)
    taught = dataclasses.replace(tokenpo.method("dr_grpo"), penalties=(TeacherDivergence(0.7),))
    step = hidden, head, sound, taught.prepare(sound), Totals.of(sound)
    teacher = Teacher(hidden, head)
    with pytest.raises(TokenPOError, match="over the whole vocabulary"):
        fused_loss(taught, *step, teacher=teacher)
    target, kept = torch.tensor([3, 4]), torch.tensor([[3], [4]])
    with pytest.raises(TokenPOError, match="over the whole vocabulary"):
        token_stats(hidden, head, target, teacher=teacher, kept=kept)
    with pytest.raises(TokenPOError, match="over the whole vocabulary"):
        stats_from_logits(hidden @ head.T, target, teacher=hidden @ head.T, kept=kept)
    with pytest.raises(TokenPOError, match=r"kept has shape \[1, 1\], expected \[M, K\] with M = 2"):
        token_stats(hidden, head, target, kept=kept[:1])
