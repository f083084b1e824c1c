"""The recipes of papers and the example become configurations that verl's own classes and validation accept.

Nothing is run and nothing downloaded: Hydra composes verl's configuration with the overrides of `tokenpo launch`, verl
checks it as its main program does, and so do we as our trainer does.
"""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.reward_score import default_compute_score as score
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig, RolloutConfig

import verl_driver
from engines.verl.support.composed import of_command
from tokenpo.engines.verl.command import command, literal
from tokenpo.engines.verl.configure import Settings, configure
from tokenpo.models import locate
from tokenpo.recipe.config import load_config
from tokenpo.recipe.files import PAPERS, shipped_recipes
from tokenpo.recipe.plan import Plan

RECIPES = [name for name in shipped_recipes() if name.startswith(PAPERS)]
ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"

# What the sources say, in verl's terms: prompts a step, responses each, prompts an update, longest response, GPUs.
SAID = {
    "dapo_qwen2.5_32b": (512, 16, 32, 20480, 128),
    "dapo_qwen2.5_math_7b": (512, 16, 32, 8192, 64),
    "hapo_qwen2.5_math_7b": (512, 16, 32, 10240, 32),
    "hapo_qwen3_8b": (512, 16, 32, 12288, 64),
    "gtpo_qwen2.5_7b": (128, 16, 32, 4096, 8),
    "gtpo_qwen2.5_32b": (128, 16, 32, 4096, 32),
    "grpo_s_qwen2.5_7b": (128, 16, 32, 4096, 8),
    "grpo_s_qwen2.5_32b": (128, 16, 32, 4096, 32),
    "tepo_qwen2.5_7b": (64, 8, 8, 8192, 8),
    "tepo_qwen3_14b": (64, 8, 8, 8192, 16),
    "tr_grpo_qwen2.5_7b": (64, 8, 32, 4096, 4),
}


