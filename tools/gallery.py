"""The gallery of methods: one card each, found by what it changes, what it needs, where it was read, where it runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import docs
import family
from markupsafe import Markup

from tokenpo.methods import METHODS, method, paper

DOCS = Path(__file__).resolve().parents[1] / "docs"
TABLE = re.compile(r"^\| method \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
PARITY = re.compile(r"^\| \[`(\w+)`\][^|]*\|(.*)\|$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A method as a card: `facts` are (kind, value), which the filters choose by."""

    name: str
    summary: str
    picture: str
    facts: tuple[tuple[str, str], ...]


def in_place_of_the_table(page: str) -> str:
    """The page of all methods with cards where its table stands."""
    shown = [_shown(name) for name in METHODS]
    return TABLE.sub(
        lambda _: f'{_filters(shown)}\n\n{_cards(shown)}\n\n<script src="../assets/gallery.js"></script>', page
    )


def _shown(name: str) -> Shown:
    objective, base = method(name), method(family.BASE)
    changed = family.group(objective, base)
    read = paper(name).provenance.split(" + ")
    facts = [
        ("changes", family.TITLES[changed][0].lower()),
        *(("needs", need) for need in sorted(objective.needs) or ["nothing more"]),
        *(("read in", where) for where in read),
        *(("runs in", engine) for engine in _engines().get(name, ("embedded",))),
    ]
    picture = next((f"{name}{end}" for end in (".svg", ".png") if (DOCS / "methods" / f"{name}{end}").exists()), "")
    return Shown(name, docs.summary(name), picture, tuple(facts))


def _engines() -> dict[str, tuple[str, ...]]:
    """Method -> the engines that the page of parity shows it in."""
    page = (DOCS / "parity.md").read_text(encoding="utf-8")
    found = {}
    for name, cells in PARITY.findall(page):
        embedded, trl, verl, *_ = (cell.strip() != "refused" for cell in cells.split("|"))
        runs = (("embedded", embedded), ("TRL", trl), ("verl", verl))
        found[name] = tuple(engine for engine, here in runs if here)
    return found


def _filters(shown: list[Shown]) -> str:
    groups = Markup("\n").join(_filter(kind, shown) for kind in dict.fromkeys(k for s in shown for k, _ in s.facts))
    return Markup(
        '<form class="filters" role="search" aria-label="Methods">\n'
        '<label class="find">Find <input type="search" name="text" autocomplete="off"></label>\n'
        '{groups}\n<p><output>{count} methods</output> <button type="reset">Show all</button></p>\n</form>'
    ).format(groups=groups, count=len(shown))


def _filter(kind: str, shown: list[Shown]) -> Markup:
    counts: dict[str, int] = {}
    for k, value in (fact for s in shown for fact in s.facts):
        if k == kind:
            counts[value] = counts.get(value, 0) + 1
    boxes = (
        Markup('<label><input type="checkbox" name="{k}" value="{v}">{v} <small>{n}</small></label>').format(
            k=kind, v=value, n=n
        )
        for value, n in counts.items()
    )
    return Markup("<fieldset><legend>{kind}</legend>{boxes}</fieldset>").format(
        kind=kind, boxes=Markup(" ").join(boxes)
    )


def _cards(shown: list[Shown]) -> str:
    return Markup('<div class="gallery">\n{cards}\n</div>').format(cards=Markup("\n").join(map(_card, shown)))


def _card(shown: Shown) -> Markup:
    picture = Markup('<img src="{0}" alt="" loading="lazy">').format(shown.picture) if shown.picture else ""
    facts = "\n".join(f"{kind}={value}" for kind, value in shown.facts)
    return Markup(
        '<a class="method" href="{n}.html" data-facts="{facts}"><b>{n}</b>{picture}<span>{summary}</span></a>'
    ).format(n=shown.name, facts=facts, picture=picture, summary=shown.summary)
