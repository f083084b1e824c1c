"""What rich prints: its own colours and movements reach the terminal, those in the texts that it is given do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment

from .text import disarmed


class Console(console.Console):
    """A console of rich; no text is read as its markup."""

    def __init__(self, file: Any, **options: Any) -> None:
        # A stream that shows the escapes of everybody else lets ours pass.
        super().__init__(file=getattr(file, "unfiltered", file), markup=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """As rich does, before colours become escapes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(disarmed(segment.text), segment.style)
