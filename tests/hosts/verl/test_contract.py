"""Private surfaces of verl that the adapter uses; a failure names what moved. Whole runs use the rest."""

import inspect
import subprocess
import sys
from importlib.metadata import version

from verl.trainer.ppo.v1 import PPOTrainerSync

import tokenpo.hosts.verl.plugin  # noqa: F401 - where the package is on the path but not installed
from tokenpo.hosts.verl.trainer import TokenPOTrainer

NEW = {"objective", "send_loss", "_plan", "_observed", "_current", "_check"}  # of our trainer alone


def test_our_trainer_overrides_what_verls_has() -> None:
    overridden = {name: x for name, x in vars(TokenPOTrainer).items() if inspect.isfunction(x) and name not in NEW}
    for name, ours in overridden.items():
        theirs = getattr(PPOTrainerSync, name, None)
        assert theirs is not None, f"verl {version('verl')}: PPOTrainerSync.{name} is gone, trainer.py overrides it"
        found, expected = (list(inspect.signature(method).parameters) for method in (theirs, ours))
        assert found == expected, f"verl {version('verl')}: PPOTrainerSync.{name} takes {found}, not {expected}"


def test_the_trainer_can_be_imported_first() -> None:
    """verl loads the plug-in in the middle of that import, when there is no trainer to register yet."""
    code = (
        "import tokenpo.hosts.verl.plugin, tokenpo.hosts.verl.trainer as ours\n"
        "from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY as known\n"
        "assert known['tokenpo'] is ours.TokenPOTrainer\n"
        "guarded = [mode for mode, kind in known.items() if '_Guard' in str(kind.__mro__)]\n"
        "assert sorted(guarded) == ['colocate_async', 'separate_async', 'sync'], guarded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "NOT active" not in done.stderr, done.stderr


def test_metrics_are_reduced_by_name() -> None:
    from verl.utils.metric import Metric, reduce_metrics

    assert reduce_metrics({"a": [1.0, 3.0], "b_min": [1.0, 3.0]}) == {"a": 2.0, "b_min": 1.0}
    # Two ranks of two micro-batches each: the mean over ranks of the sum over micro-batches, (3 + 7) / 2.
    ranks = [Metric("sum", first) for first in (1.0, 3.0)]
    for rank, second in zip(ranks, (2.0, 4.0), strict=True):
        rank.append(second)
    assert Metric.aggregate_dp(ranks) == 5.0
