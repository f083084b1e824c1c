"""Reads a page of this package back as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "input", "br", "img", "link", "base", "embed", "hr", "source"}
# The page leaves out the end tags of tables: the tag on the left ends these.
IMPLIED = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}, "tbody": {"td", "th", "tr", "thead"}}
IMPLIED["tfoot"] = IMPLIED["tbody"] | {"tbody"}


@dataclass
class Node:
    """An element; `inside` mixes child elements and text."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    inside: list[Node | str] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[Node]:
        """Every element below, in document order."""
        for child in self.inside:
            if isinstance(child, Node):
                yield child
                yield from child

    def all(self, tag: str, name: str | None = None) -> list[Node]:
        """Elements of a tag, with a class if `name` is given."""
        return [node for node in self if node.tag == tag and (name is None or name in node.classes)]

    def one(self, tag: str, name: str | None = None) -> Node:
        (node,) = self.all(tag, name)
        return node

    def __getitem__(self, attribute: str) -> str:
        return self.attributes[attribute] or ""

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.inside).strip()


class Reader(HTMLParser):
    """Enough of HTML for the report's own markup."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("page")]
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        while self.open[-1].tag in IMPLIED.get(tag, ()):
            self.open.pop()
        node = Node(tag, dict(attrs))
        self.open[-1].inside.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if tag in [node.tag for node in self.open]:
            while self.open.pop().tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read_html(html: str) -> Node:
    return Reader(html).open[0]


@dataclass(frozen=True)
class Shown:
    """A response of the report, as its page shows it or as its data hold it; `tokens` are (text, columns, classes)."""

    step: int
    prompt: str
    verdict: str
    meta: str
    tokens: list[tuple[str, dict[str, str], list[str]]]


def embedded(tree: Node) -> list[Shown]:
    """Every response in the data of the page's script, in page order; written from the script, not from the writer."""
    (script,) = [node for node in tree.all("script") if node.attributes.get("id") == "data"]
    data = json.loads(script.text)
    return [
        Shown(
            step=step["number"],
            prompt=prompt["text"],
            verdict=card["verdict"],
            meta=f"{card['verdict']} {card['before']}"
            + (f" · expected {card['answer']}" if card["answer"] else "")
            + card["after"],
            tokens=list(_tokens(card, data["scales"])),
        )
        for step in data["steps"]
        for prompt in step["prompts"]
        for card in prompt["cards"]
    ]


def _tokens(card: Any, scales: Any) -> Iterator[tuple[str, dict[str, str], list[str]]]:
    position, count = 0, len(card["tokens"])
    columns_of = [
        (scale, levels, values.split(" "))
        for scale, levels, values in zip(scales, card["levels"], card["values"], strict=True)
    ]
    assert all(len(levels) in (1, count) and len(numbers) in (1, count) for _, levels, numbers in columns_of)
    for i, text in enumerate(card["tokens"]):
        position = card["gaps"][str(i)][0] if str(i) in card["gaps"] else position + 1
        columns = {"no.": str(position)}
        classes = []
        for scale, levels, numbers in columns_of:
            columns[scale["label"]] = numbers[i if len(numbers) > 1 else 0]
            classes.append(scale["key"] + levels[i if len(levels) > 1 else 0])
        yield text, columns, classes + (["br"] if i in card["breaks"] else [])


def _numbers(row: Node) -> list[str]:
    """The numbers of a token; the first of them has the token beside it, for the foot of the window."""
    first, *others = row.all("td")
    token = first.one("i").text
    assert token == row.one("th").text
    return [first.text.removesuffix(token), *(td.text for td in others)]


def drawn(tree: Node) -> list[Shown]:
    """The responses that stand on the page as elements, in page order."""
    found = []
    for pane in tree.all("section", "pane"):
        if "hidden" in pane.attributes:
            continue
        step = int(pane.one("h3").text.removeprefix("Step "))
        for card in pane.all("article", "card"):
            table = card.one("table", "tokens")
            names = [th.text for th in table.one("thead").all("th")][1:]
            tokens = [
                (tr.one("th").text, dict(zip(names, _numbers(tr), strict=True)), tr.classes)
                for tr in table.one("tbody").all("tr")
                if "gap" not in tr.classes
            ]
            verdict, meta = card.one("span", "verdict").text, card.one("p", "meta").text
            found.append(Shown(step, pane.one("pre").text, verdict, meta, tokens))
    return found
