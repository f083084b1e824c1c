"""The device and the precision of a model's computation."""

import torch


def resolve_device(name: str) -> str:
    """The device that a setting names; "auto" is cuda if there is one, else cpu."""
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def precision(device: torch.device | str, autocast: bool) -> torch.autocast:
    """bf16 autocast for forward passes if `autocast`, but never on a CPU."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast and kind != "cpu")