@pytest.fixture(scope="module", params=RECIPES)
def composed(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """(name, verl's configuration) of one recipe."""
    words = command(Plan(load_config(shipped_recipes()[request.param])))
    return request.param.removeprefix(PAPERS), of_command(words)


def accepted(config: Any) -> Settings:
    """verl's main program checks it so, before our trainer turns on in verl what the objective reads, and after."""
    validate_config(config, need_reference_policy(config), use_critic=False)
    ours = configure(config)
    validate_config(config, need_reference_policy(config), use_critic=False)
    return ours


def pick(config: Any, *keys: str) -> list[Any]:
    return [OmegaConf.select(config, key) for key in keys]


def test_verl_and_our_trainer_accept_it(composed: tuple[str, Any]) -> None:
    name, config = composed
    assert not need_critic(config)
    assert accepted(config).objective.name == name.partition("_qwen")[0]
    OmegaConf.resolve(config)
    kinds = {
        ACTOR: FSDPActorConfig, f"{REF}.fsdp_config": FSDPEngineConfig, ROLLOUT: RolloutConfig, "algorithm": AlgoConfig,
    }  # fmt: skip
    for key, kind in kinds.items():
        (section,) = pick(config, key)  # AlgoConfig would refuse our section; verl's trainer never makes one
        section = OmegaConf.masked_copy(section, [name for name in section if name != "tokenpo"])
        assert isinstance(omega_conf_to_dataclass(section), kind)
    assert need_reference_policy(config) == name.startswith("tr_grpo")  # the only one with a divergence from it


def test_it_says_what_the_sources_say(composed: tuple[str, Any]) -> None:
    name, config = composed
    nodes, gpus = pick(config, "trainer.nnodes", "trainer.n_gpus_per_node")
    keys = ("data.train_batch_size", f"{ROLLOUT}.n", f"{ACTOR}.ppo_mini_batch_size", "data.max_response_length")
    assert (*pick(config, *keys), nodes * gpus) == SAID[name]
    assert pick(config, f"{ACTOR}.optim.lr") == [1e-6]
    warmup = 10 if name.startswith(("dapo", "hapo")) else -1
    assert pick(config, f"{ACTOR}.optim.lr_warmup_steps") == [warmup]


def test_its_data_is_verls_own(composed: tuple[str, Any]) -> None:
    """Rows of the data source math_dapo are scored by verl's math_dapo, without its overlong penalty."""
    expected = {
        "data.train_files": "data/dapo-math-17k.parquet", "data.val_files": "data/aime-2024.parquet",
        "data.shuffle": True, "data.prompt_key": "prompt", "reward.custom_reward_function.path": None,
        "reward.reward_manager.name": "naive", "actor_rollout_ref.model.custom_chat_template": None,
    }  # fmt: skip
    assert pick(composed[1], *expected) == list(expected.values())


def test_batches_can_be_split_and_the_longest_response_fits(composed: tuple[str, Any]) -> None:
    _, config = composed
    nodes, gpus, parallel, tensor = pick(
        config, "trainer.nnodes", "trainer.n_gpus_per_node", f"{ACTOR}.ulysses_sequence_parallel_size",
        f"{ROLLOUT}.tensor_model_parallel_size",
    )  # fmt: skip
    prompts, each = pick(config, f"{ACTOR}.ppo_mini_batch_size", f"{ROLLOUT}.n")
    assert nodes * gpus % parallel == nodes * gpus % tensor == 0
    assert prompts * each % (nodes * gpus // parallel) == 0, "an update is not divisible by the ranks"
    longest = sum(pick(config, "data.max_prompt_length", "data.max_response_length"))
    assert pick(config, f"{ACTOR}.ppo_max_token_len_per_gpu")[0] * parallel >= longest
    assert pick(config, f"{ROLLOUT}.max_num_batched_tokens")[0] >= longest


def test_the_rows_are_scored_by_the_last_answer() -> None:
    scores = [score("math_dapo", text, "34")["score"] for text in ("so 34\nAnswer: 34", "Answer: 34\nAnswer: 35", "34")]
    assert scores == [1.0, -1.0, -1.0]


def test_hydra_reads_our_spelling_of_every_value() -> None:
    parser = OverridesParser.create()
    for value in (
        "left", "/data/x.parquet", "~/data", "", "a,b", "true", "NULL", "none", "1e-6", 'say "x"', "back\\", '\\"',
        "a\\b", "it's", "{x}", "x=1", "a: b", "/a b/c='d'",
        1, 1e-6, 0.8, True, False, None, [1, ["x", "y z"]], [1, None], {}, {"a": "b c"}, {"a": {"b": 1}},
    ):  # fmt: skip
        assert parser.parse_override(f"key={literal(value)}").value() == value


EXAMPLE = Path(__file__).parents[3] / "examples" / "verl_gsm8k.py"


@pytest.fixture
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture
def files(example: dict[str, Any], tmp_path: Path) -> list[Path]:
    return example["prepare"](example["FEW"], example["FEW"], tmp_path)


def test_verl_and_our_trainer_accept_its_command(example: dict[str, Any], files: list[Path]) -> None:
    config = of_command(example["command"]("model", "tepo", *files, "runs/verl-tepo"))
    assert accepted(config).objective.name == "tepo"
    assert config.data.train_files == str(files[0]) and config.actor_rollout_ref.actor.optim.lr == 1e-6


def test_verl_reads_its_rows_and_scores_them(example: dict[str, Any], files: list[Path]) -> None:
    config = OmegaConf.create({"max_prompt_length": 512, "filter_overlong_prompts": False})
    data = RLHFDataset([str(files[0])], AutoTokenizer.from_pretrained(locate("tiny")), config)
    rows = [data[place] for place in range(len(data))]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["raw_prompt"][0]["content"].startswith("Ann has 2 apples")
    answers = ["so 5\n#### 5", "#### 6", "five", "#### 1,008"]
    scores = [
        score(row["data_source"], text, row["reward_model"]["ground_truth"])
        for row, text in zip(rows, answers, strict=True)
    ]
    assert scores == [1.0, 0.0, 0.0, 1.0]


def test_it_measures_what_the_driver_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """16 responses of 64 tokens: mask (8 bytes), score and log-prob (4 each) come in, two advantages go back."""
    verl_driver.main(["--responses", "16", "--tokens", "64", "--method", "grpo", "--alone"])
    printed = capsys.readouterr().out
    assert printed.startswith("grpo") and "0.0 M tokens" in printed and "at most" in printed
    fields = verl_driver.batch(["response_mask", "rm_scores", "old_log_probs"], torch.tensor([3, 1]), None)
    assert {name: x.values().nbytes for name, x in fields.items() if name != "uid"} == {
        "response_mask": 32, "rm_scores": 16, "old_log_probs": 16,
    }  # fmt: skip
