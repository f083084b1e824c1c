"""The names under which our metrics go to trackers are names that TRL logs."""

from pathlib import Path

import transformers.trainer as transformers_trainer

from foreign_support.required import need
from tokenpo.train.run.trackers import TRL

trl = need("trl", "TRL is not installed: its metric names were not checked")


def test_trl_logs_these_names() -> None:
    """Read in the source, which logs `_metrics[mode]["name"]`; three names are the base trainer's `logs["name"]`."""
    own = (Path(trl.__file__).parent / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    base = Path(transformers_trainer.__file__).read_text(encoding="utf-8")
    missing = {
        name for name in TRL.values() if f'_metrics[mode]["{name}"]' not in own and f'logs["{name}"]' not in base
    }
    assert not missing, f"TRL {trl.__version__} no longer logs {missing}: mend the table in tokenpo.train.run.trackers"
