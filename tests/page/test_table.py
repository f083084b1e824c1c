"""A table says the same in a terminal and on a page, and no text in it becomes markup in either."""

from __future__ import annotations

import io

from hostile import HOSTILE
from page_laws import skeleton
from page_tree import read_html
from tokenpo.page.frame import render
from tokenpo.page.table import Cell, Row, Table, print_parts

TEMPLATE = (
    '{% extends "shell.html" %}{% from "table.html" import table %}{% block main %}{{ table(it, "x") }}{% endblock %}'
)


def table(text: str) -> Table:
    rows = [
        Row(text, [Cell(text), Cell(text, note=text)], apart=True),
        Row("b", [Cell("1"), Cell("2", kind="decided")]),
    ]
    return Table([text, text, "verdict"], rows, title=text, words=True, foot=[Cell(text)])


def test_every_text_of_a_table_stays_text(tmp_path):
    (tmp_path / "page.html").write_text(TEMPLATE)
    mild, *wild = (
        read_html(render(tmp_path / "page.html", "title", it=table(text)))
        for text in ("plain", *(text for text in HOSTILE if text.isprintable()))
    )
    for tree, text in zip(wild, (text for text in HOSTILE if text.isprintable()), strict=True):
        assert skeleton(tree) == skeleton(mild)
        head, *rows = tree.one("table", "x").all("tr")
        assert [th.text for th in head.all("th")] == [text.strip(), text.strip(), "verdict"]
        assert [rows[0].one("th").text, rows[0].one("small").text] == [text.strip()] * 2
        assert rows[0].classes == ["apart"] and rows[1].all("td")[1].classes == ["decided"]


def test_a_terminal_prints_what_a_page_shows():
    stream = io.StringIO()
    print_parts([table("[bold]x"), "[red]then"], stream)
    lines = stream.getvalue().splitlines()
    assert lines[0].split() == ["[bold]x"] and lines[-1] == "[red]then"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert cells == [["[bold]x", "[bold]x", "[bold]x"], ["", "", "[bold]x"], ["b", "1", "2"]]


def test_a_file_is_as_wide_as_the_table_needs():
    stream = io.StringIO()
    wide = Table([f"{i:09}" for i in range(20)], [Row("a", [Cell("1")] * 19)])
    print_parts([wide], stream, framed=False, least=300)
    assert max(map(len, stream.getvalue().splitlines())) > 200 and "…" not in stream.getvalue()
