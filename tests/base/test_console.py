"""What a terminal would obey is shown, wherever it is quoted from; what rich makes of a table reaches the terminal."""

import io
import sys

import pytest
from rich.table import Table
from rich.text import Text

from tokenpo.base.terminal import Console
from tokenpo.base.text import disarmed
from tokenpo.cli.streams import Outliving, outliving

RED = "\x1b[31mred\x1b[0m \x9b31m \x07 \u202e[bold] [/bold] :smile: \ud800"
SHOWN = r"\x1b[31mred\x1b[0m \x9b31m \x07 \u202e[bold] [/bold] :smile: \ud800"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_printed_escapes_are_shown_and_not_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert disarmed(f"a\tb\r\n{RED}") == f"a\tb\r\n{SHOWN}"
    for name in ("stdout", "stderr"):
        terminal = Terminal()
        monkeypatch.setattr(sys, name, terminal)
        with outliving():
            print(RED, file=getattr(sys, name))
        assert terminal.getvalue() == SHOWN + "\n"


@pytest.mark.parametrize("wrapped", [True, False])
def test_rich_colours_what_it_is_given_and_the_text_colours_nothing(wrapped: bool) -> None:
    terminal = Terminal()
    stream = Outliving(terminal) if wrapped else terminal
    console = Console(stream, force_terminal=True, color_system="standard", highlight=False, width=200)
    table = Table(RED, title=RED)
    table.add_row(Text(RED, style="blue"), style="bold")
    for printed in (table, Text(RED), RED):
        console.print(printed)
    text = terminal.getvalue()
    assert "\x1b[1;34m" in text  # ours: bold and blue
    assert "\x1b[31m" not in text and "\x9b" not in text and "\u202e" not in text
    assert text.count(r"\x1b[31mred\x1b[0m \x9b31m") == 5
    assert text.count("[bold] [/bold] :smile:") == 3  # of a cell rich cuts what it takes for too wide


def test_an_encoding_that_lacks_a_character_gets_its_escape() -> None:
    raw = io.BytesIO()
    stream = Outliving(io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
    stream.write("ĥ ≤ 1 \udcff\n")
    stream.flush()
    assert raw.getvalue() == rb"\u0125 \u2264 1 \udcff" + b"\n"
