"""A process that dies while it writes: a resumed run is the same run."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

import tokenpo
import tokenpo.base.files
import tokenpo.base.jsonl
from run_views import Watch, lines
from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.cli.view import SilentView
from tokenpo.core.learner import Learner
from tokenpo.train.run import checkpoint
from tokenpo.train.run.directory import held
from tokenpo.train.run.embedded.loop import resume, train

from .test_resume import logged

# One moment to die at for each kind of file: the last such call of a run.
KINDS = {
    "the config": r"replace \.writing-config",
    "a checkpoint": r"rename \.writing-step-000002",
    "an old checkpoint": r"rmtree",
    "half a line": r"line metrics",
    "the model": r"rename \.writing-model",
}
RANDOM = r"(?<=.)\.[0-9a-f]{8}$"  # the end of a fresh name


class Killed(BaseException):
    """Not an Exception: nothing but a `finally` may notice it, and those that write are made to fail too."""


@pytest.fixture
def tiny(small, coin, tmp_path):
    """Two steps of two prompts x two responses, a checkpoint after each."""

    def build(name: str, **sections):
        usual = {
            "rollout": {"prompts": 2, "group_size": 2, "max_new_tokens": 4},
            "train": {"steps": 2, "minibatches": 1},
            "evaluate": {"problems": 2, "samples": 0},
            "output": {"checkpoint_every": 1, "keep": 1, "trace_every": 1},
        }
        return small(tmp_path / name, **{key: usual.get(key, {}) | sections.get(key, {}) for key in usual | sections})

    return build


@pytest.fixture
def expected(tiny, known={}):  # noqa: B006
    """What an uninterrupted run leaves; made once."""
    if not known:
        known.update(left(train(tiny("once"), SilentView()).directory))
    return known


def left(directory: Path) -> dict[str, object]:
    """What must not depend on where the run died: what it logged, and which files it has."""
    places = *directory.iterdir(), *(directory / "checkpoints").iterdir()
    return {**logged(directory), "files": sorted(place.name for place in places)}


@contextmanager
def dying(at: int) -> Iterator[list[str]]:
    """Raises `Killed` at the disk's `at`-th touch and at every later one: a dead process touches nothing any more."""
    seen: list[str] = []

    def touch(kind: str) -> None:
        seen.append(kind)
        if len(seen) > at:
            raise Killed

    def before(owner, name: str):
        call = getattr(owner, name)

        def touched(*arguments, **keywords):
            touch(f"{name} {re.sub(RANDOM, '', Path(str(arguments[0])).name)}")
            return call(*arguments, **keywords)

        return touched

    def half_a_line(self, record):
        line = json.dumps(tokenpo.base.jsonl.finite(record)).encode()
        if len(seen) + 1 > at:
            self._file.write(line[: len(line) // 2])
        touch(f"line {self.path.name}")
        whole(self, record)

    whole = tokenpo.base.jsonl.Lines.write
    with pytest.MonkeyPatch.context() as patch:
        touching = (Path, "rename"), (Path, "replace"), (shutil, "rmtree")
        for owner, name in touching:
            patch.setattr(owner, name, before(owner, name))
        patch.setattr(tokenpo.base.jsonl.Lines, "write", half_a_line)
        yield seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_dies_at_a_kind_of_file_resumes_to_the_same_bytes(tiny, expected, kind):
    with dying(10**9) as moments:
        train(tiny("whole"), SilentView())
    at = max(i for i, name in enumerate(moments) if re.match(KINDS[kind], name))
    config = tiny("run")
    with pytest.raises(Killed), dying(at):
        train(config, SilentView())
    begun = (config.directory() / "config.json").exists()
    assert begun != (kind == "the config")
    again = resume(config.directory(), SilentView()) if begun else train(config, SilentView())
    assert again.finished
    assert left(config.directory()) == expected


@pytest.mark.parametrize("where", ["line", "tensors"])
def test_a_full_disk_is_one_sentence_and_costs_nothing(tiny, expected, monkeypatch, tmp_path, where):
    full = OSError(errno.ENOSPC, "No space left on device")
    calls = iter(range(100))

    def refuse(*arguments, **keywords):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        if where == "line":
            real = tokenpo.base.jsonl.Lines.__init__

            def opened(self, path):
                real(self, path)
                if path.name == "metrics.jsonl":
                    self._file = Half(path, "ab")

            class Half(__import__("io").FileIO):
                def write(self, data):
                    if next(calls) == 2:
                        super().write(bytes(data)[:7])
                        raise full
                    return super().write(data)

            patch.setattr(tokenpo.base.jsonl.Lines, "__init__", opened)
        else:
            patch.setattr("safetensors.torch.save_file", refuse)
        with pytest.raises(TokenPOError, match=r"No space left on device.*--resume") as caught:
            train(tiny("run"), SilentView())
    assert "\n" not in str(caught.value)
    directory = tmp_path / "run"
    assert not list((directory / "checkpoints").glob(".*"))
    assert all(json.loads(line) for line in (directory / "metrics.jsonl").read_bytes().splitlines())
    assert resume(directory, SilentView()).finished
    assert left(directory) == expected


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("collect",
         r"^memory ran out while sampling for step 1 \(268,435,456.0 MiB could not be had\): lower rollout.pr"),
        ("improve",
         "^memory ran out in the update of step 1 .*: lower train.micro_rows, train.micro_tokens or rollout"),
        ("evaluate",
         "^memory ran out in the evaluation after step 0 .*: lower evaluate.rows, evaluate.samples or rollout.max"),
    ],
)  # fmt: skip
def test_memory_that_runs_out_is_one_sentence_with_what_to_lower(tiny, expected, monkeypatch, place, said):
    """2^48 bytes are more than any machine gives: the error is torch's own."""
    config = tiny("run")
    with monkeypatch.context() as patch:
        patch.setattr(
            f"tokenpo.train.run.embedded.loop.{place}", lambda *_, **__: torch.empty(2**48, dtype=torch.uint8)
        )
        with pytest.raises(TokenPOError, match=said) as caught:
            train(config, SilentView())
    assert "\n" not in str(caught.value) and f"--resume {config.directory()} --accept-changes" in str(caught.value)
    assert resume(config.directory(), SilentView()).finished
    assert left(config.directory()) == expected


