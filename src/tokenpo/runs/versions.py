"""The software that a result depends on."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "tokenpo",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "peft",
    "reasoning-gym",
    "math-verify",
)


def versions(*more: str) -> dict[str, Any]:
    """Python, the machine, the packages and the commit of this one where it is a clone; None for what is not there.

    Args:
        more: distributions beside those that every run depends on.
    """
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    found["commit"] = commit(Path(__file__).parents[1])
    return found


@functools.cache
def commit(package: Path) -> str | None:
    """The commit of the clone that a package runs from, and whether files differ from it; None where it is installed.

    A repository around an environment that the package is installed in says nothing of the package.
    """

    def git(*words: str) -> str:
        ran = subprocess.run(["git", "-C", package, *words], capture_output=True, text=True, timeout=10, check=True)
        return ran.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / package.name != package.resolve():
            return None
        return git("rev-parse", "HEAD") + (" and changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
