"""A method of the user's own by its path: every command that takes a method takes it, and names its mistakes."""

import json
import re
from pathlib import Path

import pytest

import tokenpo
from own_method import FILE
from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.cli.main import main
from tokenpo.core.laws import LAWS
from tokenpo.train.recipe.config import load_config

SHORT = (
    "train.steps=2 rollout.prompts=4 rollout.group_size=4 rollout.max_new_tokens=24 evaluate.every=0 "
    "evaluate.problems=4 output.rollouts_every=2"
).split()
SETTINGS = [word for setting in SHORT for word in ("--set", setting)]
ODD = """def none():
    pass

def fails():
    x = {}
    raise KeyError('x')

def asks(*, low): pass

"""
LOOSE = """import tokenpo

def loose(low, *, high=0.3, **rest):
    return tokenpo.method("dapo", low=low, high=high, **rest)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("late.py").write_text(FILE, encoding="utf-8")
    return tmp_path


def train(*words: str) -> int:
    return main(["train", "quickstart", *SETTINGS, *words])


def test_a_run_goes_by_its_name_and_keeps_to_its_file(capsys):
    assert train("--method", "late.py:late", "--set", "method.low=0.1") == 0
    directory = Path("runs", "quickstart-late-seed0")
    config = load_config(directory / "config.json")
    assert config.method.name == "late.py:late" and config.method.options == {"low": 0.1}
    assert "FixedBounds(low=0.1, high=0.2)" in (directory / "objective.txt").read_text()
    assert "late.py:late" in (directory / "report.html").read_text()

    assert main(["train", "--resume", str(directory), "--set", "train.steps=3"]) == 0
    Path("late.py").write_text(FILE + "# changed\n")
    assert main(["train", "--resume", str(directory), "--set", "train.steps=4"]) == 2
    assert "contents of method.name" in capsys.readouterr().err
    Path("cmp").mkdir()
    Path("cmp/late-seed0").symlink_to(directory.resolve())
    words = ["compare", "quickstart", "--methods", "grpo,late.py:late", "--out", "cmp", "--dry-run", *SETTINGS]
    assert main(words) == 2
    assert "holds a run with another config (" in (error := capsys.readouterr().err) and "of method.name: " in error

    # A report reads what was recorded: it needs no file, and runs none.
    Path("late.py").write_text("raise SystemExit('executed')\n")
    assert main(["report", str(directory)]) == 0


def test_recorded_rollouts_are_explained_by_it(capsys):
    assert train("--no-report") == 0
    explain = ["explain", "runs/quickstart-dapo-seed0", "--methods"]
    assert main([*explain, "grpo,late.py:late,x@late.py:late:low=0.1", "--first-update", "--out", "out"]) == 0
    grpo, late, x = json.loads(Path("out", "explain.json").read_text())["methods"]
    assert [one["label"] for one in (grpo, late, x)] == ["grpo", "late", "x"]
    assert grpo["method"] == "grpo" and late["method"] == x["method"] == "late.py:late"
    # Position weighs late tokens more, so the two differ; at ratio 1 a bound changes nothing.
    assert x["options"] == {"low": 0.1} and grpo["cosines"]["late"] < 0.999
    assert late["cosines"]["x"] == pytest.approx(1, abs=1e-6)

    Path("nan.py").write_text(FILE.replace("return place / ", "return torch.nan * place / "), encoding="utf-8")
    assert train("--method", "nan.py:late", "--no-report", "--set", "rollout.max_new_tokens=64") == 2
    error = capsys.readouterr().err
    assert error.startswith("tokenpo: step 1, update 1 of ")
    assert "the loss of late is nan: weight Position() is nan on token 0 of rollout " in error
    assert main([*explain, "nan.py:late"]) == 2
    assert "late on this recording is not finite: weight Position() is nan on token 0 of " in capsys.readouterr().err


def test_the_laws_are_checked_on_it(capsys):
    hold = f"all {len(LAWS)} laws hold"
    assert main(["check", "tepo,late.py:late"]) == 0
    out = capsys.readouterr().out
    assert f"tepo: {hold}\nlate: {hold}\n  rows_add_up " in out and " Losses and gradients" in out
    Path("bad.py").write_text(FILE.replace("return place / ", "return -place / "), encoding="utf-8")
    assert main(["check", "grpo,bad.py:late"]) == 1
    out = capsys.readouterr().out
    assert f"grpo: {hold}\nlate: late breaks " in out and "weights_are_not_negative: " in out

    text = (Path(__file__).parents[2] / "docs" / "own_method.md").read_text(encoding="utf-8")
    Path("mine.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], encoding="utf-8")
    assert main(["check", "mine.py:uncertain:share=0.3"]) == 0


def test_it_is_shown_with_its_options(capsys):
    assert main(["show", "tr_grpo"]) == 0
    shown = capsys.readouterr().out
    assert "sigmoid(tau" in shown and "weight_placement='advantage'" in shown and "objective tr_grpo" in shown
    assert main(["show", "late.py:late:low=0.1,high=0.3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("late.py:late(low=0.2, high=0.2)\n\nLate tokens weigh more.\n")
    assert "FixedBounds(low=0.1, high=0.3)" in out
    assert main(["show", "hapo:tau=0"]) == 0
    assert "temperature -" in capsys.readouterr().out
    for words, message in (
        (["show", "hapo:tua=0"], "method hapo has no option 'tua'; did you mean 'tau'?"),
        (["show", "grpo,dapo"], "show 'grpo,dapo' names 2 methods: give one at a time"),
        (["check", "gr!po"], "check 'gr!po': 'gr!po' is not a method"),
    ):
        assert main(words) == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "kind", "message"),
    [
        ("late.py:lat", {}, UnknownName, ": 'late\\.py' has no function 'lat': did you mean 'late'\\?"),
        ("lat.py:late", {}, TokenPOError, r": can't import 'lat\.py' \(FileNotFoundError"),
        ("broken.py:late", {}, TokenPOError, r": can't import 'broken\.py' \(ZeroDivisionError"),
        ("odd.py:none", {}, TokenPOError, r" returned a NoneType: let it return a tokenpo\.Objective"),
        ("odd.py:fails", {}, TokenPOError, r" raised KeyError at odd\.py:6: 'x'"),
        ("odd.py:asks", {}, TokenPOError, r" raised TypeError .*missing 1 required keyword-only argument: 'low'"),
        ("late.py:late", {"lo": 0.1}, UnknownName, r" has no option 'lo'; did you mean 'low'\?"),
    ],
)
def test_mistakes_name_the_method_and_the_remedy(name, options, kind, message):
    Path("broken.py").write_text("1 / 0\n")
    Path("odd.py").write_text(ODD)
    named = f"method {re.escape(name)}" if message[0] in ": " else ""
    with pytest.raises(kind, match=named + message):
        tokenpo.method(name, **options)


def test_one_name_is_the_file_that_it_names_now(monkeypatch):
    """Not the file of that name in another directory."""

    def low() -> float:
        return tokenpo.method("late.py:late").surrogate.bounds.low

    assert low() == 0.2
    Path("other").mkdir()
    Path("other", "late.py").write_text(FILE.replace("low: float = 0.2", "low: float = 0.3"), encoding="utf-8")
    monkeypatch.chdir("other")
    assert low() == 0.3
