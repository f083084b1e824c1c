"""The names in the column "TRL" of docs/metrics.md are names that TRL logs."""

import re
from pathlib import Path

import transformers.trainer as transformers_trainer

from foreign_support.required import need

trl = need("trl", "TRL is not installed: its metric names were not checked")


def test_trl_logs_these_names() -> None:
    """Read in the source, which logs `_metrics[mode]["name"]`; three names are the base trainer's `logs["name"]`."""
    own = (Path(trl.__file__).parent / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    base = Path(transformers_trainer.__file__).read_text(encoding="utf-8")
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = [row.split("|") for row in page.splitlines() if row.startswith("| `") and row.count("|") == 6]
    names = {name for row in cells for name in re.findall(r"`([^`]+)`", row[2])}
    missing = {name for name in names if f'_metrics[mode]["{name}"]' not in own and f'logs["{name}"]' not in base}
    assert len(names) > 10 and not missing, f"TRL {trl.__version__} no longer logs {missing}"
