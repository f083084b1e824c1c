"""The pages that the site shows in frames, drawn from the numbers that the repository keeps."""

import dataclasses
from pathlib import Path

from tokenpo.lab.explain import page as explain_page
from tokenpo.lab.explain.explanation import explain_all
from tokenpo.records import read
from tokenpo.train.recipe.command_line import parse_entries

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDED = "rollouts.jsonl"
METHODS = "dapo,gtpo,tr_grpo,forking_tokens"
RESPONSES = 4


def pages() -> dict[str, str]:
    """Name -> page, each one file that loads nothing."""
    recording = dataclasses.replace(read(DOCS / RECORDED), source=f"docs/{RECORDED}")
    explained = explain_all(recording, parse_entries(METHODS), 0.8)
    return {"explain": _tokens(explain_page.render(explained, RESPONSES))}


def _tokens(page: str) -> str:
    """The page from its tokens on: a frame that is opened at an anchor would scroll the page around it."""
    before, body, page = page.partition("<body>")
    _, browser, tokens = page.partition('<section class="browser"')
    assert body and browser
    return f"{before}{body}\n<main>\n{browser}{tokens}"
