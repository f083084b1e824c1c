"""A recipe's command: verl reads it, and what runs there is the recipe's objective."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import BaseModel

from engines.verl.support.composed import of_command
from refusal_cases.verl import small_recipe
from tokenpo.base.errors import TokenPOError, Unsupported
from tokenpo.engines.verl.command import command, prepare, resumes
from tokenpo.engines.verl.configure import configure
from tokenpo.engines.verl.data import compute_score, write_parquet
from tokenpo.recipe.config import Config
from tokenpo.recipe.objective import build_objective
from tokenpo.recipe.plan import Plan
from tokenpo.tasks.dial_sum import DialSum


def _read(config: Config) -> Any:
    return of_command(command(Plan(config)), "actor_rollout_ref.rollout.name=cpu")


RECIPES: list[dict[str, Any]] = [
    {"method": {"name": "grpo"}},
    {"method": {"name": "hapo", "tau": 0.3, "dual": "none", "sign": "released"}, "rollout": {"dynamic_sampling": True}},
    {
        "method": {"name": "tepo", "high": 0.28},
        "rollout": {"soft_overlong": {"cache": 8}, "correction": {"level": "sequence"}, "group_overlong": {}},
        "train": {"reference_kl": {"beta": 0.01, "estimator": "k2", "straight_through": True}},
    },
]


@pytest.mark.parametrize("sections", RECIPES)
def test_the_objective_arrives(sections: dict[str, Any], tmp_path: Path) -> None:
    config = small_recipe(tmp_path, **sections)
    read = _read(config)
    assert configure(read).objective == build_objective(config)
    assert read.data.train_batch_size == 8 and read.data.max_response_length == 48
    model, actor, rollout = (read.actor_rollout_ref[name] for name in ("model", "actor", "rollout"))
    assert actor.ppo_mini_batch_size == rollout.n == 4 and actor.optim.lr == 3e-4
    assert model.custom_chat_template == "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    assert read.trainer.total_training_steps == 3
    if "dynamic_sampling" in sections.get("rollout", {}):
        assert read.algorithm.filter_groups.enable and read.algorithm.filter_groups.max_num_gen_batches == 4


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b', "a,b", "${x}", "a\\${x}", "a\\", "{a:b}", "=[x]"])
def test_verl_reads_the_name_of_a_directory_as_it_is(name: str, tmp_path: Path) -> None:
    read = _read(
        small_recipe(
            tmp_path,
            output={"dir": str(tmp_path / name)},
            verl={"trainer": {"default_hdfs_dir": "${trainer.project_name}"}},
        )
    )
    assert Path(read.trainer.default_local_dir) == tmp_path / name / "checkpoints"
    assert read.trainer.default_hdfs_dir == "tokenpo", "in [verl] a reference is one"


@pytest.mark.parametrize("role", ["actor", "ref"])
def test_the_precision_is_the_recipes(role: str, tmp_path: Path) -> None:
    """verl computes in bf16 where nothing is said, the reference as well as the policy."""
    place = f"actor_rollout_ref.{role}.fsdp_config"
    plain = OmegaConf.select(_read(small_recipe(tmp_path)), place)
    assert plain.model_dtype == "fp32" and set(plain.mixed_precision.values()) == {"fp32"}
    half = OmegaConf.select(_read(small_recipe(tmp_path, train={"autocast": True})), place)
    assert half.model_dtype == "fp32" and half.get("mixed_precision") is None


def test_a_run_resumes_on_request_only(tmp_path: Path) -> None:
    plain, again = small_recipe(tmp_path), small_recipe(tmp_path, verl={"trainer": {"resume_mode": "auto"}})
    assert (_read(plain).trainer.resume_mode, resumes(plain)) == ("disable", False)
    assert (_read(again).trainer.resume_mode, resumes(again)) == ("auto", True)
    dotted = small_recipe(tmp_path, verl={"trainer.resume_mode": "auto", "data.max_prompt_length": 7000})
    assert (_read(dotted).trainer.resume_mode, resumes(dotted)) == ("auto", True)
    assert _read(dotted).actor_rollout_ref.actor.ppo_max_token_len_per_gpu > 7000


# Another value of every setting of a recipe, None where the command has no part in it and why.
OTHER: dict[str, Any] = {
    "name": "other", "seed": 7, "threads": 2, "model.path": "b/model", "model.dtype": "bfloat16", "model.device": "cpu",
    "model.lora": {"rank": 4}, "method": {"name": "tepo"}, "rollout.prompts": 16, "rollout.group_size": 8,
    "rollout.max_new_tokens": 64, "rollout.temperature": 0.7, "rollout.dynamic_sampling": True,
    "rollout.max_extra_batches": 5, "rollout.soft_overlong": {"cache": 8}, "rollout.group_overlong": {},
    "rollout.correction": {}, "rollout.drafts": {"count": 2},
    "train.steps": 5, "train.epochs": 2, "train.minibatches": 4, "train.micro_tokens": 30000,
    "train.lr": 1e-3, "train.warmup": 5, "train.weight_decay": 0.1, "train.betas": [0.8, 0.9], "train.eps": 1e-6,
    "train.grad_clip": 2.0, "train.nonfinite": "skip", "train.autocast": True, "train.reference_kl": {"beta": 0.1},
    "train.ratio_tolerance": 0.3, "train.kl_target": 0.01, "train.kl_stop": 0.1,
    "evaluate.every": 2, "evaluate.problems": 0, "evaluate.samples": 2,
    "output.dir": "elsewhere", "output.checkpoint_every": 1, "output.keep": 5, "output.rollouts_every": 5,
    "output.trace_every": 0, "output.trace_rollouts": 7, "output.track": ["wandb"], "output.project": "mine",
    "teacher": {"path": "b/teacher", "coef": 0.1}, "verl": {"trainer": {"nnodes": 2}},
}  # fmt: skip
NO_PART = {
    "task.name": "the files that prepare writes", "task.seed": "the same", "task.options": "the same",
    "rollout.rescore": "verl's old log-probabilities always come from a forward pass",
    "train.minibatch_by": "verl deals rows", "train.micro_rows": "verl bounds a pass by its tokens",
    "evaluate.rows": "verl's server batches by itself", "output.samples": "rollout_data_dir is verl's own",
    "tinker.base_url": "of another engine, which a run says", "tinker.seconds": "the same",
    "critic": "of the embedded engine, likewise",
}  # fmt: skip


def _settings(model: Any, path: str = "") -> list[str]:
    """Every setting of a recipe; an optional section is one."""
    names = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        deeper = isinstance(inner, type) and issubclass(inner, BaseModel) and name != "method"
        names += _settings(inner, f"{path}{name}.") if deeper else [f"{path}{name}"]
    return names


def test_no_setting_of_a_recipe_is_lost(tmp_path: Path) -> None:
    """Every setting changes the command, or is refused, or has no part in it for a reason that docs/verl.md gives."""
    assert sorted([*OTHER, *NO_PART]) == sorted(_settings(Config))
    page = (Path(__file__).parents[3] / "docs" / "verl.md").read_text(encoding="utf-8")
    assert [name for name in NO_PART if f"`{name}`" not in page and not name.startswith(("task.", "tinker."))] == []
    lost = []
    for name, value in OTHER.items():
        section, _, key = name.partition(".")
        # With dynamic sampling, whose settings matter too.
        given: dict[str, Any] = {} if key == "dynamic_sampling" else {"rollout": {"dynamic_sampling": True}}
        changed = {section: {**given.get(section, {}), key: value} if key else value}
        with contextlib.suppress(Unsupported):
            if command(Plan(small_recipe(tmp_path, **(given | changed)))) == command(
                Plan(small_recipe(tmp_path, **given))
            ):
                lost.append(name)
    assert lost == []


def test_problems_are_scored_by_the_tasks_verifier(tmp_path: Path) -> None:
    import pyarrow.parquet

    config = small_recipe(tmp_path, evaluate={"problems": 5})
    prepare(config)
    train, test = (pyarrow.parquet.read_table(tmp_path / "run" / "data" / f"{x}.parquet") for x in ("train", "test"))
    assert (len(train), len(test)) == (24, 5)
    row = train.to_pylist()[7]
    assert row["data_source"] == "dial_sum" and row["extra_info"]["index"] == 7
    assert row["prompt"][0]["role"] == "user" and row["prompt"][0]["content"].endswith("=")
    answer = row["reward_model"]["ground_truth"]
    for text, reward in ((f"thinking#{answer}", 1.0), ("thinking#x", 0.0)):
        assert compute_score("dial_sum", text, answer, row["extra_info"]) == {"score": reward, "acc": reward}
    with pytest.raises(TokenPOError, match=r"a row of gsm8k has no extra_info\.tokenpo"):
        compute_score("gsm8k", "1", "1", {"index": 0})


def test_a_problem_without_an_answer_has_none_there(tmp_path: Path) -> None:
    """For a reward function of the user's: None written as text would be an answer. The columns keep their kinds."""
    import datasets

    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(4)))
    (tmp_path / "judge.py").write_text("def reward(completions, **_):\n    return [0.5] * len(completions)\n")
    options = {"path": str(tmp_path / "rows.jsonl"), "verifier": f"{tmp_path / 'judge.py'}:reward", "reward_seconds": 0}
    bare = write_parquet(tmp_path / "bare.parquet", "files", options, 0, "train", 2)
    full = write_parquet(tmp_path / "full.parquet", "dial_sum", {}, 0, "train", 2)
    read = [
        datasets.load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
        for file in (bare, full)
    ]
    assert [row["reward_model"]["ground_truth"] for row in read[0]] == [None, None]
    assert read[0].features == read[1].features
    row = read[0][1]
    assert compute_score("files", "x", None, row["extra_info"]) == {"score": 0.5, "acc": 0.0}


def test_no_held_out_problem_is_written_twice(tmp_path: Path) -> None:
    """3 x 3 x 3 expressions of two operands, of which few are held out: 200 would be these again and again."""
    import pyarrow.parquet

    task = {"options": {"operands": 2, "modulus": 4}}
    prepare(small_recipe(tmp_path, task=task, evaluate={"problems": 200}))
    rows = pyarrow.parquet.read_table(tmp_path / "run" / "data" / "test.parquet").to_pylist()
    with pytest.raises(TokenPOError, match=r"^dial_sum with .* held-out problems, not the 200 asked for"):
        write_parquet(tmp_path / "more.parquet", "dial_sum", task["options"], 0, "test", 200)
    assert not (tmp_path / "more.parquet").exists()
    assert len(rows) == len({row["prompt"][0]["content"] for row in rows}) == DialSum(operands=2, modulus=4).test_size
