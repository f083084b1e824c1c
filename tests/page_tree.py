"""Reads a page of this package back as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "img", "link", "base", "embed", "hr", "source"}
# The page leaves out the end tags of tables: the tag on the left ends these.
IMPLIED = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}, "tbody": {"td", "th", "tr", "thead"}}


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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in [node.tag for node in self.open]:
            while self.open.pop().tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read_html(html: str) -> Node:
    return Reader(html).open[0]
