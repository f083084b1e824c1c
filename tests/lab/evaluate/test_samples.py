"""Samples made elsewhere: what is read, what is refused, and what a cut line costs."""

from pathlib import Path
from typing import Any

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.lab.evaluate.summary import Sample, Vote, read_samples
from tokenpo.train.tasks.verify import VerifierOptions, make_verifier
from written_runs import write_lines

RIGHT = {"prompt": "1+1=", "answer": "2", "correct": True}


def written(path: Path, *records: Any) -> Path:
    return write_lines(path, records)


def test_every_column_is_read(tmp_path):
    chat = [{"role": "user", "content": "?"}]
    rest = {"completion": "x", "reference": "2", "note": "no answer", "tokens": 3, "finished": False}
    file = written(
        tmp_path / "s.jsonl",
        {"problem": 7, "prompt": chat, "answer": " $1,234$. ", "correct": False, **rest},
        {"prompt": chat, "answer": 2.5, "correct": 1.0},
    )
    samples, _ = read_samples(file)
    assert samples[0] == Sample("problem=7", 7, Vote("1234", False), "no answer", 3, False)
    assert samples[0].reward is None
    assert (samples[1].name, samples[1].vote, samples[1].tokens) == (chat, Vote("2.5", True), None)
    assert samples[0].problem != samples[1].problem


def test_the_samples_of_a_training_run_are_refused_until_their_reference_is_called_one(tmp_path):
    """They hold the right answer in `answer`, which would win every vote."""
    line = {"step": 3, "position": 0, "prompt": "1+1=", "completion": "#### 3", "correct": False}
    with pytest.raises(TokenPOError, match=r"line 1: a training run wrote it.*rename the column 'reference'"):
        read_samples(written(tmp_path / "s.jsonl", line | {"answer": "2"}))
    for answer in ({"reference": "2"}, {"answer": None}):
        assert read_samples(written(tmp_path / "s.jsonl", line | answer))[0][0].vote == Vote(None, False)


@pytest.mark.parametrize(("change", "message"), [({"correct": None}, "line 2: 'correct' is None: give true or false")])
def test_a_wrong_kind_is_named_by_its_line(change, message, tmp_path):
    with pytest.raises(TokenPOError, match=message):
        read_samples(written(tmp_path / "s.jsonl", RIGHT, RIGHT | change))


def test_a_verifier_judges_anew(tmp_path):
    line = {"prompt": "1+1=", "reference": "2", "correct": True}
    file = written(tmp_path / "s.jsonl", line | {"completion": "#### 3"}, line | {"completion": "#### 2"})
    exact = make_verifier("exact", VerifierOptions(), "eval")
    assert [sample.vote for sample in read_samples(file, exact)[0]] == [Vote("3", False), Vote("2", True)]
    with pytest.raises(TokenPOError, match=r"line 1: no column 'reference' .*compares"):
        read_samples(written(tmp_path / "s.jsonl", {"prompt": "?", "completion": "2"}), exact)
    for reference in (None, {"answer": "2"}, True, "", " ", [], ["2", None], float("nan")):
        (lacking := line | {"completion": "#### 2"})["reference"] = reference
        with pytest.raises(TokenPOError, match=r"line 1: 'reference' is .*: give text, a number, or a list of these"):
            read_samples(written(tmp_path / "s.jsonl", lacking), exact)
    many = line | {"completion": "#### 2", "reference": [10**400, 2]}
    assert read_samples(written(tmp_path / "s.jsonl", many), exact)[0][0].vote == Vote("2", True)
    with pytest.raises(TokenPOError, match=r"line 1: no column 'completion'"):
        read_samples(written(tmp_path / "s.jsonl", {"prompt": "?", "reference": "2"}), exact)
    with pytest.raises(TokenPOError, match=r"line 1: 'completion' is a NoneType"):
        read_samples(written(tmp_path / "s.jsonl", line | {"completion": None}), exact)


def test_a_function_without_answers_leaves_those_of_the_file(tmp_path):
    """It says that a completion is right and not what it says; the majority is of what the file read."""
    own = tmp_path / "judge.py"
    own.write_text("def reward(completions, **_):\n    return [float(text == 'two') for text in completions]\n")
    line = {"prompt": "1+1=", "correct": False}
    answered = [line | {"completion": "two", "answer": 2}, line | {"completion": "three", "answer": None}]
    verifier = make_verifier(f"{own}:reward", VerifierOptions(reward_seconds=0), "eval")
    samples, notes = read_samples(written(tmp_path / "s.jsonl", *answered), verifier)
    assert [sample.vote for sample in samples] == [Vote("2", True), Vote(None, False)]
    assert notes == ["The verifier reads no answers: maj@k counts those of s.jsonl."]
    samples, notes = read_samples(written(tmp_path / "s.jsonl", line | {"completion": "two"}), verifier)
    assert ([sample.vote for sample in samples], notes) == ([Vote(None, True)], [])
    # A verifier that reads answers and finds none is believed.
    exact = make_verifier("exact", VerifierOptions(extract="hash"), "eval")
    file = written(tmp_path / "s.jsonl", line | {"completion": "two", "answer": "2", "reference": "2"})
    assert read_samples(file, exact)[0][0].vote == Vote(None, False)
