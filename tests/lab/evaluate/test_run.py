"""Sampling into a directory: the same bytes however often it was interrupted, and nothing mixed."""

import json
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.lab.evaluate.run import (
    SamplingOptions,
    SamplingPlan,
    check,
    free_directory,
    prepare,
    sample_model,
    write_results,
)
from tokenpo.lab.evaluate.summary import read_samples, summarise
from tokenpo.train.models import load
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.tasks import make_task

CONFIG = {"a": 1}


@pytest.fixture(scope="module")
def lm():
    return load(ASSETS)


class Interrupted(Exception):
    pass


class Flaky:
    """dial_sum whose verifier stops the evaluation after some batches."""

    name = "dial_sum"

    def __init__(self, batches=10**6):
        self.task, self.left, self.scored = make_task("dial_sum", {}, 0), batches, 0

    def problems(self, split, start, count):
        assert split == "test"
        return self.task.problems(split, start, count)

    def score(self, problems, completions, completion_ids):
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        self.scored += len(problems)
        return self.task.score(problems, completions, completion_ids)

    def close(self):
        pass


def drawn(lm, out, task=None, count=5, **options):
    """Two problems at once, three samples of each."""
    settings = {"samples": 3, "max_new_tokens": 6, "rows": 7, **options}
    sample_model(SamplingPlan(lm, task or Flaky(), count, SamplingOptions(**settings)), out, CONFIG, lambda done: None)
    return (out / "samples.jsonl").read_bytes()


def test_the_same_plan_gives_the_same_bytes_and_another_seed_others(lm, tmp_path):
    first = drawn(lm, tmp_path / "a")
    assert first == drawn(lm, tmp_path / "b")
    assert first != drawn(lm, tmp_path / "c", seed=1)
    samples, notes = read_samples(tmp_path / "a" / "samples.jsonl")
    assert [sample.name for sample in samples] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert notes == []
    record = json.loads(first.splitlines()[4])
    problem = make_task("dial_sum", {}, 0).problems("test", 1, 1)[0]
    assert (record["prompt"], record["reference"]) == (problem.prompt, problem.answer)
    assert 1 <= record["tokens"] <= 6 and record["finished"] == (record["tokens"] < 6)
    results = [
        write_results(out, CONFIG, summarise(read_samples(out / "samples.jsonl")[0], [1, 4], seed=0)).read_bytes()
        for out in (tmp_path / "a", tmp_path / "b")
    ]
    assert results[0] == results[1]
    assert json.loads(results[0])["numbers"][1]["value"] is None  # no prompt has four samples
    greedy = drawn(lm, tmp_path / "d", samples=1, temperature=0.0)
    assert greedy == drawn(lm, tmp_path / "e", samples=1, temperature=0.0, seed=5)


@pytest.mark.parametrize("tail", [b"", b'{"problem": 4, "pro', b'{"problem": 4}\n'])
def test_an_interrupted_evaluation_goes_on_without_sampling_again(lm, tmp_path, tail):
    """Two of three batches are there, and a line or a piece of one of the third."""
    whole = drawn(lm, tmp_path / "whole")
    with pytest.raises(Interrupted):
        drawn(lm, tmp_path / "cut", Flaky(batches=2))
    path = tmp_path / "cut" / "samples.jsonl"
    path.write_bytes(path.read_bytes() + tail)
    for scored in (3, 0):  # the last problem only, then nothing
        task = Flaky()
        assert drawn(lm, tmp_path / "cut", task) == whole
        assert task.scored == scored


def test_a_directory_holds_one_evaluation(tmp_path, monkeypatch):
    out = tmp_path / "out"
    config = {"model": {"path": "m"}, "sampling": {"seed": 0}, "versions": {"torch": "1"}}
    assert not check(out, config)
    prepare(out, config)
    assert check(out, config)
    prepare(out, config | {"versions": {"torch": "2"}})
    assert json.loads((out / "config.json").read_text()) == config
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text("[]")
    for place, its, message in (
        ("out", config | {"sampling": {"seed": 1}}, r"holds results of another .*\(sampling.seed: 0 -> 1\).*--out"),
        ("full", config, "is not empty and holds no evaluation"),
        ("full/x", config, "is a file"),
        ("odd", config, "is not the config of an evaluation"),
    ):
        with pytest.raises(TokenPOError, match=message):
            prepare(tmp_path / place, its)
    monkeypatch.chdir(tmp_path)
    own = Path("runs/eval-m-t-seed3")
    assert free_directory("m-t", config, 3) == own
    prepare(own, config)
    assert free_directory("m-t", config, 3) == own
    assert free_directory("m-t", config | {"sampling": {}}, 3) == Path(f"{own}-2")
