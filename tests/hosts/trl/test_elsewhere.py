"""A run whose weights FSDP2 shards over two processes is that of whole weights."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tokenpo.train.models import locate
from trl_support import run_script

# Times, and what rounding decides: which penalty is exactly 0, which small entropy is the tenth percentile; HAPO's
# entropy score ends at the log of the smallest entropy, which the head and TRL's own pass round differently.
LEFT_OUT = ("seconds", "effective_tokens", "entropy_q")
ROUNDED = {"hapo": ("loss", "temperature_mean", "grad_norm")}
CASES = ("hapo", "kl_cov", "adv_reweight")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @functools.cache
    def one(kind: str) -> Path:
        out = tmp_path_factory.mktemp(kind, numbered=False)
        run_script("real_run.py", locate("tiny"), out, kind, processes=2)
        return out

    return one


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of a whole model, or of an adapter."""
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


@pytest.mark.parametrize("case", CASES)
def test_a_sharded_run_is_that_of_whole_weights(case: str, ran: Callable) -> None:
    """The same responses from the same random numbers: metrics, and the weights of the final model."""
    logs: list[list[dict[str, Any]]] = []
    for kind in ("whole", "sharded"):
        dropped = (*LEFT_OUT, *ROUNDED.get(case, ()))
        lines = (ran(kind) / case / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(dropped)} for line in lines])
    for here, there in zip(*logs, strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=1e-5)
    here, there = (weights(ran(kind) / case / "model") for kind in ("whole", "sharded"))
    assert there.keys() - here.keys() <= {"lm_head.weight"}  # tied, and written twice
    for name in here:
        torch.testing.assert_close(there[name], here[name], rtol=1e-5, atol=1e-6)
