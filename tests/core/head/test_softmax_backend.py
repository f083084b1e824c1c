"""Which way to a softmax's residual is taken: a kernel where it can be trusted, torch's passes elsewhere."""

from __future__ import annotations

import warnings

import pytest
import torch

from tokenpo.core.head import softmax, softmax_backend

CPU = torch.device("cpu")


def wrong_statistics(logits, scale, out, count):
    found = softmax.sums(logits, scale, out, count)
    found[2] *= 1 + 1e-4
    return found


def wrong_moment(logits, scale, out, count):
    found = softmax.sums(logits, scale, out, count)
    found[3:] += 1e-4
    return found


def wrong_output(logits, scale, out, count):
    found = softmax.sums(logits, scale, out, count)
    out[1, -1] += 1e-4
    return found


def first_scale_for_all(logits, scale, out, count):
    return softmax.sums(logits, scale if isinstance(scale, float) else float(scale[0]), out, count)


def wrong_with_one_scale(logits, scale, out, count):
    return (softmax.sums if torch.is_tensor(scale) else wrong_statistics)(logits, scale, out, count)


def broken(*args):
    raise OSError("no driver")


@pytest.mark.parametrize(
    ("kernel", "said"),
    [(wrong_statistics, "numbers differ"), (wrong_moment, "numbers differ"), (wrong_output, "numbers differ"),
     (first_scale_for_all, "numbers differ"), (wrong_with_one_scale, "numbers differ"), (broken, "OSError: no driver")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_that_fails_gives_way_to_torch_with_a_warning(kernel, said, dtype):
    with pytest.warns(UserWarning, match=f"Triton softmax fails on cpu.*{said}"):
        assert softmax_backend.trusted(kernel, CPU, dtype) is softmax.sums


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16])
def test_a_kernel_that_gives_what_torch_gives_is_taken(default):
    """Whatever torch's default dtype is."""

    def kernel(*args):
        return softmax.sums(*args)

    torch.set_default_dtype(default)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for dtype in (torch.float64, torch.float32, torch.bfloat16):
                assert softmax_backend.trusted(kernel, CPU, dtype) is kernel
    finally:
        torch.set_default_dtype(torch.float32)


class OnCard(torch.Tensor):
    """Says that it is on a GPU, and is no plain tensor."""

    device = torch.device("cuda")


def test_a_processor_and_a_tensor_without_memory_have_torchs_passes():
    x = torch.zeros(2, 3)
    assert softmax_backend.sums_for(x, x) is softmax.sums
    x = x.as_subclass(OnCard)
    assert softmax_backend.sums_for(x, x) is softmax.sums
