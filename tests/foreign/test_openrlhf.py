"""Our corrections for the policy that sampled against the loss of OpenRLHF 0.11.2.

It installs without its dependencies (`pip install --no-deps openrlhf==0.11.2`); its loss imports DeepSpeed and calls
nothing of it, so an empty module stands in.
"""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import tokenpo
from foreign_support import ours
from oracle_support import Outcome, close, ragged

if (found := find_spec("openrlhf")) is None:
    pytest.skip("openrlhf is not installed: none of its corrections was compared with ours", allow_module_level=True)


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module of losses; the package around it, which imports flash_attn, is not run."""
    models = ModuleType("openrlhf.models")
    models.__path__ = [str(Path(found.submodule_search_locations[0], "models"))]
    monkeypatch.setitem(sys.modules, "openrlhf.models", models)
    monkeypatch.setitem(sys.modules, "deepspeed", ModuleType("deepspeed"))
    for name in ("loss", "utils"):
        monkeypatch.delitem(sys.modules, f"openrlhf.models.{name}", raising=False)
    return importlib.import_module("openrlhf.models.loss")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("seq_mask_tis", {"is_correction_level": "seq", "is_correction_threshold": [0.5, 5.0]}),
        ("mis", {"is_correction_level": "token", "is_correction_threshold": [0.5, 2.0]}),
    ],
)
def test_loss_and_gradient(name: str, asked: dict[str, Any], seed: int, losses: Any) -> None:
    sample, rng = ragged(seed), np.random.default_rng(seed)
    moved = rng.choice([0.1, 0.8, 2.0], size=(len(sample.mask), 1)) * (1 + 0.3 * rng.normal(size=sample.mask.shape))
    sample = sample.but(rollout_logprob=np.where(sample.mask, np.minimum(sample.old_logprob - moved, -1e-4), 0))
    got, advantage = ours(tokenpo.corrected(tokenpo.method("dapo"), name), sample)

    logprob = torch.tensor(sample.logprob, requires_grad=True)
    theirs = losses.PolicyLoss(clip_eps_low=0.2, clip_eps_high=0.28, dual_clip=10.0, **asked)
    value, *_, dropped = theirs(
        logprob,
        torch.tensor(sample.old_logprob),
        torch.tensor(np.where(sample.mask, advantage, 0)),
        torch.tensor(sample.mask, dtype=torch.float64),
        torch.tensor(sample.rollout_logprob),
    )
    (gradient,) = torch.autograd.grad(value, logprob)
    assert 0 < dropped < 1
    close(got, Outcome(float(value.detach()), gradient.numpy(), {}, np.zeros(sample.mask.shape)))
