"""Every micro-batch of a run by our trainer and by TRL's own loss, where a setting of TRL's takes a trainer to show."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trl_support import run_script
from trl_support.beside_cases import TRLS, TRLS_TWO

CLIPPED = {f"clip_ratio/{name}" for name in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")}
CASES = {1: TRLS, 2: TRLS_TWO}


@pytest.fixture(scope="module")
def ran(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Where the records of each rank are; all cases of a number of processes run at once."""

    @functools.cache
    def directory(processes: int) -> Path:
        out = tmp_path_factory.mktemp("beside")
        (out / "cases.json").write_text(json.dumps([case | {"model": str(model_dir)} for case in CASES[processes]]))
        run_script("beside_run.py", out / "cases.json", out, processes=processes)
        return out

    return directory


@pytest.mark.parametrize(
    ("processes", "case"),
    [pytest.param(n, case, id=f"{n}-{case['name']}") for n, cases in CASES.items() for case in cases],
)
def test_both_ways_are_the_same_numbers(processes: int, case: dict[str, Any], ran: Callable) -> None:
    files = [ran(processes) / f"{case['name']}-rank{rank}.json" for rank in range(processes)]
    ranks = [json.loads(file.read_text()) for file in files]
    for records in ranks:
        _is_trls(case, records)
    assert processes == 1 or ranks[0] != ranks[1]


def _is_trls(case: dict[str, Any], records: list[dict[str, Any]]) -> None:
    schedule, settings = case["schedule"], case["settings"]
    all_truncated = case["name"] == "trls-all-truncated"
    assert len(records) == schedule["max_steps"] * schedule["gradient_accumulation_steps"]
    for number, seen in enumerate(records):
        ours, theirs = seen["loss"]
        # Two passes over the same weights in float32, and terms that cancel.
        assert ours == pytest.approx(theirs, rel=2e-5, abs=1e-6), f"loss of micro-batch {number}"
        apart, norm = seen["gradient"]
        assert apart <= 1e-5 * norm + 1e-7, f"gradient of micro-batch {number}: {apart} of {norm}"
        # Of no token TRL shows 0, and ours NaN.
        alike = set() if all_truncated else {"entropy", "kl"} | CLIPPED
        assert {"entropy"} | ({"kl"} if "beta" in settings else set()) <= set(seen["metrics"])
        for name in alike & set(seen["metrics"]):
            expected, found = seen["metrics"][name]
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-5, nan_ok=True), f"{name} of micro-batch {number}"
        # Deviations of at least 1/3, to which TRL adds 1e-4 and ours 1e-6.
        assert seen["credit"] <= 3e-4 * seen["advantage"] + 1e-6, f"credit of micro-batch {number}"
    if all_truncated:
        assert not any(seen["gradient"][1] for seen in records)
        return
    assert any(seen["gradient"][1] > 1e-2 for seen in records), "no gradient to compare"
    assert any(seen.get("moved", 0) > 0.3 for seen in records), "the policy never moved"
    if "beta" in settings:
        assert any(seen["away"] > 0.3 for seen in records), "the policy never left the reference"
    if "ends" in case:
        assert any(seen["empty"] for seen in records), "nothing was truncated"
    if case.get("served"):
        assert {seen["bounded"] for seen in records} != {0}, "no bound of the correction was met"
