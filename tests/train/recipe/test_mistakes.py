"""Recipes and `--set` as nobody should write them: one sentence, exit code 2, nothing made."""

import contextlib
import io
from pathlib import Path

import pytest

import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main


def refused(arguments: list[str], out: Path) -> str:
    """What `train` says, whose model does not exist: nothing may get past that."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        assert main(["train", *arguments, "--set", "model.path=/nowhere/at/all", "--out", str(out)]) == 2
    text = error.getvalue()
    assert text.startswith("tokenpo: ") and text.count("\n") == 1, text
    assert not out.exists()
    return text


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lr=fast", "train.lr = 'fast': input should be a valid number"),
        ("train.betas=[0.9]", "train.betas = [0.9]: it has too few values\n"),
        ("train.lrr=1", "section [train] has no key 'lrr'"),
        ("train=3", "train = 3: it is a section: write [train] and its settings below, or --set train.KE"),
        ("task.options.operands=1e400", "task 'dial_sum': an option is missing, or of the wrong kind"),
        ("rollout.soft_overlong.length=80", "[rollout.soft_overlong] lacks the key 'cache': write it there, or"),
        ("model.lora=8", "or --set model.lora.KEY=VALUE, where KEY is one of rank, alpha, targets"),
        ("train.lr", "--set train.lr: write section.key=value"),
        ("train.steps.x.y=1", "--set train.steps.x.y=1: steps is a setting, not a section"),
    ],
)
def test_a_mistake_in_set_names_the_flag(tmp_path: Path, override: str, words: str) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[train]\nsteps = 3\n")
    text = refused([str(recipe), "--set", override], tmp_path / "out")
    assert words in text


def test_every_option_of_every_method_has_a_kind_that_is_checked() -> None:
    for name, build in tokenpo.methods.METHODS.items():
        for option in tokenpo.methods.options_of(build):
            with pytest.raises(TokenPOError, match=rf"^(method {name}: option {option} = |{name}: {option} is )"):
                tokenpo.method(name, **{option: object()})
