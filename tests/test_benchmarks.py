"""The scripts of speed run, at the smallest sizes; what they say of speed is for a quiet machine."""

import importlib
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
