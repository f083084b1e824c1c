"""Conversion of packed rows [S, ...], concatenated without padding as hosts do it, to padded ones [N, T, ...]."""

import torch
from torch import Tensor


def inside(lengths: Tensor) -> Tensor:
    """[N, T] bool, true on the first `lengths` [N] places of each row; T is the longest row."""
    return torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]


def unpacked(values: Tensor, places: Tensor) -> Tensor:
    """[N, T, ...] with `values` [S, ...] at the true `places` [N, T], row by row, and zeros elsewhere; keeps the graph.

    Raises:
        RuntimeError: the number of values is not the number of places.
    """
    out = values.new_zeros(*places.shape, *values.shape[1:])
    out[places] = values
    return out
