"""README's script for TRL runs as it is written there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from foreign_support import need

need("trl", "TRL is not installed: README's script for it was not run")

README = Path(__file__).parents[3] / "README.md"


def test_the_script_of_the_readme_trains(tmp_path: Path) -> None:
    section = README.read_text(encoding="utf-8").partition("## In TRL")[2].partition("\n## ")[0]
    [script] = re.findall(r"^```py\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (tmp_path / "runs/trl-hapo/tokenpo/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]  # rollout batches, of four updates each
