"""The command line as a whole, and the commands that list, show and train."""

import json
import os
import subprocess
import sys
from inspect import signature

import pytest

from tokenpo.cli.main import main, parser
from tokenpo.cli.train import verdict
from tokenpo.methods import METHODS
from tokenpo.methods.families import FAMILIES
from tokenpo.train.recipe.config import load_config
from tokenpo.train.recipe.files import find_recipe

TOKENPO = [sys.executable, "-m", "tokenpo"]


def test_help_imports_nothing_heavy():
    code = (
        "import sys, runpy; sys.argv = ['tokenpo', '--help']\n"
        "try: runpy.run_module('tokenpo', run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'transformers', 'pydantic', 'rich', 'numpy', 'trl', 'verl'} & set(sys.modules)\n"
        "sys.exit(f'--help imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("train", "methods", "show", "recipes", "report", "compare", "explain", "--resume"):
        assert word in done.stdout


def test_methods_are_a_table_of_what_they_change(capsys, monkeypatch):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [title for title, _ in FAMILIES.values()]
    assert [line for line in lines[1:] if not line or line in titles] == [x for title in titles for x in ("", title)]
    listed = [line.split()[0] for line in lines[1:] if line and line not in titles]
    assert listed == [name for _, names in FAMILIES.values() for name in METHODS if name in names]
    assert sorted(listed) == sorted(METHODS)
    hapo = next(line for line in lines if line.startswith("hapo "))
    assert hapo.split(maxsplit=2)[1:] == [
        "2509.16591",
        "Temperature, advantage and clip bounds of a token follow its entropy. [old_entropy]",
    ]
    assert next(line for line in lines if line.startswith("tr_grpo ")).endswith(". (second-hand + reconstructed)")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > len(METHODS) + 1 and max(map(len, lines)) < 80
    assert [line.split()[0] for line in lines[1:] if line and line not in titles and line[0] != " "] == listed


def test_methods_are_found_by_a_word_and_by_what_they_read(capsys):
    assert main(["methods", "for a high mean ENTROPY"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line] == ["METHOD", "Entropy", "grpo_s"]
    assert main(["methods", "ref_logprob", "--json"]) == 0
    found = {method["name"]: method for method in json.loads(capsys.readouterr().out)}
    needing = [name for name, build in METHODS.items() if "ref_logprob" in build().needs]
    assert list(found) == needing and "archer" in needing
    default = signature(METHODS["adv_reweight"]).parameters["a"].default
    assert found["adv_reweight"]["options"]["a"] == default and found["adv_reweight"]["paper"] == "arXiv:2505.12929"


# What is printed meets the closed end while it is written, or when the buffer is flushed at the end.
BUFFERED = [{"PYTHONUNBUFFERED": "1"}, {"PYTHONUNBUFFERED": ""}]


@pytest.mark.parametrize("buffered", BUFFERED)
@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["tarin"], 2)])
def test_a_reader_that_has_gone_changes_no_status(arguments, status, buffered):
    """As in `tokenpo methods 2>&1 | head`."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": os.environ | buffered}
    process = subprocess.Popen([*TOKENPO, *arguments], **how)
    process.stdout.close()
    assert process.wait(timeout=60) == status


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["methods"], 0), (["tarin"], 2), (["eval", "--samples", "said.jsonl", "--verifier", "mine.py:loud"], 0)],
)
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-"])
def test_closed_streams_change_no_status(arguments, status, closed, tmp_path):
    """As under a service manager that gives none; a reward function may print there."""
    (tmp_path / "said.jsonl").write_text('{"prompt": "1+1=", "completion": "2", "reference": "2"}')
    (tmp_path / "mine.py").write_text("def loud(completions):\n    print('x', flush=True)\n    return [1.0]\n")
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *TOKENPO, *arguments]
    assert subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == status


def test_the_verdict_has_rewards_where_they_are_graded():
    before = {"eval/accuracy": 0.0, "eval/low": 0.0, "eval/high": 0.1}
    assert len(verdict([before, before])) == 1
    graded = {"eval/reward": 0.3, "eval/reward_low": None, "eval/reward_high": float("nan")}
    _, line = verdict([before, before | graded])
    assert line == "held-out greedy reward: 0.000 (0.000 to 0.100) before -> 0.300 after; 95 % intervals"


def test_recipes_are_listed_and_printed_with_every_setting(capsys, tmp_path):
    assert main(["recipes"]) == 0 and "\nquickstart " in capsys.readouterr().out
    assert main(["recipes", "quickstart"]) == 0
    shown = capsys.readouterr().out
    assert "weight_decay = 0.0" in shown and "# responses to each problem" in shown
    saved = tmp_path / "quickstart.toml"
    saved.write_text(shown)
    assert load_config(saved) == load_config(find_recipe("quickstart"))


def test_train_writes_a_run_with_a_report(tmp_path, capsys):
    small = "rollout={prompts=2,group_size=4,max_new_tokens=8} train={steps=2} evaluate={problems=4,samples=2}"
    changes, out = [f"--set={setting}" for setting in (*small.split(), "method.alpha=0.5")], tmp_path / "run"
    assert main(["train", "quickstart", "--method", "hapo", "--out", str(out), *changes]) == 0
    shown = capsys.readouterr().out
    assert "objective hapo" in shown and "held-out greedy accuracy" in shown
    config = json.loads((out / "config.json").read_text())
    assert config["method"] == {"name": "hapo", "alpha": 0.5} and config["name"] == "quickstart"
    assert (out / "report.html").stat().st_size > 1000
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").exists()


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for words, name in (
        ("report r --out ~/r", "out"),
        ("explain ~/r --methods grpo", "rollouts"),
        ("eval --samples ~/r", "samples"),
    ):
        assert getattr(parser().parse_args(words.split()), name) == tmp_path / "r"
