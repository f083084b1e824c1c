"""docs/papers_recipes.md: the first steps come out again, needs follow by hand, TRL takes the commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import paper_recipes as tools
import pytest

from tokenpo.cli.main import main

ROOT = Path(__file__).parents[1]


def recipes() -> list:
    folder = ROOT / "src" / "tokenpo" / "recipe" / "recipes" / "papers"
    return [tools.read(file) for file in sorted(folder.glob("*.toml"))]


def test_every_run_of_the_first_steps_is_there(capsys: pytest.CaptureFixture) -> None:
    assert tools.first_steps.main(["--check"]) == 0, capsys.readouterr().out
    found = tools.first_steps.load()
    assert {len(run) for row in found.values() for run in row["seeds"].values()} == {tools.first_steps.STEPS}
    assert set(found) == {recipe.method for recipe in recipes()}


def test_runs_of_other_options_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tools.first_steps
    monkeypatch.setattr(steps, "settings", lambda: {"dapo": ["method.high=0.3"]})
    assert steps.missing(steps.load()) == [("dapo", ["method.high=0.3"], seed) for seed in steps.SEEDS]


def test_two_first_steps_come_out_again() -> None:
    """On one kind of CPU a run is the same bit for bit; another sums otherwise: AVX2 for AVX-512 moved it by 4e-6."""
    steps = tools.first_steps
    row = steps.load()["hapo"]
    again = steps.run("hapo", row["options"], 0, steps=2)
    for step, kept in zip(again, row["seeds"]["0"][:2], strict=True):
        assert step == pytest.approx(kept, rel=1e-4)


def test_methods_differ_in_the_first_step_only_in_what_they_do_with_the_batch() -> None:
    found = tools.first_steps.load()
    for seed in map(str, tools.first_steps.SEEDS):
        firsts = [row["seeds"][seed][0] for row in found.values()]
        for metric in ("reward", "entropy", "length"):
            assert len({first[metric] for first in firsts}) == 1
        assert len({first["grad_norm"] for first in firsts}) == len(firsts)


def test_reward_and_length_rise_and_entropy_falls() -> None:
    for row in tools.first_steps.load().values():
        for run in row["seeds"].values():
            first, last = run[0], run[-1]
            assert last["reward"] > first["reward"] and last["length"] > first["length"]
            assert last["entropy"] < first["entropy"]


def test_the_shapes_have_the_parameters_that_the_models_have() -> None:
    """As counted in the released weights."""
    counted = {path: shape.parameters for path, shape in tools.estimate_recipe.SHAPES.items()}
    assert counted["Qwen/Qwen2.5-7B"] == counted["Qwen/Qwen2.5-Math-7B"] == 7_615_616_512
    assert counted["Qwen/Qwen2.5-32B"] == 32_763_876_352
    assert counted["Qwen/Qwen3-8B-Base"] == 8_190_735_360
    assert counted["Qwen/Qwen3-14B"] == 14_768_307_200


def test_what_a_set_up_needs_by_hand() -> None:
    """2 layers, H 4, attention 4, keys and values 2, inner 8, V 10, Qwen3's norms of a head of 2.

    Parameters: a layer has 4 (8 + 4 + 24 + 2) + 4 = 156, so 2 · 156 + 4 · 21 = 396. 8 responses of 20 tokens at most,
    10 on average, prompts of 5; 4 GPUs, 2 shards, samplers of 2; 6 tokens a micro-batch; two scorings.
    Sampler: weights 2 · 396 / 2 = 396 bytes; a token's cache on each GPU 2 · 2 · 2 · 2 / 2 = 8; half of 2,396 bytes
    leave 802, 4 times 8 · 25 = 200. State: 16 · 396 / 2 = 3168. Passes: checkpoints 2 · 2 · 6 · 4 = 96, a layer
    2 · 6 · (16 + 8 + 4 + 24) = 624, embedding and head 2 · 2 · 10 · 4 = 160: 880. Logits: 60, of 4 and 16 bytes.
    Update: (2 + 4) forwards of 2 (396 − 40) + 2 · 10 · 4 · 2 = 872 operations, 80 tokens on 4 GPUs: 104640 at half
    or a fifth of 1 a second. Sampling: 20 · 396 of weights and 8 · 100 / 2 · 8 · 2 / 4 = 1600 of caches: 9520.
    """
    estimate = tools.estimate_recipe
    shape = estimate.Shape(2, 4, 4, 2, 8, 10, biased=False, head=2)
    load = estimate.Load(8, 5, 20, 6, scorings=2, gpus=4, shards=2, parallel=2, sampler=0.5)
    assert shape.parameters == 396
    needs = estimate.needs(shape, load, estimate.Gpu(1.0, 1.0), 2396.0, mean=0.5)
    assert needs.weights == pytest.approx(396e-9) and needs.held == 4
    assert needs.state == pytest.approx(3168e-9) and needs.passes == pytest.approx(880e-9)
    assert needs.logits == pytest.approx((240e-9, 960e-9))
    assert needs.updating == pytest.approx((4288e-9, 5008e-9))
    assert needs.update == pytest.approx((209280.0, 523200.0))
    assert needs.sampling == pytest.approx(9520.0)


def test_a_load_is_the_recipes() -> None:
    """Half of the 64 GPUs of this one hold the state once; tr_grpo has a reference to score."""
    loads = {recipe.name: tools.estimate_recipe.Load.of(recipe.config) for recipe in recipes()}
    dapo = loads["dapo_qwen2.5_math_7b"]
    assert (dapo.gpus, dapo.shards, dapo.parallel, dapo.rows, dapo.micro_tokens) == (64, 32, 4, 512 * 16, 20480)
    assert (dapo.prompt, dapo.response, dapo.sampler, dapo.scorings) == (2048, 8192, 0.8, 1)
    assert loads["tr_grpo_qwen2.5_7b"].scorings == 2


def test_the_estimate_can_be_asked_of_other_settings(capsys: pytest.CaptureFixture) -> None:
    tools.estimate_recipe.main(["papers/tepo_qwen2.5_7b", "--set", "verl.trainer.nnodes=2", "--gpu", "H200"])
    assert capsys.readouterr().out.startswith("papers/tepo_qwen2.5_7b on 16 H200: 7.62 B parameters, 512 responses")


def test_trl_refuses_the_recipes_and_takes_the_commands_of_the_page(capsys: pytest.CaptureFixture) -> None:
    page = (ROOT / "docs" / "papers_recipes.md").read_text(encoding="utf-8")
    for recipe in recipes():
        refused = tools.refusal(recipe.config, [], 8)
        assert refused and refused.startswith("the TRL engine does not have evaluate.every"), recipe.name
        command = f"{tools.trl(recipe.config)} --print"
        assert f"\n{command}\n" in page
        assert main(shlex.split(command)[1:]) == 0
        words = shlex.split(capsys.readouterr().out)
        assert "tokenpo.engines.trl.main" in words and "evaluate.every=0" in words


def test_what_trl_leaves_out_is_said() -> None:
    """The recipe's warm-up is in the command, and how GPUs are divided is no setting of the paper's method."""
    every = recipes()
    assert tools._in_trl(every).endswith(
        "TRL leaves out `evaluate.every`, `verl.data.max_prompt_length`, `verl.data.truncation`, "
        "`verl.actor_rollout_ref.rollout.val_kwargs.top_p`."
    )
    assert tools._left_out([recipe for recipe in every if recipe.method == "hapo"], every) == [
        "Here TRL also leaves out `verl.+actor_rollout_ref.model.override_config.max_position_embeddings`, "
        "`verl.actor_rollout_ref.rollout.val_kwargs.temperature`."
    ]
    assert tools._left_out([recipe for recipe in every if recipe.method == "tepo"], every) == []


def test_the_warm_up_of_trl_is_in_updates() -> None:
    """10 rollout steps of 16 updates."""
    commands = {recipe.name: tools.trl(recipe.config) for recipe in recipes()}
    assert " --set train.warmup=160 " in commands["hapo_qwen3_8b"]
    assert "warmup" not in commands["tepo_qwen2.5_7b"]


def test_a_setting_that_all_recipes_share_stands_once() -> None:
    before, _, after = tools.sections(ROOT / "src/tokenpo/recipe/recipes/papers").partition("## Settings of all")
    assert "`train.lr`" in after and "`train.lr`" not in before
    assert "`rollout.prompts`" in before and "`rollout.prompts`" not in after
