"""The gallery of methods: one card each, found by what it changes, what it needs, where it was read, where it runs."""

import dataclasses
import re
from collections import Counter
from pathlib import Path

import docs
import family
from fingerprint.drawing import HEIGHT, LEFT, WIDTH
from markupsafe import Markup

from tokenpo.methods import METHODS, method, paper
from tokenpo.methods.families import family as kind

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLE = re.compile(r"^### .*?(?=\n\n## )", re.MULTILINE | re.DOTALL)
# A method in the picture of the family: where its name stands, its name, its panels.
FINGERPRINT = re.compile(r'<text class="n" x="([\d.]+)" y="([\d.]+)">(\w+)</text>\n((?:<g transform=.*\n)*)')
KEY = """\
In a card are the panels in which a method differs most from `grpo`, whose lines are grey: how hard it pushes a token of
a right response (blue) and of a wrong one (orange), over one fact of the token. [The
family](../family.md#how-hard-each-method-pushes-a-token) says how they are computed."""
PARITY = re.compile(r"^\| (\[`[^|]*)\|(.*)\|$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A method as a card: `facts` are (kind, value), which the filters choose by."""

    name: str
    summary: str
    facts: tuple[tuple[str, str], ...]


def in_place_of_the_table(page: str) -> str:
    """The page of all methods with cards where its table stands."""
    shown = [_shown(name) for name in METHODS]
    parts = (KEY, _filters(shown), _cards(shown), '<script src="../assets/gallery.js"></script>')
    return TABLE.sub(lambda _: "\n\n".join(parts), page)


def fingerprints() -> dict[str, str]:
    """Method -> its panels in the picture of the family, at least two wide: a card has no room for all that it has."""
    picture = (DOCS / "family.svg").read_text(encoding="utf-8")
    style = picture[picture.index("<style>") : picture.index("</style>") + 8]
    clip = picture[picture.index("<clipPath") : picture.index("</clipPath>") + 11]
    found = {}
    for x, y, name, panels in FINGERPRINT.findall(picture):
        # `draw_family` puts the name 16 left of the panels' origin and 14 below their top.
        left, top, wide = (
            float(x) + 16 - LEFT,
            float(y) - 14 + family.HEAD,
            LEFT + WIDTH * max(2, panels.count("<g transform")),
        )
        found[name] = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {top:g} {wide} {HEIGHT}">{style}{clip}'
            f'<path class="p" d="M{left:g} {top:g}h{wide}v{HEIGHT}h-{wide}Z"/>{panels}</svg>\n'
        )
    assert list(METHODS) == [name for name in METHODS if name in found], "a method has no picture: make docs"
    return found


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
    return Shown(name, docs.summary(name), tuple(facts))


def _engines() -> dict[str, tuple[str, ...]]:
    """Method -> the engines that the page of parity shows it in."""
    page = (DOCS / "parity.md").read_text(encoding="utf-8")
    found: dict[str, tuple[str, ...]] = {}
    for names, cells in PARITY.findall(page):
        embedded, trl, verl, *_ = (cell.strip() != "rejected" for cell in cells.split("|"))
        runs = (("embedded", embedded), ("TRL", trl), ("verl", verl))
        found |= dict.fromkeys(re.findall(r"\[`(\w+)`\]", names), tuple(engine for engine, here in runs if here))
    return found


def _filters(shown: list[Shown]) -> str:
    groups = Markup("\n").join(_filter(kind, shown) for kind in dict.fromkeys(k for s in shown for k, _ in s.facts))
    return Markup(
        '<form class="filters" role="search" aria-label="Methods">\n'
        '<label class="find">Find <input type="search" name="text" autocomplete="off"></label>\n'
        '{groups}\n<p><output>{count} methods</output> <button type="reset">Show all</button></p>\n</form>'
    ).format(groups=groups, count=len(shown))


def _filter(kind: str, shown: list[Shown]) -> Markup:
    counts = Counter(value for s in shown for k, value in s.facts if k == kind)
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
    facts = "\n".join(f"{kind}={value}" for kind, value in shown.facts)
    return Markup(
        '<a class="method" href="{page}.html#{n}" data-facts="{facts}"><b>{n}</b><span>{summary}</span>'
        '<img src="../assets/fingerprints/{n}.svg" alt="" loading="lazy"></a>'
    ).format(n=shown.name, page=kind(shown.name), facts=facts, summary=shown.summary)
