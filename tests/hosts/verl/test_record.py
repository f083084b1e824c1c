"""What the driver records of a run, and `tokenpo report` reads."""

from pathlib import Path

import numpy as np
import pytest
import torch

from run_views import lines
from tokenpo.hosts.verl.record import ZERO, Record
from tokenpo.records.run import read_run


def test_metrics_have_the_reports_names(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.log(1, {"critic/score/mean": 0.25, "actor/entropy": 0.5, "val-core/dial_sum/acc/mean@8": 0.4, "odd": "text"})
    several = {"odd/tensor": torch.arange(2.0), "odd/array": np.arange(3), "odd/texts": np.array(["a", "b"])}
    record.log(2, {"critic/score/mean": np.float32(0.5), "response_length/mean": torch.tensor([7.0]), **several})
    run = read_run(tmp_path)
    assert run.series("reward") == [(1, 0.25), (2, 0.5)]
    assert run.series("eval/avg") == [(1, 0.4)] and run.series("eval/k") == [(1, 8)]
    assert run.series("length") == [(2, 7.0)] and not any(name.startswith("odd") for name in lines(tmp_path)[1])


def test_a_greedy_validation_is_the_accuracy_and_several_data_sets_have_none(tmp_path: Path) -> None:
    record = Record(tmp_path, greedy=True)
    record.log(1, {"val-core/mine/acc/mean@1": 0.4})
    record.log(2, {"val-core/mine/acc/mean@1": 0.4, "val-core/theirs/acc/mean@1": 0.2})
    first, second = lines(tmp_path)
    assert first["eval/accuracy"] == 0.4 and not any(name.startswith("eval/") for name in second)


def test_a_fresh_run_moves_anothers_record_aside_and_a_resumed_one_cuts_it(tmp_path: Path) -> None:
    path = tmp_path / "report"
    (path / "data").mkdir(parents=True)
    first = Record(path, 0, {"method": {"name": "grpo"}}, "objective grpo")
    for step in (1, 2, 3):
        first.log(step, {"critic/score/mean": step / 4})
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')  # killed in the middle of a line
    resumed = Record(path, 2, {}, "objective grpo")
    resumed.log(3, {"critic/score/mean": 1.0})
    assert read_run(path).series("reward") == [(1, 0.25), (2, 0.5), (3, 1.0)]
    fresh = Record(path, 0, {"method": {"name": "tepo"}}, "objective tepo")
    fresh.log(1, {"critic/score/mean": 0.0})
    assert read_run(path).series("reward") == [(1, 0.0)]
    assert len(lines(tmp_path / "report.1")) == 3
    assert read_run(tmp_path / "report.1").objective.startswith("objective grpo")
    assert (path / "data").is_dir() and not (tmp_path / "report.1" / "data").exists()


def test_a_run_that_learns_nothing_says_so_by_verls_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = Record(tmp_path)
    for step in (1, 2, 3, 4):
        record.log(step, {"critic/score/mean": 0.0, ZERO: 1.0, "actor/ppo_kl": 0.7 if step == 2 else 0.0})
    first, second = caplog.messages
    assert first.startswith("warning: step 2: the KL of a step")
    assert second.startswith("warning: step 3: the reward of every response was 0 in the first 3 batches")
    record.warn()
    assert caplog.messages == caplog.messages[:2] * 2
