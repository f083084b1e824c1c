import json
import tomllib
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.train.recipe import config as sections
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
        ("[train]\nlearning_rat = 1", ["section [train]", "'learning_rat'"]),
        ("[train]\nwarmpu = 1", ["section [train]", "'warmpu'", "did you mean 'warmup'"]),
        ("lr = 1\nsteps = 3", ["'lr': did you mean train.lr or critic.lr?", "'steps': did you mean train.steps?"]),
        ("[train]\nsamples = 3", ["did you mean evaluate.samples or output.samples?"]),
        ("[trian]\nlr = 1", ["the top level", "'trian'", "did you mean 'train'"]),
        ("[model.lora]\nrnak = 1", ["section [model.lora]", "did you mean 'rank'"]),
        ("\n".join(f"key{i} = {i}" for i in range(26)), ["'key4': known: ", "; and 21 more mistakes"]),
        ("learning_rate = 1", ["'learning_rate': did you mean train.lr or critic.lr?"]),
        ("[rollout.soft_overlong]\nlength = 80", ["section [rollout.soft_overlong] lacks the key 'cache'"]),
        ('[train]\nlr = "fast"', ["train.lr", "'fast'"]),
        ("[train]\nbetas = [2, 3]", ["train.betas"]),
        ("[train]\nsteps = 0", ["train.steps", "0"]),
        ("[rollout]\ntemperature = 1e39", ["rollout.temperature = 1e+39: input should be less"]),
        ("[train]\nminibatch_by = 'tokens'", ["train.minibatch_by", "'tokens'", "groups"]),
        ("name = '../../elsewhere'", ["name"]),
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


def test_a_section_that_is_none_is_printed_as_comments_that_are_a_recipe_without_their_marks(tmp_path):
    shown = to_toml(Config())
    assert load_config(recipe(tmp_path, shown), overrides=["name=run"]) == Config()
    assert "# cache = ...                   # to be given: tokens over which it grows\n" in shown
    without = "".join(f"{line.removeprefix('# ')}\n" for line in shown.splitlines())
    given = without.replace("cache = ...", "cache = 7").replace("beta = ...", "beta = 0.1")
    config = load_config(recipe(tmp_path, given))
    assert config.model.lora == Lora()
    assert config.rollout.soft_overlong == sections.SoftOverlong(cache=7)
    assert (config.rollout.group_overlong, config.rollout.correction) == (
        sections.GroupOverlong(),
        sections.Correction(),
    )
    assert config.train.reference_kl == ReferenceKl(beta=0.1)


def test_out_is_the_name_itself(tmp_path):
    """Whatever TOML makes of it: a name is no value that `--set` reads."""
    path = recipe(tmp_path, '[output]\ndir = "theirs"\n')
    for out in ("7", "a b", "😀", 'quo"te', "back\\slash", "\x7f"):
        assert load_config(path, overrides=["output.dir=set"], out=out).output.dir == out
    assert load_config(path, out=None).output.dir == "theirs"
    with pytest.raises(TokenPOError, match=r"mine.toml --out a\\nb: output.dir = "):
        load_config(path, out="a\nb")


def test_differences_name_the_setting_and_both_values():
    new = parse_config({"train": {"lr": 0.5}, "method": {"name": "grpo", "low": 0.1}}, "test")
    assert differences(Config(), new) == ["method.low: None -> 0.1", "train.lr: 0.0002 -> 0.5"]
    assert differences(new, new) == []


def test_a_run_directory_below_the_home_of_its_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_config({"output": {"dir": "~/run"}}, "test").directory() == tmp_path / "run"


def test_a_kl_that_nothing_can_hold():
    for train, text in (
        ({"kl_stop": 0.004, "minibatches": 1}, "ends a batch between its updates, and it has one"),
        ({"kl_target": 0.004, "kl_stop": 0.004}, "would end a batch that is on target"),
    ):
        with pytest.raises(TokenPOError, match=text):
            parse_config({"train": train}, "test")
    assert parse_config({"train": {"kl_stop": 0.01}}, "test").train.kl_hold().limit == 0.01


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
