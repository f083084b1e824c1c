import json
import tomllib
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.train.recipe.config import Config, Lora, ReferenceKl, differences, load_config, parse_config
from tokenpo.train.recipe.files import find_recipe, shipped_recipes, to_toml
from tokenpo.train.recipe.objective import build_objective


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_recipe_overrides_the_defaults_and_is_named_after_its_file(tmp_path):
    config = load_config(recipe(tmp_path, '\ufeff[train]\nlr = 0.5\n[method]\nname = "dapo"\nhigh = 0.3\n'))
    none = load_config(recipe(tmp_path, 'name = "none"\nthreads = "none"\n'))
    assert (none.name, none.threads) == ("none", None)
    assert (config.train.lr, config.train.steps) == (0.5, Config().train.steps)
    assert (config.method.name, config.method.options) == ("dapo", {"high": 0.3})
    assert config.directory() == Path("runs/mine-dapo-seed0")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nwarmpu = 1", ["section [train]", "'warmpu'", "did you mean 'warmup'"]),
        ("lr = 1\nsteps = 3", ["'lr': did you mean train.lr or critic.lr?", "'steps': did you mean train.steps?"]),
        ("[model.lora]\nrnak = 1", ["section [model.lora]", "did you mean 'rank'"]),
        ("\n".join(f"key{i} = {i}" for i in range(26)), ["'key4': known: ", "; and 21 more mistakes"]),
        ("[rollout.soft_overlong]\nlength = 80", ["section [rollout.soft_overlong] lacks the key 'cache'"]),
        ('[train]\nlr = "fast"', ["train.lr", "'fast'"]),
        ("[train]\nminibatch_by = 'tokens'", ["train.minibatch_by", "'tokens'", "groups"]),
        ("method = 'hapo'", ["method = 'hapo': it is a section: write [method] and its settings below"]),
        ("train = ", []),
        (b"\xff\xfe", ["is not TOML in UTF-8"]),
    ],
)
def test_a_mistake_names_the_file_the_setting_and_what_to_write(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TokenPOError) as error:
        load_config(path, overrides=["train.weight_decay=0.1"])
    assert isinstance(error.value, UnknownName) == ("did you mean" in str(error.value) or "known:" in str(error.value))
    assert all(word in str(error.value) for word in ["mine.toml", *words])


def test_overrides_are_toml_values_or_else_strings(tmp_path):
    overrides = ["train.lr=3e-4", "method.low=0.1", "task.options.operands=[4, 8]", "model.path=my/model", "seed=7"]
    config = load_config(recipe(tmp_path, ""), overrides=overrides)
    assert (config.train.lr, config.method.options, config.seed) == (3e-4, {"low": 0.1}, 7)
    assert (config.task.options, config.model.path) == ({"operands": [4, 8]}, "my/model")


def test_another_method_starts_from_its_own_defaults(tmp_path):
    path = recipe(tmp_path, '[method]\nname = "tepo"\nbeta = 0.5\n')
    assert load_config(path, method="hapo").method.options == {}
    assert load_config(path, method="tepo").method.options == {"beta": 0.5}
    assert load_config(path, method="hapo", overrides=["method.low=0.1"]).method.options == {"low": 0.1}
    assert load_config(recipe(tmp_path, "method = 'hapo'"), method="grpo").method.name == "grpo"


@pytest.mark.parametrize("config", [
    Config(),
    parse_config({
        "name": 'quote " and \\ and \x7f ü', "threads": 2, "model": {"lora": {"targets": ["q", "v"]}},
        "task": {"options": {"path": "a b.jsonl", "nested": {"odd key!": [1, 2]}}},
        "method": {"name": "gtpo", "entropy_clamp": [0.2, float("inf")]},
        "train": {"grad_clip": "none", "lr": 1e-7}, "rollout": {"soft_overlong": {"cache": 3}},
    }, "test"),
    parse_config({"rollout": {"correction": {"preset": "tis"}}}, "test"),
])  # fmt: skip
def test_the_resolved_recipe_reads_back_as_the_same_config(config, tmp_path):
    text = to_toml(config)
    assert parse_config(tomllib.loads(text), "text") == config
    saved = tmp_path / "config.json"
    saved.write_text(json.dumps(config.model_dump()))
    assert load_config(saved) == config
    saved.write_text("[1]")
    with pytest.raises(TokenPOError, match="holds a list, expected the sections"):
        load_config(saved)


def test_a_written_config_is_given_a_section_that_it_lacks(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(Config().model_dump()))
    for path in (tmp_path / "config.json", recipe(tmp_path, to_toml(Config()))):
        config = load_config(path, overrides=["train.reference_kl.beta=0.1", "model.lora.rank=4"])
        assert (config.train.reference_kl, config.model.lora) == (ReferenceKl(beta=0.1), Lora(rank=4))


def test_differences_name_the_setting_and_both_values():
    new = parse_config({"train": {"lr": 0.5}, "method": {"name": "dapo", "low": 0.1}}, "test")
    assert differences(Config(), new) == ["method.low: None -> 0.1", "train.lr: 0.0002 -> 0.5"]
    assert differences(new, new) == []


RECIPES = shipped_recipes()


def test_a_recipe_is_found_by_name_and_by_path() -> None:
    assert find_recipe(str(RECIPES["quickstart"])) == find_recipe("quickstart") == RECIPES["quickstart"]
    with pytest.raises(UnknownName, match="did you mean 'quickstart'"):
        find_recipe("quikstart")
    with pytest.raises(UnknownName, match=r"recipe absent\.toml is not a file"):
        find_recipe("absent.toml")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_its_objective(name: str) -> None:
    config = load_config(RECIPES[name])
    assert config.name == name
    assert build_objective(config).name == config.method.name
