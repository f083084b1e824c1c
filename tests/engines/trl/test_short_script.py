"""The short script of docs/trl.md runs as it is written there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from foreign_support import need

need("trl", "TRL is not installed: the script of docs/trl.md was not run")

PAGE = Path(__file__).parents[3] / "docs" / "trl.md"


def test_the_short_script_trains(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## In short")[2].partition("\n## ")[0]
    [script] = re.findall(r"^```py\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (tmp_path / "runs/trl-hapo/tokenpo/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [step["step"] for step in steps] == [1, 2]  # rollout batches, of four updates each
    assert any(step["zero_advantage_groups"] < 1 for step in steps)  # else nothing is learnt, and the loss is 0
