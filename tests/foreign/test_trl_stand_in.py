"""The stand-in for TRL's trainer, whose constructor is ours, holds what TRL's own constructor makes of the settings."""

from pathlib import Path

import pytest

import tokenpo
from foreign_support.trl_trainer import GRPOConfig, GRPOTrainer, Trainer

TINY = Path(tokenpo.__file__).parent / "train" / "models" / "assets" / "tiny"
ANOTHER = {
    "loss_type": "cispo",
    "importance_sampling_level": "sequence",
    "scale_rewards": "batch",
    "epsilon": 0.1,
    "epsilon_high": 0.4,
    "max_completion_length": 17,
    "top_entropy_quantile": 0.3,
    "vllm_importance_sampling_mode": "token_truncate",
    "vllm_importance_sampling_clip_max": 1.5,
    "num_generations": 4,
    "entropy_coef": 0.1,
    "use_adaptive_entropy": True,
    "gradient_accumulation_steps": 2,
}

# What the constructor fills in where a setting is open, and nothing here reads.
FILLED = {"router_aux_loss_coef", "max_tool_calling_iterations", "place_model_on_device", "num_generations_eval"}


@pytest.mark.parametrize("settings", [{}, ANOTHER])
def test_stand_in(settings: dict, tmp_path: Path) -> None:
    from datasets import Dataset

    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", **settings)
    data = Dataset.from_list([{"prompt": "1"}] * 8)
    real = GRPOTrainer(model=str(TINY), reward_funcs=lambda **_: [], args=args, train_dataset=data)
    stand_in = Trainer(**settings)
    plain = {name: value for name, value in vars(real).items() if isinstance(value, bool | int | float | str)}
    known = {name: getattr(stand_in, name) for name in plain if hasattr(stand_in, name) and name not in FILLED}
    assert known == {name: plain[name] for name in known}
    read = {"loss_type", "epsilon_low", "epsilon_high", "beta", "importance_sampling_level", "scale_rewards"}
    assert read | {"top_entropy_quantile", "max_completion_length", "num_generations", "use_vllm"} <= set(known)
