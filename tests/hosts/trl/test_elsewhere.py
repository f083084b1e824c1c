"""A run is the same wherever it is made: on a device that is none (`device.stand_in` says what
that shows), and with weights that FSDP2 shards over two processes."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trl_support import run_script

# A temperature for every token; statistics of the whole step; a reference.
CASES = ("hapo", "kl_cov", "adv_reweight")
# On the device also: a share of each group's entropy, a ratio of the response, a gradient through the entropy.
MORE = ("tepo", "gspo", "skywork_entropy")
# Times, and what rounding decides: which penalty is exactly 0, which small entropy is the tenth percentile.
LEFT_OUT = ("seconds", "effective_tokens")
# HAPO's entropy score ends at the log of the smallest entropy, which the head and TRL's own pass round differently: a
# few thousandths of the gradient.
ROUNDED = {"hapo": ("loss", "temperature_mean", "grad_norm")}
# Absolute tolerance and metrics left out. On the device TRL takes the head in another order: terms of size one cancel
# in the loss.
KINDS = {
    ("cpu", "standin"): (5e-5, LEFT_OUT),
    ("cpu", "standin_head"): (1e-5, LEFT_OUT),
    ("whole", "sharded"): (1e-5, (*LEFT_OUT, "entropy_q")),
}
PAIRS = [(kinds, case) for kinds in KINDS for case in (*CASES, *(MORE if "cpu" in kinds else ()))]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, str]], list[Path]]:
    @functools.cache
    def one(kind: str) -> Path:
        out = tmp_path_factory.mktemp(kind, numbered=False)
        several = kind in ("whole", "sharded")
        run_script("elsewhere_run.py", kind, out, *CASES, *(() if several else MORE), processes=2 if several else 1)
        return out

    return lambda kinds: [one(kind) for kind in kinds]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of a whole model, or of an adapter."""
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


@pytest.mark.parametrize(("kinds", "case"), PAIRS, ids=lambda x: x if isinstance(x, str) else " and ".join(x))
def test_a_run_is_that_of_whole_weights_on_the_processor(kinds: tuple[str, str], case: str, ran: Callable) -> None:
    """The same responses from the same random numbers: metrics, and the weights of the final model."""
    atol, left_out = KINDS[kinds]
    rounded = () if "standin_head" in kinds else ROUNDED.get(case, ())
    logs: list[list[dict[str, Any]]] = []
    for run in ran(kinds):
        lines = (run / case / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        dropped = (*left_out, *rounded)
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(dropped)} for line in lines])
    for here, there in zip(*logs, strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=atol)
    here, there = (weights(run / case / "model") for run in ran(kinds))
    assert there.keys() - here.keys() <= {"lm_head.weight"}  # tied, and written twice
    for name in here:
        torch.testing.assert_close(
            there[name], here[name], rtol=1e-5, atol=5e-5 if rounded and "standin" in kinds else 1e-6
        )
