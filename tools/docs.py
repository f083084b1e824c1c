"""Writes the pages that come from the code: docs/methods/ and the table of methods in README.md.

python tools/docs.py            write them
python tools/docs.py --check    exit 1 and name the pages that are not what the code says
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenpo.methods import METHODS, paper
from tokenpo.objective import Objective
from tokenpo.signals import walk

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "methods"
README = ROOT / "README.md"
BEGIN, END = "<!-- methods -->", "<!-- /methods -->"
WIDTH = 120
LABEL = r"^(Paper|Defaults|Departures|Options|Reductions|Law): "
GENERATED = "<!-- Written by tools/docs.py from {source}: change that, then run `make docs`. -->"

PROVENANCE = {
    "paper": "read in the text of the paper",
    "code": "read in the authors' or a framework's code",
    "second-hand": "told by others; the text of the paper could not be read",
    "reconstructed": "inferred here from what could be read",
}

INDEX = """\
{generated}

# Methods

Every method is one builder in one table, `tokenpo.methods.METHODS`. `tokenpo.method(NAME, option=...)` gives the
objective; each page shows its formula, its options, the builder (the table) and the straight-line version that the
tests compare it with (the score).

{table}

## Needs

The optional inputs, fields of [`Rollouts` and `Policy`](../ideas.md#needs-and-refusal), that the objective reads at its
default options.

## Provenance

Where a formula was found. No page claims more than this: "second-hand" and "reconstructed" do not reproduce a paper.

{provenance}
"""

PAGE = """\
{generated}

# {name}

{summary}

{facts}

## {title}

{prose}

## Options

{options}

## Choices at the defaults

```text
{choices}
```

## The table

The builder: the method as a composition of named choices.

```py
{builder}
```
{parts}
## The score

The same method as one straight line of NumPy that imports nothing of the library. It returns the loss and its
hand-derived gradient; the [tests](../../tests/methods/{name}/test_{name}.py) hold the two to each other.

```py
{score}
```
"""


def page(name: str) -> str:
    """The page of one method."""
    build = METHODS[name]
    source = Path(inspect.getsourcefile(inspect.unwrap(build)) or "")
    title, _, text = inspect.cleandoc(sys.modules[build.__module__].__doc__ or "").partition("\n")
    oracle = (ROOT / "tests" / "methods" / name / "oracle.py").read_text(encoding="utf-8")
    return PAGE.format(
        generated=GENERATED.format(source=f"src/tokenpo/methods/{source.name} and its oracle"),
        name=name,
        summary=plain(summary(name)),
        facts=facts(name, source.name),
        title=title.rstrip("."),
        prose=prose(text),
        options=options(name),
        choices=METHODS[name](),
        builder=inspect.getsource(inspect.unwrap(build)).strip(),
        parts=parts(METHODS[name]()),
        score=oracle.strip(),
    )


def summary(name: str) -> str:
    """What a method changes: the first line of its builder's docstring."""
    return (inspect.getdoc(METHODS[name]) or "").partition("\n")[0]


def facts(name: str, source: str) -> str:
    """Paper, provenance, needs and scope as a table."""
    objective, origin = METHODS[name](), paper(name)
    note = f"; open: {cell(origin.note)}" if origin.note else ""
    scope = "row: the losses of any rows add up"
    if objective.scope == "batch":
        scope = "batch: [`observe`](../ideas.md#scope) sees the whole optimiser step before its parts are evaluated"
    rows = [
        ("Paper", f"{cell(origin.title)}, {linked(origin.reference)}"),
        ("Provenance", f"[{origin.provenance}](README.md#provenance){note}"),
        ("Needs", needs(objective)),
        ("Scope", scope),
        ("Code", f"[`methods/{source}`](../../src/tokenpo/methods/{source})"),
    ]
    if idle := objective.idle_on_policy:
        names = ", ".join(f"`{type(part).__name__}`" for part in idle)
        rows.insert(4, ("Idle", f"{names}, in a run with one update per rollout batch: the policy has not moved yet"))
    if objective.temperature is not None:
        rows.insert(4, ("Sampling", "adapts the temperature of each token; the sampler has to apply `temperature`"))
    return table(("", ""), rows)


def needs(objective: Objective) -> str:
    return ", ".join(f"`{name}`" for name in sorted(objective.needs)) or "-"


def prose(text: str) -> str:
    """A docstring as Markdown: indented lines become code blocks, a label at the start of a paragraph becomes bold."""
    out = []
    for kind, block in blocks(text):
        if kind == "code":
            out.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            out.append(re.sub(LABEL, r"**\1**: ", linked(plain(block))))
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
    room = len(line) + 1 + len(following.split()[0]) <= WIDTH
    return bool(re.match(LABEL, following)) or (line.endswith(".") and room)


def options(name: str) -> str:
    """The builder's keywords as a table: type and default from its signature, meaning from its docstring."""
    meaning = arguments(inspect.getdoc(METHODS[name]) or "")
    rows = []
    for option, parameter in inspect.signature(METHODS[name]).parameters.items():
        if option not in meaning:
            raise SystemExit(f"{name}: option {option} has no line under Args in its builder's docstring")
        rows.append((f"`{option}`", code(parameter.annotation), code(repr(parameter.default)), cell(meaning[option])))
    return table(("option", "type", "default", "meaning"), rows) if rows else "None."


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


def parts(objective: Objective) -> str:
    """The source of the parts that live beside the builder because no other paper uses them."""
    own = dict.fromkeys(type(p) for p in walk(objective) if type(p).__module__.startswith("tokenpo.methods."))
    if not own:
        return ""
    source = "\n\n\n".join(inspect.getsource(part).strip() for part in own)
    return f"\nThe parts it holds at its defaults that live in the same file:\n\n```py\n{source}\n```\n"


def methods_table(prefix: str) -> str:
    """One row per method; `prefix` leads to the pages."""
    rows = [
        (
            f"[`{name}`]({prefix}{name}.md)",
            cell(summary(name)),
            f"{cell(paper(name).title)}, {linked(paper(name).reference)}",
            paper(name).provenance,
            needs(METHODS[name]()),
        )
        for name in METHODS
    ]
    return table(("method", "what it changes", "paper", "provenance", "needs"), rows)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def plain(text: str) -> str:
    """Text whose stars and angle brackets mean themselves in Markdown; what stands in backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*<])", r"\\\1", p) for p in pieces)


def cell(text: str) -> str:
    return plain(text).replace("|", r"\|")


def code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def linked(text: str) -> str:
    """The text with its arXiv numbers as links."""
    return re.sub(r"(arXiv:)?(\d{4}\.\d{5})", r"[\1\2](https://arxiv.org/abs/\2)", text)


def with_table(readme: str) -> str:
    """The README with its table of methods re-made."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md lacks {BEGIN} ... {END}, between which its table of methods belongs")
    return f"{before}{BEGIN}\n{methods_table('docs/methods/')}\n{END}{after}"


def generated() -> dict[Path, str]:
    """Every generated file with what it should hold."""
    legend = "\n".join(f"- *{name}*: {meaning}" for name, meaning in PROVENANCE.items())
    notice = GENERATED.format(source="the table of methods")
    files = {PAGES / f"{name}.md": page(name) for name in METHODS}
    files[PAGES / "README.md"] = INDEX.format(generated=notice, table=methods_table(""), provenance=legend)
    if README.exists():
        files[README] = with_table(README.read_text(encoding="utf-8"))
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    check = parser.parse_args(arguments).check
    wanted = generated()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    gone = [path for path in sorted(PAGES.glob("*.md")) if path not in wanted]
    for path in [*stale, *gone]:
        print(f"{'stale' if check else 'removed' if path in gone else 'written'}: {path.relative_to(ROOT)}")
        if check:
            continue
        if path in gone:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
    if check and (stale or gone):
        print("run `make docs` and commit the result")
    return int(check and bool(stale or gone))


if __name__ == "__main__":
    sys.exit(main())
