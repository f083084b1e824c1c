"""The section [verl] of a recipe becomes overrides as they are written, and never a second value for one setting."""

import tomllib
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.engines.verl.command import brings_data, command, literal, prepare, with_passthrough
from tokenpo.recipe.config import parse_config
from tokenpo.recipe.plan import Plan

SECTION = tomllib.loads("""
[trainer]
nnodes = 16
logger = ["console", "a b", "none"]
[actor_rollout_ref.actor.fsdp_config]
param_offload = true
[actor_rollout_ref.rollout]
gpu_memory_utilization = 0.8
max_model_len = "none"
engine_kwargs = {}
["+reward".reward_kwargs]
max_resp_len = 20480
""")


def test_tables_become_paths_behind_our_own_settings() -> None:
    both = with_passthrough({}, {"data.train_batch_size": 512}, SECTION)
    assert list(both) == [
        "data.train_batch_size",
        "trainer.nnodes",
        "trainer.logger",
        "actor_rollout_ref.actor.fsdp_config.param_offload",
        "actor_rollout_ref.rollout.gpu_memory_utilization",
        "actor_rollout_ref.rollout.max_model_len",
        "actor_rollout_ref.rollout.engine_kwargs",
        "+reward.reward_kwargs.max_resp_len",
    ]
    assert [literal(value) for value in both.values()] == [
        "512", "16", '[console,"a b",null]', "true", "0.8", "null", "{}", "20480",
    ]  # fmt: skip


def test_a_default_gives_way_and_a_key_that_only_begins_alike_stays() -> None:
    section = {"trainer": {"n_gpus_per_node": 8}}
    both = with_passthrough({"trainer.n_gpus_per_node": 1, "trainer.nnodes": 1}, {"trainer.n": 16}, section)
    assert both == {"trainer.n_gpus_per_node": 8, "trainer.nnodes": 1, "trainer.n": 16}


@pytest.mark.parametrize(
    ("ours", "section", "names"),
    [
        ({"trainer.nnodes": 1}, {"trainer": {"nnodes": 2}}, ["trainer.nnodes comes", "(trainer.nnodes=1)"]),
        ({"+algorithm.tokenpo.seed": 3}, {"algorithm": {"tokenpo": {"seed": 3}}}, ["(+algorithm.tokenpo.seed=3)"]),
        ({"++algorithm.tokenpo": {"a": 1}}, {"+algorithm": {"tokenpo": {"b": 1}}}, ["tokenpo.b comes", "={a:1})"]),
        ({"reward.custom.path": "x"}, {"reward": {"custom": {}}}, ["reward.custom comes", "(reward.custom.path=x)"]),
    ],
)
def test_what_another_section_says_is_refused(ours: dict, section: dict, names: list[str]) -> None:
    with pytest.raises(TokenPOError) as error:
        with_passthrough({"seed": 0}, ours, section)
    for name in ["[verl]", "take it out", *names]:
        assert name in str(error.value)


def test_data_of_its_own_is_both_files_or_none() -> None:
    assert brings_data({"data": {"train_files": "a.parquet", "val_files": "b.parquet"}})
    assert not brings_data({"data": {"max_prompt_length": 8}})
    assert not brings_data({})
    with pytest.raises(TokenPOError, match=r"no val_files: add it"):
        brings_data({"data": {"train_files": "a.parquet"}})


@pytest.mark.parametrize("key", ["train er", "a=b", "~trainer", "", "trainer.+x", "+++x", "1x"])
def test_a_key_that_is_no_path_is_refused(key: str) -> None:
    with pytest.raises(TokenPOError, match="is no key of verl's configuration"):
        with_passthrough({}, {}, {key: 1})


def test_the_command_takes_the_section_over() -> None:
    section = {
        "data": {"train_files": "a.parquet", "val_files": "b.parquet", "max_prompt_length": 4096},
        "trainer": {"n_gpus_per_node": 8, "nnodes": 2},
    }
    config = parse_config({"model": {"path": "m"}, "train": {"steps": 7, "micro_tokens": 10}, "verl": section}, "test")
    words = command(Plan(config))
    assert {
        "data.train_files=a.parquet", "data.val_files=b.parquet", "data.max_prompt_length=4096",
        "trainer.n_gpus_per_node=8", "trainer.nnodes=2",
    } < set(words)  # fmt: skip
    keys = [word.partition("=")[0] for word in words[3:]]
    assert len(keys) == len(set(keys))
    # The files are verl's to shuffle, to repeat and to score; a response of 64 and its prompt fit into one pass.
    assert not {"data.shuffle", "reward.custom_reward_function.path"} & set(keys)
    assert "trainer.total_epochs=7" in words
    assert "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4160" in words


def test_data_of_its_own_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = {"data": {"train_files": "a.parquet", "val_files": "b.parquet"}}
    prepare(parse_config({"model": {"path": "m"}, "verl": section}, "test"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"verl": {"data": {"train_batch_size": 8}}}, r"data\.train_batch_size comes .*size=32\): take it out"),
        ({"method": {"name": "nthr"}}, "nthr needs influence, which verl does not provide"),
    ],
)
def test_the_command_refuses(sections: dict, message: str) -> None:
    with pytest.raises(TokenPOError, match=message):
        command(Plan(parse_config({"model": {"path": "m"}, **sections}, "test")))
