"""Logs of metrics of any length, and what a run of another framework says."""

import json
import math
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from tokenpo import Credit, Rollouts
from tokenpo.base.jsonl import finite
from tokenpo.records.log import describe
from tokenpo.records.metrics import credit_metrics
from tokenpo.records.run import read_run

LONG = 3_000


def entropy(step: int) -> float:
    """Falls in a line, and leaps once for one step."""
    return 9.0 if step == 1_703 else 1 - step / (2 * LONG)


def rows(steps: int) -> list[dict]:
    lines = [{"step": s, "entropy": entropy(s), "seconds_update": 0.5} for s in range(1, steps + 1)]
    for line in lines[999::1000]:
        line["eval/accuracy"] = line["step"] / LONG
    return lines


def write(directory: Path, lines: list[dict]) -> Path:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("long"), rows(LONG))


def test_what_a_run_logged_and_its_sums(long):
    run = read_run(long)
    assert run.series("eval/accuracy") == [(s, s / LONG) for s in range(1000, LONG + 1, 1000)]
    assert run.total("seconds_update") == LONG / 2
    assert run.metrics.trained == LONG
    assert run.series("entropy") == [(s, entropy(s)) for s in range(1, LONG + 1)]


def test_of_a_resumed_run_the_later_lines_count_however_many_there_are(tmp_path):
    first = [{**line, "entropy": 5.0} for line in rows(LONG)[: LONG // 2]]
    run = read_run(write(tmp_path, [*first, *rows(LONG)[1000:]]))
    repeated = LONG // 2 - 1000
    assert run.notes[0].startswith(f"metrics.jsonl: {repeated} steps were logged twice")
    values = [y for _, y in run.series("entropy")]
    assert values == [5.0] * 1000 + [entropy(s) for s in range(1001, LONG + 1)]


def test_settings_of_any_kind_become_plain_json(tmp_path: Path) -> None:
    config = {"engine": "other", "clip": math.inf, "where": Path("a/b"), "each": [{"lr": math.nan}]}
    describe(tmp_path, finite(config), "the objective", ["pytest", "no-such-package"])
    said = json.loads((tmp_path / "config.json").read_text())
    assert said == {"engine": "other", "clip": None, "where": "a/b", "each": [{"lr": None}]}
    assert (tmp_path / "objective.txt").read_text() == "the objective\n"
    software = json.loads((tmp_path / "versions.json").read_text())
    assert (software["pytest"], software["no-such-package"]) == (version("pytest"), None)
    assert software["torch"] == version("torch")


def test_groups_without_advantage_by_hand():
    """Of three groups one learns, one has equal rewards, and one has advantages in padding only."""
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1], [1, 0], [1, 0]]).bool()
    group, reward = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1.0, 0, 1, 1, 0, 0])
    advantage = torch.tensor([[1.0, 1], [-1, 0], [0, 0], [0, 0], [0, 5], [0, 5]])
    found = credit_metrics(Rollouts(mask, reward, group, torch.zeros(6, 2)), Credit(advantage))
    assert found == {"groups": 3, "zero_advantage_groups": pytest.approx(2 / 3)}
