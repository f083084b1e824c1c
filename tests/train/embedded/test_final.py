"""model/ is the final model of a run by what is written in it, whatever the times of the files are."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from run_views import Watch
from tokenpo.base.errors import TokenPOError
from tokenpo.cli.view import SilentView
from tokenpo.train.recipe.config import Config
from tokenpo.train.run import checkpoint
from tokenpo.train.run.embedded.loop import resume, train

ANEW = "all steps are made, but no model/ is there that says it is theirs, so it is written anew"


@pytest.fixture
def steps(small, coin, tmp_path) -> Callable[..., Config]:
    """A recipe of so many steps, with a checkpoint after each."""

    def build(number: int, **more) -> Config:
        output = {"checkpoint_every": 1, "keep": 2}
        return small(tmp_path / "run", evaluate={"problems": 0}, output=output, train={"steps": number, **more})

    return build


def tensors(file: Path) -> dict[str, torch.Tensor]:
    return load_file(file / "model.safetensors")


def holds(model: Path, checkpoint: Path) -> bool:
    found = tensors(model)
    return all(torch.equal(found[name], x) for name, x in tensors(checkpoint).items())


def killed_before_its_model(*arguments, **keywords) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint.language, "save", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        resume(*arguments, **keywords)


def copied(run: Path, newest: str) -> Path:
    """A copy in which the files below `newest` are younger by an hour than all others."""
    copy = Path(shutil.copytree(run, run.with_name("copy")))
    for file in copy.rglob("*"):
        time = 7200 if newest in file.relative_to(copy).parts else 3600
        os.utime(file, (time, time))
    return copy


@pytest.mark.parametrize("newest", ["model", "checkpoints"])
def test_a_copy_of_a_whole_run_is_whole(steps, newest):
    run = train(steps(1), SilentView()).directory
    assert json.loads((run / "model" / "trained.json").read_text()).keys() == {"step", "weights"}
    with pytest.raises(TokenPOError, match="has made all of its 1 steps"):
        resume(copied(run, newest), SilentView())


@pytest.mark.parametrize("newest", ["model", "checkpoints"])
def test_a_copy_of_a_run_that_was_killed_before_its_model_gets_it(steps, newest):
    run = train(steps(1), SilentView()).directory
    killed_before_its_model(run, SilentView(), steps(2))
    copy, view = copied(run, newest), Watch()
    assert not holds(copy / "model", copy / "checkpoints" / "step-000002")
    assert resume(copy, view).finished and view.notes == [ANEW]
    assert holds(copy / "model", copy / "checkpoints" / "step-000002")
    with pytest.raises(TokenPOError, match="has made all of its 2 steps"):
        resume(copy, SilentView())


def test_a_model_of_as_many_steps_on_another_way_is_not_the_last(steps):
    """Its last step was made again with another learning rate, and the process ended before it wrote the model."""
    run = train(steps(2), SilentView()).directory
    shutil.rmtree(run / "checkpoints" / "step-000002")
    killed_before_its_model(run, SilentView(), steps(2, lr=0.05), accept=True)
    assert json.loads((run / "model" / "trained.json").read_text())["step"] == 2
    assert not holds(run / "model", run / "checkpoints" / "step-000002")
    assert resume(run, SilentView()).finished
    assert holds(run / "model", run / "checkpoints" / "step-000002")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "[" * 10**5, '{"step": 1}', "\x00"])
def test_a_model_that_does_not_say_whose_it_is_is_written_anew_once(steps, text):
    """As runs of older versions have it: nothing is written there; or what is written cannot be read."""
    run, view = train(steps(1), SilentView()).directory, Watch()
    before = (run / "model" / "model.safetensors").read_bytes()
    record = run / "model" / "trained.json"
    record.unlink() if text is None else record.write_text(text)
    assert resume(run, view).finished and view.notes == [ANEW]
    assert (run / "model" / "model.safetensors").read_bytes() == before
    with pytest.raises(TokenPOError, match="has made all of its 1 steps"):
        resume(run, SilentView())
