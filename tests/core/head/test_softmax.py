"""The softmax of rows, overwritten by its gradient: numbers by hand, and what must survive rounding.

Which way to its residual is taken.
"""

import math

import pytest
import torch

from tokenpo.core.head import softmax
from tokenpo.core.head.softmax import ascent, entropy_of, residual, softmax_parts

LN = math.log


def test_statistics_and_residual_by_hand():
    """Logits ln 1, ln 3 at T = 1: p = 1/4, 3/4. H = ln 4 - 3/4 ln 3; drift = 1/16 (H - ln 4) + 9/16 (H + ln 3/4)."""
    z = torch.tensor([[0.0, LN(3)], [0.0, LN(3)]], dtype=torch.float64)
    stats = residual(z, torch.tensor([1, 0]), 1.0, drift=True)
    entropy = LN(4) - 0.75 * LN(3)
    drift = (entropy - LN(4)) / 16 + 9 / 16 * (entropy + LN(0.75))
    assert stats.logprob.tolist() == pytest.approx([LN(0.75), LN(0.25)], rel=1e-14)
    assert stats.entropy.tolist() == pytest.approx([entropy] * 2, rel=1e-14)
    assert stats.drift.tolist() == pytest.approx([drift] * 2, rel=1e-13)
    assert z.flatten().tolist() == pytest.approx([0.25, -0.25, -0.75, 0.75], rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_entry_of_the_target_is_exact_where_it_is_almost_certain(dtype):
    """p_y = 1 / (1 + e^-10) is 1 - 4.5e-5, which bf16 rounds to 1: the entry would be 0."""
    z = torch.tensor([[10.0, 0.0]], dtype=dtype)
    stats = residual(z, torch.tensor([0]), 1.0)
    assert stats.logprob.dtype == torch.float32
    assert float(z[0, 0]) == pytest.approx(-1 / (1 + math.exp(10)), rel=0.005)


def test_bf16_logits_are_not_subtracted_in_bf16():
    """0.34375 - 100 = -99.65625 takes 12 bits; bf16 would make it -99.5."""
    z = torch.tensor([[100.0, 0.34375]], dtype=torch.bfloat16)
    assert float(residual(z, torch.tensor([1]), 1.0).logprob) == pytest.approx(-99.65625, rel=1e-6)


@pytest.mark.parametrize("block", [1, 2**19])
def test_gradient_is_that_of_autograd_in_blocks_of_any_size(block, monkeypatch):
    monkeypatch.setattr(softmax, "_BLOCK_LOGITS", block)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(11, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randint(7, (11,), generator=generator)
    g, g_entropy = torch.randn(2, 11, generator=generator, dtype=torch.float64)
    scale = torch.rand(11, 1, generator=generator, dtype=torch.float64) + 0.5
    logp = torch.log_softmax(z * scale, -1)
    value = (g * logp.gather(-1, y[:, None])[:, 0]).sum()
    for with_entropy in (False, True):
        whole = value - (g_entropy * (logp.exp() * logp).sum(-1)).sum() if with_entropy else value
        (wanted,) = torch.autograd.grad(whole, z, retain_graph=True)
        left = z.detach().clone()
        stats = residual(left, y, scale)
        kept = left.clone()
        for spend in (False, True):
            w, factor = ascent(left, stats, y, scale, g, g_entropy if with_entropy else None, spend=spend)
            torch.testing.assert_close(w * factor, wanted, rtol=1e-11, atol=1e-13)
            assert spend or torch.equal(left, kept)


@pytest.mark.parametrize("scale", [0.5, 2.0, torch.tensor([[0.5], [0.5]], dtype=torch.float64)])
def test_the_parts_of_a_softmax_are_at_the_temperature_asked_for(scale):
    """ln 9 at T = 2 is ln 3, and so is the root of 3 at T = 1/2."""
    high = LN(3) / 2 if isinstance(scale, float) and scale == 2 else LN(9)
    logits = torch.tensor([[0.0, high], [high, 0.0]], dtype=torch.float64)
    d, p, s = softmax_parts(logits, scale)
    assert d.flatten().tolist() == pytest.approx([-LN(3), 0, 0, -LN(3)], rel=1e-14)
    assert p.flatten().tolist() == pytest.approx([1 / 3, 1, 1, 1 / 3], rel=1e-14)
    assert s.flatten().tolist() == pytest.approx([4 / 3] * 2, rel=1e-14) and s.shape == (2, 1)
    assert softmax_parts(logits.bfloat16(), 1.0).p.dtype == torch.float32
    assert logits[0].tolist() == [0.0, high]


def test_the_entropy_of_its_parts_by_hand_with_an_excluded_token():
    """p = 1/4, 3/4 and 0: H = ln 4 - 3/4 ln 3. p = 1/2, 1/4, 1/4: H = 3/2 ln 2."""
    logits = torch.tensor([[0.0, LN(3), -math.inf], [LN(2), 0.0, 0.0]], dtype=torch.float64)
    parts = softmax_parts(logits)
    assert entropy_of(parts).tolist() == pytest.approx([LN(4) - 0.75 * LN(3), 1.5 * LN(2)], rel=1e-14)
    assert parts.d[0].tolist() == [pytest.approx(-LN(3)), 0, -math.inf], "it overwrites nothing"


CPU = torch.device("cpu")


def spoilt(change):
    def kernel(logits, scale, out, count):
        found = softmax.sums(logits, scale, out, count)
        change(found, out)
        return found

    return kernel


wrong_statistics = spoilt(lambda found, out: found[2].mul_(1 + 1e-4))
wrong_output = spoilt(lambda found, out: out[1, -1].add_(1e-4))


def first_scale_for_all(logits, scale, out, count):
    return softmax.sums(logits, scale if isinstance(scale, float) else float(scale[0]), out, count)


def broken(*args):
    raise OSError("no driver")


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (wrong_statistics, "numbers differ"),
        (wrong_output, "numbers differ"),
        (first_scale_for_all, "numbers differ"),
        (broken, "OSError: no driver"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_that_fails_gives_way_to_torch_with_a_warning(kernel, said, dtype):
    with pytest.warns(UserWarning, match=f"Triton softmax fails on cpu.*{said}"):
        assert softmax.trusted(kernel, CPU, dtype) is softmax.sums


class OnCard(torch.Tensor):
    """Says that it is on a GPU, and is no plain tensor."""

    device = torch.device("cuda")


def test_a_processor_and_a_tensor_without_memory_have_torchs_passes():
    x = torch.zeros(2, 3)
    assert softmax.sums_for(x, x) is softmax.sums
    x = x.as_subclass(OnCard)
    assert softmax.sums_for(x, x) is softmax.sums
