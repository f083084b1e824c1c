"""The adapter beside the processor, on a device that is none: `device.stand_in` says what that shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trl_support import run_script

pytestmark = pytest.mark.usefixtures("trl_here")
# A temperature for every token; statistics of the whole step; a reference.
METHODS = ("hapo", "kl_cov", "adv_reweight")
# Times, and the tokens with a gradient: beside the reference a penalty is exactly 0 or its rounding.
LEFT_OUT = ("seconds", "effective_tokens")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = [tmp_path_factory.mktemp(where, numbered=False) for where in ("cpu", "standin")]
    for where in out:
        run_script("device_run.py", where.name, where, *METHODS)
    return out


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_that_of_the_processor(runs: list[Path], method: str) -> None:
    """The same responses from the same random numbers; float32 in another order, as TRL takes the head there.

    A loss is a mean of terms of size one that cancel.
    """
    logs, weights = [], []
    for run in runs:
        lines = (run / method / "trl" / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(LEFT_OUT)} for line in lines])
        weights.append(load_file(run / method / "model" / "model.safetensors"))
    for here, there in zip(*logs, strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=5e-5)
    for name, here in weights[0].items():
        torch.testing.assert_close(weights[1][name], here, rtol=1e-5, atol=1e-6)
