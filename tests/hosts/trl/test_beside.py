"""TRL's own trainer and ours on one script: the same numbers, where a setting of TRL's takes a trainer to show."""

from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

import tokenpo.trl
from random_models import random_experts
from trl_support.small import BESIDE, Gradients, even, prompts

SHOWN = ("loss", "entropy", "kl", "reward", "frac_reward_zero_std", "completions/mean_length")
CLIPPED = tuple(f"clip_ratio/{name}" for name in ("low_mean", "low_min", "high_mean", "high_max", "region_mean"))


def seldom(completions: list[str], **columns: Any) -> list[float | None]:
    """Leaves one in three to nobody."""
    return [None if row % 3 == 1 else float(row % 4) for row in range(len(completions))]


def train(
    package: Any, model: Path, out: Path, ends: Any, settings: dict[str, Any], *callbacks: TrainerCallback
) -> list[dict[str, float]]:
    usual = {
        "use_cpu": True, "bf16": False, "report_to": "none", "gradient_checkpointing": False, "num_generations": 4,
        "per_device_train_batch_size": 8, "max_completion_length": 8, "logging_steps": 1, "max_steps": 4,
        "learning_rate": 1e-2, "max_grad_norm": 0.0, "save_strategy": "no", "lr_scheduler_type": "constant",
    }  # fmt: skip
    rewards = [even, seldom] if "reward_weights" in settings else seldom if ends is None else even
    args = package.GRPOConfig(str(out), **usual | settings)
    trainer = package.GRPOTrainer(str(model), rewards, args, train_dataset=prompts(), callbacks=[*callbacks])
    trainer.eos_token_ids = trainer.eos_token_ids if ends is None else ends
    trainer.train()
    return [line for line in trainer.state.log_history if "grad_norm" in line]


@pytest.mark.parametrize("name", BESIDE)
def test_both_are_the_same_numbers(name: str, model_dir: Path, tmp_path: Path) -> None:
    """But for the 1e-4 that TRL adds to a deviation; of no token TRL shows 0, and ours NaN."""
    settings, ends = dict(BESIDE[name]), None
    if "mask_truncated_completions" in settings:  # two thirds of the ids end a response, or none does
        ends = [10**6] if name == "all truncated" else list(range(3, 174))
    own = {key: settings.pop(key) for key in ("fused_objective",) if key in settings}
    theirs = train(trl, model_dir, tmp_path / "theirs", ends, settings)
    ours = train(tokenpo.trl, model_dir, tmp_path / "ours", ends, settings | own)
    assert len(theirs) == 4 and (max(line["grad_norm"] for line in theirs) > 0.01) == (name != "all truncated")
    shown = {"loss", "reward"} if name == "all truncated" else {*SHOWN, *CLIPPED}
    assert ("kl" in theirs[0]) == ("beta" in settings)
    for line, expected in zip(ours, theirs, strict=True):
        for what in ("grad_norm", *(shown & {*expected})):
            assert line[what] == pytest.approx(expected[what], rel=2e-3, abs=1e-5), what


@pytest.mark.parametrize("coefficient", [None, 0.7])
def test_the_auxiliary_loss_of_experts_is_trls(coefficient: float | None, tmp_path: Path) -> None:
    """None: the coefficient of the model's own config, 0.001."""
    model, out = random_experts(tmp_path / "model"), {}
    settings = {"router_aux_loss_coef": coefficient, "gradient_accumulation_steps": 2, "num_iterations": 2}
    for name, package, more in (
        ("theirs", trl, {}),
        ("ours", tokenpo.trl, {}),
        ("off", trl, {"router_aux_loss_coef": 0.0}),
    ):
        seen = Gradients()
        out[name] = train(package, model, tmp_path / name, None, settings | more, seen), torch.stack(seen.rows)
    (theirs, expected), (ours, gradients), (_, off) = out["theirs"], out["ours"], out["off"]
    for line, other in zip(ours, theirs, strict=True):
        for what in (*SHOWN, "aux_loss"):
            if what in other:
                assert line[what] == pytest.approx(other[what], rel=2e-3, abs=1e-5), what
    difference, moved = (gradients - expected).norm(dim=1), (off - expected)[0].norm()
    assert (difference <= 2e-3 * expected.norm(dim=1)).all() and difference[0] < moved / 2
    assert coefficient is None or moved > 0.1 * expected[0].norm()
