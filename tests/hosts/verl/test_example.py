"""An example runs on two workers of a CPU, and verl's own classes and validation accept the command of another."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig, RolloutConfig

from hosts.verl.support import run
from hosts.verl.support.composed import of_command
from tokenpo.hosts.verl.configure import configure

EXAMPLES = Path(__file__).parents[3] / "examples"
ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"


@pytest.fixture
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "verl_gsm8k.py"))


@pytest.fixture
def files(example: dict[str, Any], tmp_path: Path) -> list[Path]:
    rows = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(8)]
    return example["prepare"](rows, rows[:4], tmp_path)


def test_it_trains_on_two_workers(tmp_path: Path) -> None:
    done = run.as_given([sys.executable, str(EXAMPLES / "verl_smollm2.py"), "--small"], tmp_path, timeout=900)
    assert "tokenpo is active in verl's trainer." in run.plain(done)
    steps = [line for line in done.splitlines() if line.startswith("{'step': ")]
    assert [line.partition(",")[0] for line in steps] == ["{'step': 1", "{'step': 2"]
    assert "'grad_norm': 0.0" not in steps[0] + steps[1]


def test_verl_and_our_trainer_accept_its_command(example: dict[str, Any], files: list[Path]) -> None:
    """verl's main program checks it so, before our trainer turns on in verl what the objective reads, and after."""
    config = of_command(example["command"](example["settings"]("model", "tepo", *files, "runs/verl-tepo")))
    validate_config(config, need_reference_policy(config), use_critic=False)
    assert configure(config).objective.name == "tepo"
    validate_config(config, need_reference_policy(config), use_critic=False)
    assert not need_critic(config)
    assert config.data.train_files == str(files[0]) and config.actor_rollout_ref.actor.optim.lr == 1e-6
    OmegaConf.resolve(config)
    kinds = {
        ACTOR: FSDPActorConfig,
        f"{REF}.fsdp_config": FSDPEngineConfig,
        ROLLOUT: RolloutConfig,
        "algorithm": AlgoConfig,
    }
    for key, kind in kinds.items():
        section = OmegaConf.select(config, key)  # AlgoConfig would refuse our section; verl's trainer never makes one
        section = OmegaConf.masked_copy(section, [name for name in section if name != "tokenpo"])
        assert isinstance(omega_conf_to_dataclass(section), kind)


@pytest.mark.parametrize(
    ("text", "score"), [("so 5\n#### 1,008", 1.0), ("#1008", 1.0), ("#1008 #9", 0.0), ("1008", 0.0)]
)
def test_its_reward_is_the_last_number_behind_a_hash(text: str, score: float, example: dict[str, Any]) -> None:
    assert example["compute_score"]("gsm8k", text, "1008") == score
