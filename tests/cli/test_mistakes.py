"""A mistake on the command line: one sentence, status 2, and nothing is begun."""

import shlex
from pathlib import Path

import pytest

from tokenpo.cli.main import main
from written_rollouts import write
from written_runs import write_lines

TINY = "eval tiny --task dial_sum --problems 4 --max-new-tokens 40"
TWO = "compare quickstart --methods grpo,dapo"
MISTAKES = [
    ("tarin", "no command is called 'tarin': did you mean 'train'?"),
    ("show hapoo", "did you mean 'hapo'"),
    ("methods xyzzy", "no method has 'xyzzy'"),
    ("report /no/such/run", "/no/such/run"),
    ("train", "needs a recipe"),
    ("train quickstart --accept-changes", "--accept-changes goes with --resume RUN"),
    ("train quikstart", "did you mean 'quickstart'"),
    ("train quickstart --set train.lrr=1", "has no key 'lrr'"),
    ("train quickstart --method tepoo", "did you mean 'tepo'"),
    ("check mine.py", "'mine.py' is not a method: write METHOD"),
    ("train quickstart --set model.path=/no/such/model", "/no/such/model"),
    ("train --resume /no/such/run", "/no/such/run"),
    ("eval", "needs a MODEL to sample or --samples FILE"),
    ("eval tiny", "needs --benchmark NAME"),
    ("eval tiny --task dial_summ", "did you mean 'dial_sum'"),
    ("eval tiny --task dial_sum --task-option operands", "write KEY=VALUE"),
    ("eval tiny --task dial_sum --verifier math", "--verifier goes with --benchmark"),
    ("eval tiny --benchmark absent.jsonl", "absent.jsonl cannot be read"),
    ("eval tiny --benchmark gsm8k --task-option a=1", "--task-option goes with --task"),
    ("eval no/such/model --task dial_sum --problems 4 --max-new-tokens 40", "there is no directory no/such/model here"),
    (f"{TINY} --k 1,x", "give whole numbers of at least 1"),
    (f"{TINY} --problems 0", "--problems is 0"),
    (f"{TINY} --seed -1", "--seed is -1, expected at least 0"),
    (f"{TINY} --samples-per-prompt 2 --temperature 0", "greedy samples"),
    (f"{TINY} --max-new-tokens 5000", "lower max_new_tokens"),
    (f"{TINY} --temperature -1", "temperature is -1.0, expected 0 (greedy) or 1.2e-38"),
    ("eval --samples bad.jsonl", "line 1: no column 'correct'"),
    ("eval --samples bad.jsonl --temperature 1", "--temperature has no effect on --samples"),
    ("eval --samples bad.jsonl --extract hash", "name one with --verifier"),
    ("compare --methods grpo,dapo", "compare needs a recipe and --methods"),
    (f"{TWO} --metrics acuracy", "did you mean 'accuracy'"),
    (f"{TWO} --baseline tepo", "--baseline tepo is not among the methods"),
    (f"{TWO} --margin acuracy=0.1", "'acuracy' is not compared: did you mean 'accuracy'"),
    (f"{TWO} --runs a=b", "and RECIPE, --methods says what to train: leave one out"),
    (f"{TWO} --set evaluate.samples=0 --metrics avg", "evaluate.samples is 0"),
    ("explain mine.jsonl --methods grop", "no method is called 'grop': did you mean 'grpo'?"),
    ("explain mine.jsonl --methods grpo --entropy-quantile 80", "--entropy-quantile 80 lies outside [0, 1]"),
    ("explain empty.jsonl --methods grpo", "empty.jsonl holds no response (the file is empty)"),
    ("exact dapo --world two_mode", "did you mean 'two_modes'"),
    ("exact vineppo --world two_modes", "vineppo needs gain, which a world does not give"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES)
def test_a_mistake_is_one_sentence_and_status_two(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tokenpo.lab.compare.plan.execute", lambda *_: pytest.fail("runs were started"))
    write(Path("mine.jsonl"))
    write_lines(Path("bad.jsonl"), [{"prompt": "x"}])
    Path("empty.jsonl").touch()
    there = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(shlex.split(words)) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("tokenpo: ") and error.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == there
