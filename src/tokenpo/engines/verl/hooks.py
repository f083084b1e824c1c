"""Something to do once a module of verl has been imported.

verl loads its plug-ins in the middle of its own import and in every process: importing its trainer there would be
circular, and would cost each worker seconds that it does not need.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _After(MetaPathFinder):
    """Finds what the others find, and runs an action after that module."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self.module, self.action, self.searching = module, action, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self.action)
        return spec


class _Then(Loader):
    def __init__(self, inner: Loader, action: Callable[[], None]) -> None:
        self.inner, self.action = inner, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The rest of the import machinery, pickling of classes included, sees the module's own loader.
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        module.__loader__ = self.inner
        self.inner.exec_module(module)
        self.action()


def after_import(module: str, action: Callable[[], None]) -> None:
    """Runs `action` once `module` has been executed: now, where it has been."""
    if module in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _After(module, action))
