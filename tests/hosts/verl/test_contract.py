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
