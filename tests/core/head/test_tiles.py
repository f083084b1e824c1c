"""The head in tiles of the vocabulary against the naive formula, with edges that no tile size divides."""

from __future__ import annotations

import pytest
import torch

from naive_head import naive_stats
from tokenpo.core.head.projection import HeadGradient
from tokenpo.core.head.tiles import Tiled


@pytest.mark.parametrize(("rows", "tile"), [(3, 4), (5, 7), (100, 1), (4, 100)])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_is_the_naive_formula(rows, tile, per_token, with_entropy):
    g = torch.Generator().manual_seed(0)
    hidden, head, bias = (torch.randn(*s, generator=g, dtype=torch.float64) for s in ((11, 3), (10, 3), (10,)))
    leaves = [x.requires_grad_() for x in (3 * hidden, head, bias)]
    target = torch.randint(10, (11,), generator=g)
    scale = torch.rand(11, 1, generator=g, dtype=torch.float64) + 0.5 if per_token else 0.7
    incoming, to_entropy = torch.randn(2, 11, generator=g, dtype=torch.float64)
    incoming[2::4], to_entropy[2::4] = 0, 0
    wanted = naive_stats(
        torch.nn.functional.linear(*leaves), target, scale, drift=True, entropy_grad=True
    )  # fmt: skip

    hidden, head, bias = (x.detach() for x in leaves)
    tiled = Tiled(head, bias, rows, tile)
    known = tiled.stats(hidden, target, scale, drift=True)
    for ours, theirs in zip(known[0][:3], wanted[:3], strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-11, atol=1e-12)

    value = (incoming * wanted.logprob).sum() + ((to_entropy * wanted.entropy).sum() if with_entropy else 0)
    total = HeadGradient.start(hidden, head, bias, (True, True, True))
    tiled.add_gradient(total, hidden, target, scale, known, incoming, to_entropy if with_entropy else None)
    for ours, theirs in zip((total.hidden, total.head, total.bias), torch.autograd.grad(value, leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert not total.hidden[2::4].any()
    assert len(tiled.stats(hidden, target, scale)[0].drift) == 0


def test_large_logits_in_any_order_of_tiles():
    """The maximum rises from tile to tile or falls; one naive sum of exponentials would overflow."""
    hidden, target = torch.ones(1, 1), torch.tensor([1])
    for values in ([0.0, 400.0, 800.0, 799.0], [800.0, 799.0, 400.0, 0.0]):
        head = torch.tensor(values).unsqueeze(1)
        (stats, _) = Tiled(head, None, 1, 1).stats(hidden, target, 1.0)
        exact = torch.log_softmax(head[:, 0].double(), 0)
        torch.testing.assert_close(stats.logprob.double(), exact[target], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(stats.entropy.double(), -(exact.exp() * exact).sum()[None], rtol=1e-5, atol=1e-6)


def test_half_precision_is_summed_in_float32():
    g = torch.Generator().manual_seed(0)
    hidden, head = (torch.randn(*s, generator=g).bfloat16().requires_grad_() for s in ((20, 8), (50, 8)))
    target = torch.randint(50, (20,), generator=g)
    wanted = naive_stats(hidden @ head.t(), target, 1.0)
    grads = torch.autograd.grad(wanted.logprob.sum(), [hidden, head])
    tiled = Tiled(head.detach(), None, 6, 16)
    known = tiled.stats(hidden.detach(), target, 1.0)
    assert known[0].logprob.dtype == torch.float32
    torch.testing.assert_close(known[0].logprob, wanted.logprob.detach(), rtol=1e-5, atol=1e-5)
    total = HeadGradient.start(hidden.detach(), head.detach(), None, (True, True, False))
    tiled.add_gradient(total, hidden.detach(), target, 1.0, known, torch.ones(20), None)
    assert (total.hidden.dtype, total.head.dtype) == (torch.bfloat16, torch.float32)
    for ours, theirs in zip((total.hidden, total.head), grads, strict=True):
        assert (ours.double() - theirs.double()).norm() < 0.01 * theirs.double().norm()
