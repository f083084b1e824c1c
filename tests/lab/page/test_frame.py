"""The frame of every page: one link home where the package's metadata names an address, else none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from page_tree import read_html
from tokenpo.lab.page import frame


@pytest.fixture(autouse=True)
def asked_again() -> Iterator[None]:
    frame.home.cache_clear()
    yield
    frame.home.cache_clear()


def brand(folder: Path) -> tuple[list[str], str]:
    (folder / "page.html").write_text('{% extends "shell.html" %}{% block kind %}report{% endblock %}')
    tree = read_html(frame.render(folder / "page.html", "title"))
    (top,) = (p for p in tree.all("p") if p.classes == ["brand"])
    return [a["href"] for a in tree.all("a")], top.text


def test_the_name_leads_to_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Message()
    named["Project-URL"] = "Homepage, https://example.org/"
    named["Project-URL"] = 'Documentation, https://example.org/docs?a=1&b="2"'
    monkeypatch.setattr(frame, "metadata", lambda name: named)
    assert brand(tmp_path) == (['https://example.org/docs?a=1&b="2"'], "tokenpo report")


def test_a_page_has_no_colour_that_it_does_not_read(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('{% extends "shell.html" %}{% block kind %}report{% endblock %}')
    (tmp_path / "page.css").write_text(":root { --mine: #123; --idle: #456; }\n.a { color: var(--mine); }")
    style = read_html(frame.render(tmp_path / "page.html", "title", rules=[".b{color:var(--d3)}"])).one("style").text
    declared, read = re.findall(r"(--[\w-]+):", style), re.findall(r"var\((--[\w-]+)", style)
    assert set(declared) == set(read) >= {"--mine", "--d3", "--ink"} and declared.count("--d3") == 2
    assert ".a { color: var(--mine); }" in style
