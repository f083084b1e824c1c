"""The scripts of speed run, at the smallest sizes; what they say of speed is for a quiet machine."""

import importlib
import math
import shlex

import pytest
import torch

import estimate
import fused_objective
import token_stats
import tokenpo

SMALLEST = {
    "objective": ["--rows 8 --length 16 --rounds 1 --only gspo", "--rows 8 --length 16 --rounds 1 --only grpo --alone"],
    "token_stats": ["--shapes least --rounds 1 --only ours naive", "--shapes least --memory --only ours"],
    "fused_objective": [
        '--shapes least --rounds 1 --chunk 64 --only fused "half live" sequence',
        "--shapes least --memory --only fused",
    ],
    "teacher_tile": ["--shapes least --rounds 1 --only tile held", "--shapes least --memory --only tile"],
    "sampler": ["--models tiny --rows 8 --new-tokens 2 --repeats 1"],
    "estimate": ["--gpu H100 H200"],
    "step": ["--sizes 0.1M --only tokenpo --rounds 1 --steps 2 --warmup 1 --new-tokens 2"],
}
SAYS = {"step": "0.11 M parameters, 16 x 8 responses of 2 tokens at most, 4 updates"}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in SMALLEST.items() for line in lines])
def test_it_runs(name: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(name).main(shlex.split(line))
    assert SAYS.get(name, "\n") in capsys.readouterr().out


def test_products_against_the_figures_of_one_card() -> None:
    """6 · 32768 · 3584 · 151936 operations = 1.0706e14; at 790e12 a second 135.5 ms, and four products 180.7 ms."""
    gpu = estimate.Gpu(790e12, 1.0, product_efficiency=1.0)
    model = estimate.Model(7.6e9, 3584, 151936, 16)
    assert estimate.products(3, 32768, model, gpu) == pytest.approx(0.13552, rel=1e-4)
    assert estimate.products(4, 32768, model, gpu) == pytest.approx(0.18069, rel=1e-4)


def test_what_a_step_holds_and_sends() -> None:
    """2 x 2 responses, 10 tokens at most, 5 on average: 40 places, 20 tokens.

    Held: 2 fields read, advantages, returns and 1 signal, 4 bytes each, and the mask: (5 · 4 + 1) · 40 = 840 bytes.
    Passes: 3 · 40 · 4 bytes at 160 a second, 3 s. Sent: 3 fields · 20 tokens · 4 = 240 bytes at 80 a second, 3 s.
    """
    step = estimate.Step(
        prompts=2, group=2, longest=10, mean=5.0, signals=1, driver_passes=3, driver_bytes=160.0, network_bytes=80.0
    )
    held, passes, sent = estimate.phase_one(step)
    assert held.gigabytes == pytest.approx(840e-9) and held.seconds is None
    assert passes.seconds == pytest.approx(3.0)
    assert sent.gigabytes == pytest.approx(240e-9) and sent.seconds == pytest.approx(3.0)


def test_what_a_rank_holds_and_takes() -> None:
    """20 tokens on 2 ranks, micro-batches of 8; H = 4, V = 100; 1 operation and 1 byte a second, so seconds are counts.

    Loss: 7.5 · 8 · 4 = 240 bytes held; 5 passes · 10 tokens · 4 = 200. Head: float32 gradient 4 · 100 · 4 = 1600 bytes;
    three products 3 · 2 · 10 · 4 · 100 = 24000, four 32000. All logits: 8 · 100 · 16 = 12800 bytes; their passes
    2 · 10 · 100 · 16 = 32000 beyond the three products. One product for the entropy: 8000. All-reduces: 4 of 0.5 s.
    The rest: 10 · 1000 parameters · 10 tokens / 0.5 = 200000.
    """
    step = estimate.Step(
        prompts=2, group=2, longest=10, mean=5.0, micro_tokens=8, loss_passes=5, all_reduce=0.5, utilisation=0.5
    )
    model, gpu = estimate.Model(1000, 4, 100, 2), estimate.Gpu(1.0, 1.0, 1.0, 1.0)
    loss, reduce, three, four, naive, entropy = estimate.update(step, model, gpu)
    assert loss.gigabytes == pytest.approx(240e-9) and loss.seconds == pytest.approx(200)
    assert reduce.seconds == pytest.approx(2.0)
    assert three.gigabytes == pytest.approx(1600e-9) and three.seconds == pytest.approx(24000)
    assert four.seconds == pytest.approx(32000)
    assert naive.gigabytes == pytest.approx(12800e-9) and naive.seconds == pytest.approx(56000)
    assert entropy.seconds == pytest.approx(8000)
    assert estimate.rest(step, model, gpu) == pytest.approx(200000)
    assert math.isclose(estimate.Gpu(2.0, 3.0, 0.5, 0.25).flops, 1.0)


# (tokens, H, V, chunk): several chunks or one, logits that weigh more than the head or less.
@pytest.mark.parametrize(
    "shape", [(1024, 128, 4096, 256), (1024, 128, 4096, 2048), (1024, 32, 8192, 128), (320, 448, 10_000, 64)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_of_the_fused_head(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The formula against the record of the CPU's allocator, within a tenth."""
    problem = token_stats.Problem.of(shape[:3], dtype)
    run = fused_objective.Step(problem, tokenpo.method("dapo", dual=None), chunk=shape[3]).fused()
    run()
    wanted = estimate.fused_bytes(*shape, size=dtype.itemsize, card=False)
    assert token_stats.peak_megabytes(run, problem) * 2**20 == pytest.approx(wanted, rel=0.1)
