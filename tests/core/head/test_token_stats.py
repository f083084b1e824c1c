"""Fused token statistics against the naive formula in float64 with autograd."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from naive_head import naive_stats
from tokenpo.base.errors import TokenPOError
from tokenpo.core.head import projection
from tokenpo.core.head.projection import HeadGradient, keep_rows_
from tokenpo.core.head.token_stats import stats_from_logits, token_stats


def naive(hidden: Tensor, head: Tensor, target: Tensor, temperature: float | Tensor, bias: Tensor | None = None):
    """All three statistics, with gradient through the entropy."""
    scale = 1 / temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else 1 / temperature
    return naive_stats(linear(hidden, head, bias), target, scale, drift=True, entropy_grad=True)


def problem(m: int, h: int, v: int, dtype=torch.float64, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(m, h, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    head = torch.randn(v, h, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    bias = torch.randn(v, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    target = torch.randint(v, (m,), generator=g)
    temperature = torch.rand(m, generator=g, dtype=torch.float64) + 0.5
    return hidden, head, bias, target, temperature


@pytest.mark.parametrize("shape", [(1, 1, 2), (7, 5, 3), (33, 8, 50), (130, 3, 17), (5, 4, 1), (40, 6, 9), (40, 6, 30)])
@pytest.mark.parametrize("way", [None, 4, "logits"])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("live", [1, 3])
def test_values_and_gradients_are_those_of_the_naive_formula(shape, way, per_token, with_bias, live):
    """In chunks or from logits, with gradients of all rows or of every third; a second backward pass gives the same.

    With V < 2H the factor goes to the residual, otherwise to the hidden states.
    """
    hidden, head, bias, target, temperature = problem(*shape)
    heat, bias = temperature if per_token else 0.7, bias if with_bias else None
    leaves = [x for x in (hidden, head, bias) if x is not None]
    a, b = torch.randn(2, shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    a, b = (x * (torch.arange(shape[0]) % live == 0) for x in (a, b))
    wanted = naive(hidden, head, target, heat, bias)
    for entropy_grad in (False, True):
        how = {"drift": True, "entropy_grad": entropy_grad}
        if way == "logits":
            got = stats_from_logits(linear(hidden, head, bias), target, heat, **how)
        else:
            got = token_stats(hidden, head, target, heat, bias=bias, chunk=way, **how)
        for ours, theirs in zip(got[:3], wanted[:3], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)
        value, plain = ((a * x.logprob + entropy_grad * b * x.entropy).sum() for x in (got, wanted))
        once, again, exact = (torch.autograd.grad(x, leaves, retain_graph=True) for x in (value, value, plain))
        for x, y, z in zip(once, again, exact, strict=True):
            assert torch.equal(x, y)
            torch.testing.assert_close(x, z, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 3])
def test_entropy_carries_a_gradient_only_when_asked_and_drift_never(chunk):
    hidden, head, _, target, _ = problem(7, 4, 6)
    silent = token_stats(hidden, head, target, drift=True, chunk=chunk)
    assert silent.logprob.requires_grad and not silent.entropy.requires_grad
    assert silent.entropy_drift is not None and not silent.entropy_drift.requires_grad
    assert token_stats(hidden, head, target, entropy_grad=True, chunk=chunk).entropy.requires_grad
    assert token_stats(hidden, head, target, chunk=chunk).entropy_drift is None


def test_low_entropy_keeps_its_relative_accuracy_in_float32():
    gap = 18.0
    logits = torch.tensor([[300.0 + gap, 300.0, 300.0]])
    p = math.exp(-gap) / (1 + 2 * math.exp(-gap))
    exact = -2 * p * math.log(p) - (1 - 2 * p) * math.log1p(-2 * p)
    got = float(stats_from_logits(logits, torch.tensor([0])).entropy)
    # Rounding s to 1 costs a share 1/gap; log-sum-exp minus the mean logit is off by 3e-5, 50 times the entropy.
    assert abs(got - exact) < 0.06 * exact


def test_excluded_tokens_have_probability_zero():
    logits = torch.tensor([[0.0, -math.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    out = stats_from_logits(logits, torch.tensor([2]), drift=True, entropy_grad=True)
    finite = stats_from_logits(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([1]), drift=True)
    for got, want in zip(out[:3], finite[:3], strict=True):
        torch.testing.assert_close(got.detach(), want)
    (grad,) = torch.autograd.grad(out.logprob.sum() + out.entropy.sum(), logits)
    assert grad[0, 1] == 0 and torch.isfinite(grad).all()


@pytest.mark.parametrize("chunk", [None, 3])
def test_no_rows(chunk):
    hidden, head, _, target, _ = problem(4, 3, 5)
    out = token_stats(hidden[:0], head, target[:0], drift=True, chunk=chunk)
    assert [x.shape for x in out if x is not None] == [(0,)] * 3
    out.logprob.sum().backward()
    assert head.grad is not None and not head.grad.any()


def saved_sizes(run) -> list[int]:
    sizes = []

    def pack(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        run()
    return sizes


def test_the_graph_holds_no_logits_beyond_a_chunk():
    m, h, v, chunk = 64, 4, 1000, 8
    hidden, head, _, target, _ = problem(m, h, v, torch.float32)
    sizes = saved_sizes(lambda: token_stats(hidden, head, target, chunk=chunk))
    assert max(sizes) == v * h  # the head itself
    assert max(saved_sizes(lambda: token_stats(hidden, head, target, chunk=m))) == m * v


def test_autocast_uses_its_dtype_and_gives_gradients_in_the_parameters_dtype():
    hidden, head, _, target, _ = problem(20, 8, 30, torch.float32)
    for chunk in (None, 4):
        with torch.autocast("cpu", torch.bfloat16):
            out = token_stats(hidden, head, target, chunk=chunk)
        bf16 = stats_from_logits(hidden.bfloat16() @ head.bfloat16().t(), target)
        torch.testing.assert_close(out.logprob, bf16.logprob)
        assert torch.autograd.grad(out.logprob.sum(), head)[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature holds 0.0, expected > 0"),
        ({"temperature": torch.tensor([1.0, 0.0, 1.0, 1.0])}, "temperature holds 0.0"),
        ({"target": torch.zeros(3, dtype=torch.long)}, r"target has shape \[3\]"),
        ({"target": torch.zeros(4)}, "dtype torch.float32, expected .4. int"),
        ({"head": torch.zeros(5, 2)}, r"\[M, H\] and \[V, H\]"),
        ({"hidden": torch.zeros(4, 3, 1)}, r"\[M, H\] and \[V, H\]"),
    ],
)
def test_bad_input_is_named(change, message):
    hidden, head, _, target, _ = problem(4, 3, 5, torch.float32)
    given = {"hidden": hidden, "head": head, "target": target} | change
    with pytest.raises(TokenPOError, match=message):
        token_stats(**given)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_is_the_naive_formula_in_every_dtype(dtype, chunk):
    """From the same rounded logits, so only the way after them differs; gradients are rounded to the dtype twice."""
    hidden, head, bias, target, temperature = problem(33, 8, 50, dtype)
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    heat, results = temperature.float(), []
    for seen in (
        token_stats(hidden, head, target, heat, bias=bias, entropy_grad=True, chunk=chunk),
        naive(hidden, head, target, heat, bias),
    ):
        gradients = torch.autograd.grad((seen.logprob + 0.3 * seen.entropy).sum(), [hidden, head, bias])
        results.append((seen.logprob, seen.entropy, *gradients))
    for i, (one, other) in enumerate(zip(*results, strict=True)):
        assert one.dtype == other.dtype == (dtype if i > 1 else torch.float32)
        assert (one - other).double().norm() <= (2e-6 if i < 2 else tolerance) * other.double().norm()


def test_half_precision_is_added_up_in_float32(monkeypatch):
    """1 and 300 times 2^-9: a bf16 sum would stay 1. In tiles of two rows of the head."""
    monkeypatch.setattr(projection, "_TILE", 2)
    h, head = torch.ones(1, 2, dtype=torch.bfloat16), torch.zeros(5, 2, dtype=torch.bfloat16)
    total = HeadGradient.start(h, head, None, (False, True, False))
    one, bit = torch.ones(1, 5, dtype=torch.bfloat16), torch.full((1, 5), 2.0**-9, dtype=torch.bfloat16)
    factor = torch.ones(1, 1)
    total.add(slice(0, 1), one, factor, h, head, spend=False)
    for _ in range(300):
        total.add(slice(0, 1), bit, factor, h, head, spend=False)
    assert total.head is not None and total.head.dtype == torch.float32
    assert (total.head == 1 + 300 * 2.0**-9).all()
    assert total.like(h, head, None)[1].dtype == torch.bfloat16


@pytest.mark.parametrize("columns", [3, 2**18])
def test_rows_move_to_the_top(columns):
    """All at once, or with 2^18 columns two rows at a time."""
    rows = torch.tensor([0, 2, 3, 4, 6])
    w = torch.arange(7.0).unsqueeze(1).repeat(1, columns)
    keep_rows_(w, rows)
    assert w[:5, 0].tolist() == w[:5, -1].tolist() == rows.tolist()
