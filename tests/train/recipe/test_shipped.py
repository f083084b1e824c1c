"""The recipes that the package holds: all of them load."""

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.train.recipe.config import load_config
from tokenpo.train.recipe.files import find_recipe, shipped_recipes
from tokenpo.train.recipe.objective import build_objective

RECIPES = shipped_recipes()


def test_a_recipe_is_found_by_name_and_by_path() -> None:
    assert find_recipe(str(RECIPES["quickstart"])) == find_recipe("quickstart") == RECIPES["quickstart"]


def test_a_name_that_is_not_there_brings_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'quickstart'"):
        find_recipe("quikstart")


@pytest.mark.parametrize("name", ["absent.toml", "runs/absent", "config.json"])
def test_what_looks_like_a_path_is_told_to_be_no_file(name: str) -> None:
    with pytest.raises(TokenPOError, match=rf"recipe {name} is not a file"):
        find_recipe(name)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_its_objective(name: str) -> None:
    config = load_config(RECIPES[name])
    assert config.name == name
    assert build_objective(config).name == config.method.name
