"""The section [verl] of a recipe becomes overrides as they are written, and never a second value for one setting."""

from __future__ import annotations

import tomllib

import pytest

from tokenpo.adapters.verl.passthrough import literal, with_passthrough
from tokenpo.errors import TokenPOError

SECTION = tomllib.loads("""
[trainer]
nnodes = 16
logger = ["console", "a b"]
[actor_rollout_ref.actor.fsdp_config]
param_offload = true
[actor_rollout_ref.rollout]
gpu_memory_utilization = 0.8
max_model_len = "none"
engine_kwargs = {}
["+reward".reward_kwargs]
max_resp_len = 20480
""")


def test_tables_become_paths_behind_our_own_overrides() -> None:
    assert with_passthrough(["data.train_batch_size=512"], SECTION) == [
        "data.train_batch_size=512",
        "trainer.nnodes=16",
        'trainer.logger=[console,"a b"]',
        "actor_rollout_ref.actor.fsdp_config.param_offload=true",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.8",
        "actor_rollout_ref.rollout.max_model_len=null",
        "actor_rollout_ref.rollout.engine_kwargs={}",
        "+reward.reward_kwargs.max_resp_len=20480",
    ]
    assert with_passthrough(["a=1"], {}) == ["a=1"]


@pytest.mark.parametrize(
    ("ours", "section", "names"),
    [
        ("trainer.nnodes=1", {"trainer": {"nnodes": 2}}, ["trainer.nnodes is set", "as trainer.nnodes"]),
        ("+algorithm.tokenpo.recipe=x", {"algorithm": {"tokenpo": {"recipe": "y"}}}, ["as +algorithm.tokenpo.recipe"]),
        ("++algorithm.tokenpo={}", {"+algorithm": {"tokenpo": {"seed": 1}}}, ["+algorithm.tokenpo.seed is set"]),
        ("reward.custom.path=x", {"reward": {"custom": {}}}, ["reward.custom is set", "as reward.custom.path"]),
    ],
)
def test_a_setting_of_ours_is_refused(ours: str, section: dict, names: list[str]) -> None:
    with pytest.raises(TokenPOError) as error:
        with_passthrough(["seed=0", ours], section)
    for name in ["[verl]", "take it out", *names]:
        assert name in str(error.value)


def test_a_key_that_only_begins_alike_is_not_the_same() -> None:
    section = {"actor_rollout_ref": {"rollout": {"n_gpus_per_node": 8}}}
    ours = ["actor_rollout_ref.rollout.n=16"]
    assert with_passthrough(ours, section) == [*ours, "actor_rollout_ref.rollout.n_gpus_per_node=8"]


@pytest.mark.parametrize("key", ["train er", "a=b", "~trainer", "", "trainer.+x", "+++x", "1x"])
def test_a_key_that_is_no_path_is_refused(key: str) -> None:
    with pytest.raises(TokenPOError, match="is no key of verl's configuration"):
        with_passthrough([], {key: 1})


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("left", "left"), ("/data/x.parquet", "/data/x.parquet"), ("~/data", '"~/data"'), ("", '""'), ("a,b", '"a,b"'),
        ("true", '"true"'), ("NULL", '"NULL"'), ("1e-6", '"1e-6"'),
        ('say "x"', '"say \\"x\\""'), ("back\\", '"back\\\\"'), ('\\"', '"\\\\\\""'),
        (False, "false"), (None, "null"), (1e-6, "1e-06"), ((1, "none"), "[1,null]"),
    ],
)  # fmt: skip
def test_values_are_written_in_hydras_grammar(value: object, written: str) -> None:
    assert literal(value) == written
