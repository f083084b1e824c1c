"""TensorBoard as an option; the metrics themselves are JSON lines (tokenpo.jsonl)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import Unsupported


class TensorBoard:
    """Scalars of each step as an event file in RUN/tensorboard."""

    def __init__(self, directory: Path, purge_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise Unsupported("output.tensorboard needs a package: pip install tokenpo[track]") from error
        self._writer = SummaryWriter(str(directory / "tensorboard"), purge_step=purge_step)

    def write(self, record: Mapping[str, float]) -> None:
        for name, value in record.items():
            if name != "step":
                self._writer.add_scalar(name, value, int(record["step"]))

    def close(self) -> None:
        self._writer.close()
