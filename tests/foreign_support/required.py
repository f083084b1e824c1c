"""Foreign packages: where they are missing their tests are skipped, or fail if the lane was set up to have them."""

import importlib
import os
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REQUIRED = "TOKENPO_REQUIRE_FOREIGN"


def need(module: str, reason: str) -> Any:
    """The foreign module. Without it the calling test file is skipped for this reason.

    Raises:
        ImportError: it is missing or broken, and the environment sets TOKENPO_REQUIRE_FOREIGN to 1.
    """
    if os.environ.get(REQUIRED) == "1":
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=reason)


def absent(conftest: str, module: str, besides: Collection[str] = ()) -> list[str]:
    """The test files beside a conftest.py that need a foreign module, for its `collect_ignore`: none where it is there.

    Raises:
        ImportError: it is missing, and the environment sets TOKENPO_REQUIRE_FOREIGN to 1.
    """
    if find_spec(module) is not None:
        return []
    if os.environ.get(REQUIRED) == "1":
        raise ImportError(f"{module} is missing, and this lane was set up to have it")
    return [file.name for file in Path(conftest).parent.glob("test_*.py") if file.name not in besides]
