"""Where a model computes, and in which precision."""

from __future__ import annotations

import torch


def resolve_device(name: str) -> str:
    """The device that a setting names; "auto" is cuda where there is one."""
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def precision(device: torch.device | str, autocast: bool) -> torch.autocast:
    """bf16 autocast for forward passes, on request and never on a CPU."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast and kind != "cpu")
