"""A rich console that escapes control sequences in the texts it prints."""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment

from .text import disarmed


class Console(console.Console):
    """rich's console without markup and emoji."""

    def __init__(self, file: Any, **options: Any) -> None:
        # `cli.streams` escapes all other output; rich's own colours must bypass it.
        super().__init__(file=getattr(file, "unfiltered", file), markup=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """rich's segments with escaped text, before its colours become escape sequences."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(disarmed(segment.text), segment.style)
