"""Print lists in columns; the text of the last column is wrapped to the terminal."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

UNSEEN = 10_000  # characters of a line, without a terminal
LEAST = 20  # characters of the last column, however narrow the terminal is


def print_list(rows: Sequence[Sequence[str]]) -> None:
    """Prints the rows; without a terminal each is one line, so that a pipe can search it, unless COLUMNS is set."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    seen = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns - 1 if seen else UNSEEN
    for *cells, words in rows:
        begin = "".join(f"{cell:<{size}}  " for cell, size in zip(cells, wide, strict=True))
        room, indent = max(width, len(begin) + LEAST), " " * len(begin)
        print(textwrap.fill(words, room, initial_indent=begin, subsequent_indent=indent, break_on_hyphens=False))
