"""A bar with the time left, on one line of a terminal; elsewhere nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(count: int, what: str) -> Iterator[Callable[..., None]]:
    """Gives a function of how many of `count` are done, and on request of what now."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    from ..base.console import Console

    console = Console(sys.stderr)
    if not console.is_terminal:
        yield lambda done, now="": None
        return
    name = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1))
    columns = (name, BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        job = bar.add_task(what, total=count)
        yield lambda done, now=what: bar.update(job, completed=done, description=now)
