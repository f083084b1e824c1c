"""A process that dies while it writes: a resumed run is the same run, and model/ is its last model."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tokenpo
import tokenpo.base.files
import tokenpo.base.jsonl
from run_views import Watch, lines
from tokenpo.base.errors import TokenPOError
from tokenpo.core.learner import Learner
from tokenpo.train.run import checkpoint
from tokenpo.train.run.directory import hold
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.step import View

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
def whole(tiny, known=[]):  # noqa: B006
    """What an uninterrupted run leaves, and its touches of the disk in their order; made once."""
    if not known:
        with dying(10**9) as moments:
            directory = train(tiny("once"), View()).directory
        known.extend((left(directory), moments))
    return known


@pytest.fixture
def expected(whole):
    return whole[0]


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
            self._file.flush()
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
def test_a_run_that_dies_at_a_kind_of_file_resumes_to_the_same_bytes(tiny, whole, kind):
    expected, moments = whole
    at = max(i for i, name in enumerate(moments) if re.match(KINDS[kind], name))
    config = tiny("run")
    with pytest.raises(Killed), dying(at):
        train(config, View())
    begun = (config.directory() / "config.json").exists()
    assert begun != (kind == "the config")
    again = resume(config.directory(), View()) if begun else train(config, View())
    assert again.finished
    assert left(config.directory()) == expected


def test_a_damaged_checkpoint_is_not_kept_in_place_of_a_good_one(tiny, expected):
    """Step 2 is damaged; resumed from step 1 with keep = 1, the run stops after saving step 1 again: it is kept."""
    run = train(tiny("run", output={"keep": 2}), View()).directory
    (run / "checkpoints" / "step-000002" / "checksums.json").write_text('["not", "a", "table"]')
    checkpoint.prune(run, 1, 1)
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["step-000001"]
    assert resume(run, View()).finished
    assert left(run) | {"files": expected["files"]} == expected


def test_a_checkpoint_that_was_about_to_be_replaced_is_one(tiny, expected):
    """The process died between the two renames: only the old name is there."""
    run = train(tiny("run"), View()).directory
    newest = run / "checkpoints" / "step-000002"
    newest.rename(newest.with_name(f".old-{newest.name}"))
    shutil.rmtree(run / "model")
    assert resume(run, View()).finished
    assert left(run) == expected


def test_logs_without_any_checkpoint_are_not_written_over(tiny):
    run = train(tiny("run"), View()).directory
    shutil.rmtree(run / "checkpoints")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(TokenPOError, match="no checkpoint to resume from"):
        resume(run, View())
    assert (run / "metrics.jsonl").read_bytes() == before


def test_accepted_changes_are_noted_and_another_method_begins_its_memory(tiny, monkeypatch):
    run = train(tiny("run", method={"name": "hapo"}), View()).directory
    sections = {"method": {"name": "ha_dw"}, "train": {"steps": 3, "minibatches": 1}}
    wanted, view = tiny("run", **sections), Watch()
    with pytest.raises(TokenPOError, match=r"method\.name: hapo -> ha_dw"):
        resume(run, View(), wanted)
    begin, seen = Learner.begin, []
    monkeypatch.setattr(Learner, "begin", lambda self, *a, **k: seen.append(self.memory) or begin(self, *a, **k))
    assert resume(run, view, wanted, accept=True).steps == 3
    assert seen == [tokenpo.method("ha_dw").start()]
    assert any("from step 3 on with other settings: method.name: hapo -> ha_dw" in line for line in view.notes)
    (line,) = lines(run, "changes.jsonl")
    assert (line["step"], line["changes"]) == (2, ["method.name: hapo -> ha_dw"])
    assert json.loads((run / "config.json").read_text())["method"]["name"] == "ha_dw"
    for steps, name in (4, "ppo"), (5, "hapo"):  # the first checkpoint lacks a critic, the second has one too many
        sections = {"method": {"name": name}, "train": {"steps": steps, "minibatches": 1}}
        assert resume(run, View(), tiny("run", **sections), accept=True).steps == steps


def test_two_processes_do_not_train_one_run(tiny):
    run, longer = train(tiny("run"), View()).directory, tiny("run", train={"steps": 3})
    with hold(run), pytest.raises(TokenPOError, match="being trained by another process"):
        resume(run, View(), longer)
    assert resume(run, View(), longer).steps == 3
