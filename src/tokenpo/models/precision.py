"""bf16 autocast, on request and on a GPU only."""

from __future__ import annotations

import torch


def precision(device: torch.device | str, autocast: bool) -> torch.autocast:
    """A context for forward passes; it changes nothing on a CPU."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast and kind != "cpu")
