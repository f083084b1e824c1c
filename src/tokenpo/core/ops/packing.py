"""Rows of unequal length: one after the other without padding [S, ...], as hosts pack them, and with it [N, T, ...]."""

import torch
from torch import Tensor


def inside(lengths: Tensor, width: int | None = None) -> Tensor:
    """[N, T] bool: the places of rows with these lengths [N]; T is `width`, or the longest."""
    columns = torch.arange(int(lengths.max()) if width is None else width, device=lengths.device)
    return columns < lengths[:, None]


def unpacked(values: Tensor, places: Tensor) -> Tensor:
    """[N, T, ...] with `values` [S, ...] at the `places` [N, T] (bool), row by row, with their graph; zeros elsewhere.

    Raises:
        RuntimeError: there are more or fewer values than places.
    """
    out = values.new_zeros(*places.shape, *values.shape[1:])
    out[places] = values
    return out


def packed(x: Tensor, places: Tensor) -> Tensor:
    """[S, ...]: what `x` [N, T, ...] has at the `places` [N, T] (bool), row by row, with its graph."""
    return x[places]
