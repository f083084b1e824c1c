"""The section [verl] of a recipe becomes overrides as they are written, and never a second value for one setting."""

from __future__ import annotations

import tomllib

import pytest

from tokenpo.adapters.verl.passthrough import brings_data, literal, with_passthrough
from tokenpo.errors import TokenPOError

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
    both = with_passthrough({"data.train_batch_size": 512}, SECTION)
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
    assert with_passthrough({"a": 1}, {}) == {"a": 1}


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
        with_passthrough({"seed": 0, **ours}, section, defaults={"seed"})
    for name in ["[verl]", "take it out", *names]:
        assert name in str(error.value)


def test_a_default_gives_way() -> None:
    ours = {"trainer.n_gpus_per_node": 1, "trainer.total_epochs": 1}
    section = {"trainer": {"n_gpus_per_node": 8}}
    assert with_passthrough(ours, section, defaults=set(ours)) == {
        "trainer.total_epochs": 1, "trainer.n_gpus_per_node": 8,
    }  # fmt: skip
    assert with_passthrough({"+a.b": 1}, {"a": {"b": 2}}, defaults={"+a.b"}) == {"a.b": 2}


def test_data_of_its_own_is_both_files_or_none() -> None:
    assert brings_data({"data": {"train_files": "a.parquet", "val_files": "b.parquet"}})
    assert not brings_data({"data": {"max_prompt_length": 8}})
    assert not brings_data({})
    with pytest.raises(TokenPOError, match=r"no val_files: add it"):
        brings_data({"data": {"train_files": "a.parquet"}})


def test_a_key_that_only_begins_alike_is_not_the_same() -> None:
    section = {"actor_rollout_ref": {"rollout": {"n_gpus_per_node": 8}}}
    both = with_passthrough({"actor_rollout_ref.rollout.n": 16}, section)
    assert both == {"actor_rollout_ref.rollout.n": 16, "actor_rollout_ref.rollout.n_gpus_per_node": 8}


@pytest.mark.parametrize("key", ["train er", "a=b", "~trainer", "", "trainer.+x", "+++x", "1x"])
def test_a_key_that_is_no_path_is_refused(key: str) -> None:
    with pytest.raises(TokenPOError, match="is no key of verl's configuration"):
        with_passthrough({}, {key: 1})


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("left", "left"), ("/data/x.parquet", "/data/x.parquet"), ("~/data", '"~/data"'), ("", '""'), ("a,b", '"a,b"'),
        ("true", '"true"'), ("NULL", '"NULL"'), ("1e-6", '"1e-6"'),
        ('say "x"', '"say \\"x\\""'), ("back\\", '"back\\\\"'), ('\\"', '"\\\\\\""'),
        (False, "false"), (None, "null"), ("none", "none"), (1e-6, "1e-06"), ((1, None), "[1,null]"),
        ({"a": {"b c": 1}}, '{a:{"b c":1}}'),
    ],
)  # fmt: skip
def test_values_are_written_in_hydras_grammar(value: object, written: str) -> None:
    assert literal(value) == written
