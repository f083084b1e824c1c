"""A run is the same wherever it is made: on a stand-in for a device, and with weights that FSDP2 shards over two
processes."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trl_support import run_script

# Times, and what rounding decides: which penalty is exactly 0, which small entropy is the tenth percentile.
LEFT_OUT = ("seconds", "effective_tokens")
# HAPO's entropy score ends at the log of the smallest entropy, which the head and TRL's own pass round differently: a
# few thousandths of the gradient.
ROUNDED = {"hapo": ("loss", "temperature_mean", "grad_norm")}
# Kinds of a run -> its cases, the absolute tolerance and metrics left out.
KINDS: dict[tuple[str, str], tuple[tuple[str, ...], float, tuple[str, ...]]] = {
    ("cpu", "standin"): (("hapo",), 5e-5, LEFT_OUT),
    # A temperature for every token; statistics of the whole step; a reference.
    ("whole", "sharded"): (("hapo", "kl_cov", "adv_reweight"), 1e-5, (*LEFT_OUT, "entropy_q")),
}
PAIRS = [(kinds, case) for kinds, (cases, _, _) in KINDS.items() for case in cases]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, str]], list[Path]]:
    @functools.cache
    def one(kind: str, kinds: tuple[str, str]) -> Path:
        out = tmp_path_factory.mktemp(kind, numbered=False)
        run_script("elsewhere_run.py", kind, out, *KINDS[kinds][0], processes=2 if "whole" in kinds else 1)
        return out

    return lambda kinds: [one(kind, kinds) for kind in kinds]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of a whole model, or of an adapter."""
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


@pytest.mark.parametrize(("kinds", "case"), PAIRS, ids=lambda x: x if isinstance(x, str) else " and ".join(x))
def test_a_run_is_that_of_whole_weights_on_the_processor(kinds: tuple[str, str], case: str, ran: Callable) -> None:
    """The same responses from the same random numbers: metrics, and the weights of the final model."""
    _, atol, left_out = KINDS[kinds]
    logs: list[list[dict[str, Any]]] = []
    for run in ran(kinds):
        dropped = (*left_out, *ROUNDED.get(case, ()))
        lines = (run / case / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(dropped)} for line in lines])
    for here, there in zip(*logs, strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=atol)
    here, there = (weights(run / case / "model") for run in ran(kinds))
    assert there.keys() - here.keys() <= {"lm_head.weight"}  # tied, and written twice
    for name in here:
        torch.testing.assert_close(there[name], here[name], rtol=1e-5, atol=5e-5 if "standin" in kinds else 1e-6)
