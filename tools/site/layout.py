"""Pieces of Markdown that the generated pages are made of."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tokenpo.methods.families import family

WIDTH = 120
# An option with its value, in a sentence.
SETTING = re.compile(r'(?<![`\w.])[a-z_]+\d*=(?:"\w+"|True|False|None|ID|-?\d+(?:\.\d+)?(?:e-?\d+)?)(?![`\w])')
LABEL = r"^(Paper|Defaults|Departures|Notes?|Options|Reductions|Law): "
GENERATED = "<!-- Written by tools/site/docs.py from {source}: change that, then run `make docs`. -->"


def write(page: Path, text: str) -> int:
    """Writes a page, or with --check on the command line says whether it is current; the exit code."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
        return 0
    current = page.is_file() and page.read_text(encoding="utf-8") == text
    command = " ".join(word for word in sys.argv if word != "--check")
    print(f"{page.name} is {'current' if current else f'out of date: python {command}'}")
    return int(not current)


def write_section(page: Path, name: str, text: str) -> int:
    """Writes, or checks, what a page has between its marks of that name; the exit code."""
    return write(page, filled(page.read_text(encoding="utf-8"), {name: lambda: text}))


def filled(page: str, sections: Mapping[str, Callable[[], str]]) -> str:
    """The page with what stands between `<!-- name -->` and `<!-- /name -->` made anew, for each name.

    Raises:
        SystemExit: a mark is missing.
    """
    for name, made in sections.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, opened, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise SystemExit(f"a page of docs/ lacks {begin} ... {end}, between which that section belongs")
        page = f"{before}{begin}\n{made()}\n{end}{after}"
    return page


def method_link(name: str) -> str:
    """A link from a page of docs/ to a method's formula."""
    return f"[`{name}`](methods/{family(name)}.md#{name})"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def plain(text: str) -> str:
    """Text whose stars and angle brackets mean themselves in Markdown; what stands in backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*<])", r"\\\1", p) for p in pieces)


def cell(text: str) -> str:
    return plain(text).replace("|", r"\|")


def code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def arguments(doc: str) -> dict[str, str]:
    """name -> meaning of the "Args:" section of a docstring."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    found: dict[str, str] = {}
    for line in section[1].splitlines() if section else ():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            found[start[1]] = start[2]
        elif found and line.strip():
            found[next(reversed(found))] += " " + line.strip()
    return found


def linked(text: str) -> str:
    """The text with its arXiv numbers as links."""
    return re.sub(r"(arXiv:)?(\d{4}\.\d{5})", r"[\1\2](https://arxiv.org/abs/\2)", text)


def prose(text: str) -> str:
    """A docstring as Markdown: indented lines become code blocks, a label bold, settings code."""
    out = []
    for kind, block in blocks(text):
        if kind == "code":
            out.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            out.append(re.sub(LABEL, r"**\1**: ", linked(plain(SETTING.sub(r"`\g<0>`", block)))))
    return "\n\n".join(out)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """("code" | "text", block) in order. A paragraph ends before a label, and at a line that stops short."""
    block: list[str] = []
    kind = "text"
    for line in [*text.splitlines(), ""]:
        now = "code" if line.startswith("    ") else "text"
        if block and (not line or now != kind or (kind == "text" and parted(block[-1], line))):
            yield kind, "\n".join(block)
            block = []
        if line:
            block.append(line)
            kind = now


def parted(line: str, following: str) -> bool:
    """True where a label follows, or the writer ended the line although the next word had room."""
    room = len(line) + 1 + len(following.split()[0]) <= WIDTH - len("    ")  # of a function's docstring
    return bool(re.match(LABEL, following)) or (line.endswith(".") and room)
