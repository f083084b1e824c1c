"""What a command needs installed."""

from __future__ import annotations

from ..base.errors import TokenPOError


def need_engine() -> None:
    """Raises TokenPOError with the remedy where the embedded engine's packages are missing."""
    need("pydantic", "rich", "transformers", "safetensors")


def need(*packages: str) -> None:
    """Raises TokenPOError with the remedy where packages of the extra `train` are missing."""
    from importlib.util import find_spec

    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise TokenPOError(f"this command needs {', '.join(missing)}: pip install 'tokenpo[train]'")