def test_a_damaged_checkpoint_is_not_kept_in_place_of_a_good_one(tiny, expected):
    """Step 2 is damaged; resumed from step 1 with keep = 1, the run stops after saving step 1 again: it is kept."""
    run = train(tiny("run", output={"keep": 2}), SilentView()).directory
    (run / "checkpoints" / "step-000002" / "checksums.json").write_text('["not", "a", "table"]')
    checkpoint.prune(run, 1, 1)
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["step-000001"]
    assert resume(run, SilentView()).finished
    assert left(run) | {"files": expected["files"]} == expected


def test_a_checkpoint_that_was_about_to_be_replaced_is_one(tiny, expected):
    """The process died between the two renames: only the old name is there."""
    run = train(tiny("run"), SilentView()).directory
    newest = run / "checkpoints" / "step-000002"
    newest.rename(newest.with_name(f".old-{newest.name}"))
    shutil.rmtree(run / "model")
    assert resume(run, SilentView()).finished
    assert left(run) == expected


def test_checksums_that_say_nothing_are_damage(tiny):
    run = train(tiny("run", output={"keep": 2}), SilentView()).directory
    for content in ("{}", "[]", '{"state.json": 1}', "\x00"):
        (run / "checkpoints" / "step-000002" / "checksums.json").write_text(content)
        found, damaged = checkpoint.newest(run)
        assert (found.name, [path.name for path in damaged]) == ("step-000001", ["step-000002"])


