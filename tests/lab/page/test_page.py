"""The frame of every page, and tables: the same in a terminal and on a page; no text of either becomes markup."""

import io

import pytest

from hostile import HOSTILE
from page_laws import skeleton
from page_tree import read_html
from tokenpo.lab.page.frame import render
from tokenpo.lab.page.text import Cell, Row, Table, print_parts

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


@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("columns", [60, 120])
def test_no_table_is_wider_than_the_terminal_and_no_word_of_it_is_cut(columns, framed, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ["wandering fork", "sure filler", "0.123", "±0.00026", "+0.0123 to +0.0456"]
    rows = [Row(f"method{i}", [Cell(words[(i + j) % 5], "J 0.819") for j in range(4)]) for i in range(3)]
    stream = io.StringIO()
    print_parts([Table(["name", *words[:4]], rows, "its title")], stream, framed=framed)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= columns and "…" not in text
    assert text.count("0.819") == 3 * 4
    assert sum(text.count(word) for word in ("wandering", "0.00026", "0.0456")) == 3 * 3
