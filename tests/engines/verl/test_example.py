"""The example of verl: verl reads and scores its rows; verl and our trainer accept its command."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from foreign_support import need

REASON = "verl is not installed: the example of verl was not held to it"
need("verl.utils.dataset.rl_dataset", REASON)
hydra = need("hydra", REASON)

EXAMPLE = Path(__file__).parents[3] / "examples" / "verl_gsm8k.py"


@pytest.fixture
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture
def files(example: dict[str, Any], tmp_path: Path) -> list[Path]:
    return example["prepare"](example["FEW"], example["FEW"], tmp_path)


def test_verl_and_our_trainer_accept_its_command(example: dict[str, Any], files: list[Path]) -> None:
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import validate_config

    from tokenpo.engines.verl.configure import configure

    words = example["command"]("model", "tepo", *files, "runs/verl-tepo")
    assert words[1:3] == ["-m", "verl.trainer.main_ppo"]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", overrides=words[3:])
    validate_config(config, need_reference_policy(config), use_critic=False)  # as its main program does
    assert configure(config).objective.name == "tepo"
    validate_config(config, need_reference_policy(config), use_critic=False)
    assert config.data.train_files == str(files[0]) and config.actor_rollout_ref.actor.optim.lr == 1e-6


def test_verl_reads_its_rows_and_scores_them(example: dict[str, Any], files: list[Path]) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.utils.reward_score import default_compute_score

    from tokenpo.models import locate

    config = OmegaConf.create({"max_prompt_length": 512, "filter_overlong_prompts": False})
    data = RLHFDataset([str(files[0])], AutoTokenizer.from_pretrained(locate("tiny")), config)
    rows = [data[place] for place in range(len(data))]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["raw_prompt"][0]["content"].startswith("Ann has 2 apples")
    answers = ["so 5\n#### 5", "#### 6", "five", "#### 1,008"]
    scores = [
        default_compute_score(row["data_source"], text, row["reward_model"]["ground_truth"])
        for row, text in zip(rows, answers, strict=True)
    ]
    assert scores == [1.0, 0.0, 0.0, 1.0]
