"""A directory that a stranger made: whatever name in it is a link, no command changes a file outside of it."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpo.cli.main import main

SHORT = (
    "train.steps=1 train.minibatches=1 rollout.prompts=2 rollout.group_size=2 rollout.max_new_tokens=4 "
    "evaluate.problems=2 evaluate.samples=0 output.rollouts_every=1 output.checkpoint_every=1"
).split()
TRAIN = ["train", "quickstart", *(word for x in SHORT for word in ("--set", x)), "--out"]
EVAL = ["eval", "tiny", "--task", "dial_sum", "--problems", "2", "--max-new-tokens", "4", "--device", "cpu"]
# The command, the directory that it writes into, and whether it refuses one that any link leads out of.
COMMANDS = {
    "resume": (["train", "--resume", "run", "--set", "train.steps=2"], "run", True),
    "report": (["report", "run"], "run", False),
    "explain": (["explain", "run", "--methods", "grpo,tepo", "--out", "explained"], "explained", False),
    "compare": (["compare", "--runs", "x=[cd]", "y=run", "y=b", "--out", "compared"], "compared", False),
    "eval": ([*EVAL, "--out", "evaluated"], "evaluated", True),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One directory of each command, in one place."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main([*TRAIN, "run"]) == 0
        config = json.loads(Path("run/config.json").read_text())
        for out, method, seed in (("b", "tepo", 1), ("c", "grpo", 0), ("d", "grpo", 1)):
            shutil.copytree("run", out)
            Path(out, "config.json").write_text(json.dumps(config | {"method": {"name": method}, "seed": seed}))
        for command, _, _ in list(COMMANDS.values())[1:]:
            assert main(command) == 0
    yield place


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def _rounds(directory: Path, refuses: bool) -> list[list[str]]:
    """Names to plant links at: each that stands there and the lock, one by one where the command stops at the first,
    else files and directories at once; and at once all those under which something is written first."""
    there = {path.relative_to(directory) for path in directory.rglob("*") if path.parent.name not in ("model", "logs")}
    hidden = {x.with_name(f"{before}{x.name}") for x in there for before in (".writing-", ".old-")}
    folders = {x for x in there if (directory / x).is_dir()}
    rounds = [{x} for x in sorted({*there, Path(".lock")})] if refuses else [{*there, Path(".lock")} - folders, folders]
    return [sorted(map(str, names), reverse=True) for names in (*rounds, hidden)]  # what lies deeper comes first


def _plant(directory: Path, name: str, outside: Path) -> None:
    """Puts a link in the place of a file or directory, to what was there or to a file of a user's."""
    place, victim = directory / name, outside / name.replace("/", "-")
    outside.mkdir(exist_ok=True)
    if place.exists():
        shutil.move(place, victim)
    else:
        victim.write_text("precious\n")
    place.symlink_to(victim)


def _state(outside: Path) -> dict[str, tuple[int, str]]:
    """Bytes, and when they were written: a command may write again what stands there."""
    return {
        str(file.relative_to(outside)): (file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
        if file.is_file()
        else (0, "")
        for file in outside.rglob("*")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_writes_through_a_link(here, name, capsys):
    command, written, refuses = COMMANDS[name]
    whole = here / written
    spare = shutil.copytree(whole, here / "spare")
    for number, planted in enumerate(_rounds(spare, refuses)):
        outside = here.parent / f"outside-{number}"
        for each in planted:
            _plant(whole, each, outside)
        before = _state(outside)
        code, shown = main(command), capsys.readouterr().err
        assert _state(outside) == before, f"{' '.join(command)} wrote through {planted} in {written}"
        assert code == (2 if refuses else 0), shown
        if refuses:
            assert any(f"{each} is a link that leads out of " in shown for each in planted), (planted, shown)
        shutil.rmtree(whole)
        shutil.copytree(spare, whole)


COMPARE = ["compare", "quickstart", "--methods", "grpo,tepo", "--set", "train.steps=1", "--out"]


@pytest.mark.parametrize(
    ("command", "planted", "refusal"),
    [
        *(
            (TRAIN, name, "is a link that leads out of|is not empty")
            for name in (".lock", ".writing-config.json.0123abcd", ".writing-config.json", "checkpoints")
        ),
        *(
            (COMPARE, name, rf"{re.escape(name)} is a link that leads out of made")
            for name in (".lock", "logs", "logs/quickstart-grpo-seed0.log", "quickstart-grpo-seed0")
        ),
    ],
)
def test_nothing_trains_where_a_link_leads_out(here, command, planted, refusal, capsys):
    (here / "made" / planted).parent.mkdir(parents=True)
    outside = here.parent / "outside"
    _plant(here / "made", planted, outside)
    before = _state(outside)
    assert main([*command, "made"]) == 2
    assert _state(outside) == before
    assert re.search(refusal, capsys.readouterr().err)
