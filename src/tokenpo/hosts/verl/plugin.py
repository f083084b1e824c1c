"""The plug-in that verl loads in every process during its own import, through the entry-point group `verl.plugins`.

Each action waits until the module that it changes is imported. verl logs a plug-in's exceptions at DEBUG level only, so
ours are printed.
"""

# pyright: reportMissingImports=false
import functools
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import wrapt

from ...base.errors import Unsupported


def after_import(module: str, action: Callable[[], object]) -> None:
    """Calls `action` after `module` is imported, or now if it already is; prints the traceback if it fails."""

    def loudly(*_: Any) -> None:
        try:
            action()
        except BaseException:
            print("tokenpo: the plug-in for verl failed, so tokenpo is NOT active in this process:", file=sys.stderr)
            traceback.print_exc()
            raise

    wrapt.register_post_import_hook(loudly, module)


def trainers() -> None:
    """Registers our trainer, and makes verl's own trainers reject a config with algorithm.tokenpo."""
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    for mode, stock in list(TRAINER_REGISTRY.items()):
        # Our trainer and its subclasses have an `objective`. Our class may be half imported here.
        if not (issubclass(stock, _Guard) or hasattr(stock, "objective")):
            TRAINER_REGISTRY[mode] = type(stock.__name__, (_Guard, stock), {"__module__": stock.__module__})
    from . import trainer  # noqa: F401


class _Guard:
    def __init__(self, config: Any) -> None:
        if config.algorithm.get("tokenpo") is not None:
            mode = config.trainer.v1.trainer_mode
            raise Unsupported(
                f"algorithm.tokenpo is set, but trainer.v1.trainer_mode={mode} starts verl's own trainer, which knows "
                "nothing of it: set trainer.v1.trainer_mode=tokenpo, which is synchronous"
            )
        _checked(config, stale=config.trainer.v1.trainer_mode != "sync")
        super().__init__(config)  # type: ignore[call-arg]


def separated() -> None:
    """Makes verl's one-step-off and fully asynchronous trainers check our losses before they start their workers."""

    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    begin = SeparateRayPPOTrainer._create_worker_classes

    def checked(trainer: Any) -> None:
        _checked(trainer.config, stale=True)
        begin(trainer)

    SeparateRayPPOTrainer._create_worker_classes = checked


def _checked(config: Any, *, stale: bool) -> None:
    from . import registries

    for used in registries.check(config, stale=stale):
        print(f"tokenpo is active in verl's own trainer: {used}")


after_import("verl.trainer.ppo.v1", trainers)
after_import("verl.trainer.ppo.core_algos", lambda: import_module(".registries", __package__).register())
after_import("verl.experimental.agent_loop", functools.partial(import_module, ".temperature", __package__))  # our loop
after_import("verl.experimental.separation.ray_trainer", separated)