def test_logs_without_any_checkpoint_are_not_written_over(tiny):
    run = train(tiny("run"), SilentView()).directory
    shutil.rmtree(run / "checkpoints")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(TokenPOError, match="no checkpoint to resume from"):
        resume(run, SilentView())
    assert (run / "metrics.jsonl").read_bytes() == before


def test_changed_settings_are_refused_unless_told_to(tiny, tmp_path, capsys):
    run, change = train(tiny("run"), SilentView()).directory, ["--set", "train.steps=3", "--set", "train.lr=0.02"]
    assert main(["train", "--resume", str(run), *change]) == 2
    said = capsys.readouterr().err
    assert "train.lr: 0.01 -> 0.02" in said and "--accept-changes" in said and "train.steps:" not in said
    assert main(["train", *change, "--accept-changes", "x.toml"]) == 2
    assert "goes with --resume RUN" in capsys.readouterr().err


def test_accepted_changes_are_noted_and_another_method_begins_its_memory(tiny, monkeypatch):
    run = train(tiny("run", method={"name": "hapo"}), SilentView()).directory
    sections = {"method": {"name": "ha_dw"}, "train": {"steps": 3, "minibatches": 1}}
    wanted, view = tiny("run", **sections), Watch()
    with pytest.raises(TokenPOError, match=r"method\.name: hapo -> ha_dw"):
        resume(run, SilentView(), wanted)
    begin, seen = Learner.begin, []
    monkeypatch.setattr(Learner, "begin", lambda self, *a, **k: seen.append(self.memory) or begin(self, *a, **k))
    assert resume(run, view, wanted, accept=True).steps == 3
    assert seen == [tokenpo.method("ha_dw").start()]
    assert any("from step 3 on with other settings: method.name: hapo -> ha_dw" in line for line in view.notes)
    (line,) = lines(run, "changes.jsonl")
    assert (line["step"], line["changes"]) == (2, ["method.name: hapo -> ha_dw"])
    assert 'name = "ha_dw"' in (run / "recipe.toml").read_text()


@pytest.mark.parametrize("text", ["[]", "{", '{"train": 3}'])
def test_a_damaged_config_is_one_sentence(tiny, text):
    config = tiny("run")
    (config.directory()).mkdir()
    (config.directory() / "config.json").write_text(text)
    with pytest.raises(TokenPOError, match=r"config\.json") as caught:
        resume(config.directory(), SilentView())
    assert "\n" not in str(caught.value)
    assert [path.name for path in config.directory().iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("config.json", "Nothing was begun there: make room, then give the same command again"),
        ("versions.json", "It has no checkpoint yet: make room, then go on with tokenpo train --resume {}"),
        ("trace.jsonl", "Its last checkpoint is whole: make room, then go on with tokenpo train --resume {}"),
    ],
)
def test_a_disk_that_is_full_at_once_promises_nothing_that_is_not_there(tiny, monkeypatch, file, said):
    config, real = tiny("run"), os.open

    def opened(path, *arguments, **keywords):
        where = Path(path)
        if where.parent == config.directory() and re.sub(RANDOM, "", where.name.removeprefix(".writing-")) == file:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        with pytest.raises(TokenPOError, match="No space left on device") as caught:
            train(config, SilentView())
    assert str(caught.value).endswith(f"). {said.format(config.directory())}")
    # The remedy is one.
    remedy = resume(config.directory(), SilentView()) if "--resume" in said else train(config, SilentView())
    assert remedy.finished


def test_two_processes_do_not_train_one_run_and_software_that_is_not_known_is_said(tiny):
    run, longer, view = train(tiny("run"), SilentView()).directory, tiny("run", train={"steps": 3}), Watch()
    (run / "versions.json").write_text("[1")
    with held(run), pytest.raises(TokenPOError, match="being trained by another process"):
        resume(run, SilentView(), longer)
    assert resume(run, view, longer).steps == 3
    assert "versions.json is gone or damaged" in view.notes[0]
