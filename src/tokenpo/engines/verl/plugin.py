"""What verl loads in every process, through the entry-point group `verl.plugins`.

verl logs the exceptions of a plug-in at DEBUG only, where nobody reads them: ours are printed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from .hooks import after_import


def _loudly(action: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            action()
        except BaseException:
            print("tokenpo: the plug-in for verl failed, so tokenpo is NOT active in this process:", file=sys.stderr)
            traceback.print_exc()
            raise

    return run


@_loudly
def _register() -> None:
    from . import register

    register.trainers()


@_loudly
def _register_loop() -> None:
    from . import agent_loop  # noqa: F401 - registers itself


@_loudly
def _refuse_legacy() -> None:
    from ...base.errors import Unsupported

    if any("algorithm.tokenpo" in word for word in sys.argv):
        raise Unsupported(
            "algorithm.tokenpo is set, but trainer.use_v1=False starts verl's legacy trainer, which knows nothing of "
            "it: set trainer.use_v1=True"
        )


after_import("verl.trainer.ppo.v1", _register)
after_import("verl.experimental.agent_loop", _register_loop)
after_import("verl.trainer.main_ppo_v0", _refuse_legacy)
