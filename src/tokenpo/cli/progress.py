"""A progress bar with the time left, on one line of a terminal; nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(count: int, what: str) -> Iterator[Callable[..., None]]:
    """Yields a function that shows how many of `count` are done, and optionally the name of the current one."""
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
