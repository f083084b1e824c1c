"""verl on two Ray nodes with two workers each, one of which is killed in mid-run; both nodes are on this machine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from foreign_support import need

need("transfer_queue", "verl's V1 trainer is not installed: no cluster was used")

from engines.verl.support import nodes, run  # noqa: E402
from engines.verl.test_runs import _settings  # noqa: E402
from tokenpo.runs.read import read_run  # noqa: E402

LAST = 5  # steps of the run


def _on(address: str, directory: Path) -> dict[str, Any]:
    """Two nodes with two workers each; a checkpoint after every second step."""
    unset = {f"{plus}ray_kwargs.ray_init.{name}": "null" for plus, name in (
        ("", "num_cpus"), ("+", "num_gpus"), ("+", "object_store_memory"), ("+", "include_dashboard"),
    )}  # fmt: skip
    more = {
        "+ray_kwargs.ray_init.address": address, "trainer.nnodes": 2, "trainer.save_freq": 2,
        "trainer.resume_mode": "auto", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
    }  # fmt: skip
    return _settings(directory, LAST, **unset, **more)


def _kill_one(holder: int, report: Path, killed: list[int]) -> None:
    """Ends the last worker once three steps are recorded."""
    metrics = report / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        time.sleep(0.05)
    killed += nodes.workers(holder)
    os.kill(killed[-1], signal.SIGKILL)


@pytest.mark.slow
def test_a_run_that_lost_a_worker_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The run ends, loudly, with what came after step 2; the same command goes on from there, with what HAPO
    remembered then, and the report has every step once."""
    report = tmp_path / run.documented()["+algorithm.tokenpo.report"]
    killed: list[int] = []
    with nodes.cluster(tmp_path, 2, 2) as (address, holder):
        threading.Thread(target=_kill_one, args=(holder, report, killed), daemon=True).start()
        with pytest.raises(AssertionError, match=r"(?s)^exit code 1: .*Actor(Died|Unavailable)Error"):
            run.main_ppo(_on(address, tmp_path), tmp_path, timeout=500)
    assert len(killed) == 4
    before = read_run(report).metrics.lines
    assert [row["step"] for row in before][:3] == [1, 2, 3] and len(before) < LAST
    remembered = json.loads((tmp_path / "checkpoints" / "global_step_2" / "tokenpo.json").read_text())["memory"]
    (tmp_path / run.SEEN).unlink()
    with nodes.cluster(tmp_path, 2, 2) as (address, _):
        text = run.main_ppo(_on(address, tmp_path), tmp_path, timeout=500)
    assert "setting global step to 2" in text
    after = read_run(report).metrics.lines
    assert [row["step"] for row in after] == [1, 2, 3, 4, 5] and after[:2] == before[:2]
    seen = [json.loads(line) for line in (tmp_path / run.SEEN).read_text().splitlines()]
    assert seen[0]["extra_args"]["tokenpo_pivot"] == remembered[0]["pivot"]
    assert all(abs(row["actor/tokenpo_drift_min"] or 0) < 1e-5 for row in after)
