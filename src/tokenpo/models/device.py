"""Where a model computes."""

from __future__ import annotations

import torch


def resolve_device(name: str) -> str:
    """The device that a setting names; "auto" is cuda where there is one."""
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
