"""The recipes that the package holds: all of them load, and those of papers say where their numbers come from."""

import re
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.recipe.config import load_config
from tokenpo.recipe.files import PAPERS, find_recipe, shipped_recipes
from tokenpo.recipe.objective import build_objective, warnings

RECIPES = shipped_recipes()
OF_PAPERS = [name for name in RECIPES if name.startswith(PAPERS)]


def test_names_are_paths_below_the_folder_of_recipes() -> None:
    assert {"quickstart", "papers/dapo_qwen2.5_32b"} <= set(RECIPES)
    assert find_recipe(str(RECIPES["quickstart"])) == find_recipe("quickstart") == RECIPES["quickstart"]
    assert find_recipe("papers/dapo_qwen2.5_32b").name == "dapo_qwen2.5_32b.toml"
    methods = {load_config(RECIPES[name]).method.name for name in OF_PAPERS}
    assert {"dapo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo"} == methods


@pytest.mark.parametrize("name", ["papers/dapo_qwen2.5_23b", "dapo_qwen2.5_32b"])
def test_a_name_that_is_not_there_brings_the_nearest(name: str) -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'papers/dapo_qwen2\.5_32b'"):
        find_recipe(name)


@pytest.mark.parametrize("name", ["papers/absent.toml", "runs/absent", "config.json"])
def test_what_looks_like_a_path_is_told_to_be_no_file(name: str) -> None:
    with pytest.raises(TokenPOError, match=rf"recipe {name} is not a file"):
        find_recipe(name)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_its_objective(name: str) -> None:
    config = load_config(RECIPES[name])
    assert config.name == RECIPES[name].name.removesuffix(".toml")
    assert build_objective(config).name == config.method.name


@pytest.mark.parametrize("name", OF_PAPERS)
def test_every_number_names_its_source(name: str) -> None:
    lines = RECIPES[name].read_text(encoding="utf-8").splitlines()
    sources = {match[1] for line in lines if (match := re.fullmatch(r"#   (\w+): .+", line))}
    settings = [line for line in lines if "=" in line and not line.startswith("#")]
    assert len(settings) > 30
    for line in settings:
        setting, _, comment = line.partition(" # ")
        if setting.startswith(("name", "verifier")):
            continue
        said = re.match(r"(\w+)(:|;|$)", comment)
        assert said and said[1] in sources, f"{name}: {line}"
    used = {line.partition(" # ")[2].partition(":")[0].partition(";")[0] for line in settings}
    assert sources - used <= {"readme"}, f"{name}: sources that stand behind no number"


@pytest.mark.parametrize("name", OF_PAPERS)
def test_the_head_says_what_it_is_and_how_to_print_it(name: str) -> None:
    first, second, third, *_ = RECIPES[name].read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"# \S.{20,}", first)
    assert second == f"#   tokenpo launch {name} --engine verl --print"
    assert third.startswith("# Not run here.")


def test_the_embedded_engine_says_that_it_takes_nothing_from_the_section_verl(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[verl.trainer]\nnnodes = 2\n")
    config = load_config(recipe)
    assert any("[verl] (trainer)" in note for note in warnings(build_objective(config), config))
    recipe.write_text("")
    config = load_config(recipe)
    assert not warnings(build_objective(config), config)
