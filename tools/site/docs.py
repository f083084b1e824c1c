"""Writes what comes from the code: docs/methods/ with a picture of each, docs/family.md with its picture,
docs/explorer.html, docs/tasks.md, docs/tokens.svg, tables of docs/trl.md, docs/verl.md and
docs/engines.md, and of the inputs in docs/ideas.md.

python tools/site/docs.py            write them
python tools/site/docs.py --check    exit 1 and name what is not what the code says
"""

from __future__ import annotations

import argparse
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import explorer
import family
import host_fields
import task_page
import token_picture
from fingerprint.curves import EQUAL, axes_of
from fingerprint.drawing import draw, panels
from layout import GENERATED, cell, code, filled, linked, plain, prose, table

from tokenpo.core.facts import facts_of
from tokenpo.core.objective import Objective
from tokenpo.core.parts import walk
from tokenpo.core.types import OPTIONAL, Policy, Rollouts
from tokenpo.methods import METHODS, options_of, paper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from oracle_support import source as oracle_source  # noqa: E402

PAGES = ROOT / "docs" / "methods"
PICTURE = "family.svg"
# Compared with DAPO or GRPO in docs/results.md.
MEASURED = {"grpo", "cispo", "tepo", "hapo", "gtpo", "tr_grpo", "grpo_s", "gspo", "eb_cispo"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
EQUAL_ONES = "[the same everywhere](../family.md#methods-with-the-same-fingerprint)"

PROVENANCE = {
    "paper": "read in the text of the paper",
    "code": "read in the authors' or a framework's code",
    "second-hand": "told by others; the text of the paper could not be read",
    "reconstructed": "inferred here from what could be read",
    "own": "a composition of ours; the paper is where its idea stands",
}

INDEX = """\
{generated}

# Methods

Every method is one builder in one table, `tokenpo.methods.METHODS`. `tokenpo.method(NAME, option=...)` gives the
objective; each page shows its formula, its options, its builder and the reference implementation that the tests compare
it with.

{counts}

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

{box}

## {title}

{prose}

## Options

{options}

## How hard it pushes a token

![{name} over the facts of a token]({name}.svg)

{pushes}

## Source

{facts}

<details markdown="1"><summary>Builder: the method as a composition of parts</summary>

```py
{builder}
```
{parts}
```text
{choices}
```

</details>

<details markdown="1"><summary>Reference implementation, in NumPy, that the tests compare it with</summary>

It is written from the formula above on [functions](../../tests/oracles/prelude.py) that import nothing of the library
and returns the loss and its hand-derived gradient. [Tests](../../tests/methods) compare the two on random batches with
every option, and the library with numbers worked out by hand.

```py
{score}
```

</details>
"""


def page(name: str) -> str:
    """The page of one method."""
    build = METHODS[name]
    source = Path(inspect.getsourcefile(inspect.unwrap(build)) or "")
    title, _, text = described(build).partition("\n")
    return PAGE.format(
        generated=GENERATED.format(source=f"src/tokenpo/methods/{source.name} and its oracle"),
        name=name,
        box=box(name),
        facts=facts(name, source.name),
        title=title.rstrip("."),
        prose=prose(text),
        options=options(name),
        choices=METHODS[name](),
        builder=undocumented(build),
        parts=parts(METHODS[name]()),
        pushes=pushes(name),
        score=oracle_source(name),
    )


def box(name: str) -> str:
    """What a reader wants first: what it changes, whether it helps, how sure its formula is, and the command."""
    objective, origin = METHODS[name](), paper(name)
    if any(need.startswith("teacher") for need in objective.needs):
        run = "give the recipe [a teacher](../embedded.md#a-teacher)"
    else:
        run = f"`tokenpo train quickstart --method {name}`"
    note = f" Open: {plain(origin.note)}." if origin.note else ""
    sure = "; ".join(PROVENANCE[kind] for kind in origin.provenance.split(" + "))
    says = (
        ("What it changes", plain(summary(name))),
        ("Does it help?", helps(name)),
        ("How sure is the formula?", f"{sure[:1].upper()}{sure[1:]}.{note}"),
        ("Try it", run),
    )
    lines = (f"**{title}** {text}" for title, text in says)
    return "\n>\n".join(
        textwrap.fill(line, 118, break_on_hyphens=False, initial_indent="> ", subsequent_indent="> ") for line in lines
    )


def helps(name: str) -> str:
    """Where its results stand."""
    if name == "dapo":
        return "It is what the others are compared with: [results](../results.md)."
    if name in MEASURED:
        return "[Trained runs](../results.md) compare it with DAPO or GRPO."
    return "No trained runs of ours compare it with DAPO."


def described(build: Callable[..., Objective]) -> str:
    """Title and text of a method: the docstring of its file; in a file of several papers the builder's own."""
    own = inspect.cleandoc(inspect.unwrap(build).__doc__ or "")
    _, several, text = own.partition("\n")
    return f"Formula\n{text}" if several else inspect.cleandoc(sys.modules[build.__module__].__doc__ or "")


def undocumented(build: Callable[..., Objective]) -> str:
    """The source of a builder, with the first line of its docstring alone."""
    bare = inspect.unwrap(build)
    summary = (bare.__doc__ or "").partition("\n")[0]
    return inspect.getsource(bare).strip().replace(bare.__doc__ or "", summary)


def pushes(name: str) -> str:
    """What the picture shows, what is left out of it, and the nearest method."""
    objectives = every_objective()
    other, far, where = family.nearest(name, objectives)
    drawn = {(panel.axis.key, panel.channel) for panel in panels(objectives[name], objectives[family.BASE])}
    left_out = [a.title for a in axes_of(objectives[name]) if not a.plain and (a.key, 0) not in drawn]
    text = (
        f"Blue in a right response, orange in a wrong one; the broad grey lines are `{family.BASE}`'s. "
        f"[How it is computed](../family.md#how-hard-each-method-pushes-a-token). Flat, and left out: "
        f"{', '.join(left_out)}. The nearest method is [`{other}`]({other}.md)"
    )
    near = (
        f": it differs by {far:.2g} in the mean over “{where}”, and by less over the others."
        if far > EQUAL
        else f": {EQUAL_ONES}."
    )
    return textwrap.fill(text + near, 120, break_on_hyphens=False)


@functools.cache
def every_objective() -> dict[str, Objective]:
    """The methods of the table at their defaults."""
    return {name: build() for name, build in METHODS.items()}


def counts() -> str:
    """What the numbers of methods count that other pages give."""
    text = (
        f"There are {len(METHODS)} names in the table, a page each and no aliases; variants of a paper that have a "
        "name of their own, as `tepo_v1`, count."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


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
        *([("Read", "; ".join(map(released, origin.code.split("; "))))] if origin.code else []),
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


def released(read: str) -> str:
    """A file that was read, as `Paper.code` names it; linked where it is in a repository."""
    where, _, path = read.partition(":")
    repository, _, commit = where.partition("@")
    if not commit:
        return f"{where}, `{path}`"
    return f"{repository} at {commit}, [`{path}`](https://github.com/{repository}/blob/{commit}/{path})"


def needs(objective: Objective) -> str:
    return ", ".join(f"`{name}`" for name in sorted(objective.needs)) or "-"


def options(name: str) -> str:
    """The builder's keywords as a table: values, default and meaning from its signature."""
    rows = []
    for key, option in options_of(METHODS[name]).items():
        if not option.words:
            raise SystemExit(f"{name}: the annotation of option {key} has no words")
        names = [f'"{choice}"' for choice in option.choices] or option.kinds
        values = cell(option.allowed.text) if option.allowed else " or ".join(map(code, names))
        rows.append((f"`{key}`", values, code(repr(option.default)), cell(option.words)))
    return table(("option", "value", "default", "meaning"), rows) if rows else "None."


def parts(objective: Objective) -> str:
    """The source of the parts that live beside the builder because no other paper uses them."""
    own = dict.fromkeys(type(p) for p in walk(objective) if type(p).__module__.startswith("tokenpo.methods."))
    if not own:
        return ""
    source = "\n\n\n".join(inspect.getsource(part).strip() for part in own)
    return f"\nThe parts it holds at its defaults that live in the same file:\n\n```py\n{source}\n```\n"


def methods_table() -> str:
    """One row per method."""
    rows = [
        (
            f"[`{name}`]({name}.md)",
            cell(summary(name)),
            f"{cell(paper(name).title)}, {linked(paper(name).reference)}",
            paper(name).provenance,
            needs(build()),
        )
        for name, build in METHODS.items()
    ]
    return table(("method", "what it changes", "paper", "provenance", "needs"), rows)


def inputs() -> str:
    """One row for each input that an objective may need, from its declaration."""
    owners = ((Rollouts, facts_of(Rollouts)), (Policy, facts_of(Policy)))
    rows = [
        (code(name), code(owner.__name__), cell(fact.described))
        for owner, declared in owners
        for name, fact in declared.items()
        if name in OPTIONAL
    ]
    return table(("need", "field of", "what it is"), rows)


def generated() -> dict[Path, str]:
    """Every generated file with what it should hold."""
    legend = "\n".join(f"- *{name}*: {meaning}" for name, meaning in PROVENANCE.items())
    notice = GENERATED.format(source="the table of methods")
    files = {PAGES / f"{name}.md": page(name) for name in METHODS}
    base = METHODS[family.BASE]()
    files |= {PAGES / f"{name}.svg": draw(name, build(), base) for name, build in METHODS.items()}
    files[PAGES / "README.md"] = INDEX.format(
        generated=notice, counts=counts(), table=methods_table(), provenance=legend
    )
    files[PAGES.parent / "family.md"] = family.page(METHODS, PICTURE)
    files[PAGES.parent / PICTURE] = family.picture(METHODS)
    files[PAGES.parent / "tasks.md"] = task_page.page()
    files[PAGES.parent / "tokens.svg"] = token_picture.drawing()
    for name, tables in {**host_fields.TABLES, "ideas": {"inputs": inputs}}.items():
        if (page_of := PAGES.parent / f"{name}.md").exists():
            files[page_of] = filled(page_of.read_text(encoding="utf-8"), tables)
    return files


def same(path: Path, wanted: str) -> bool:
    """Whether a file holds this text; in a picture the last digit of a coordinate is the machine's."""
    found = path.read_text(encoding="utf-8")
    if path.suffix != ".svg" or found == wanted:
        return found == wanted
    pairs = zip(NUMBER.findall(found), NUMBER.findall(wanted), strict=False)
    return NUMBER.sub("", found) == NUMBER.sub("", wanted) and all(abs(float(a) - float(b)) < 0.15 for a, b in pairs)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is stale")
    check = parser.parse_args(given).check
    wanted = generated()
    stale = [path for path, text in wanted.items() if not path.exists() or not same(path, text)]
    gone = [path for path in sorted(PAGES.glob("*.*")) if path not in wanted]
    # Its grid takes a minute, so what is compared is what it was made from.
    page_of_sliders = PAGES.parent / "explorer.html"
    made_from = explorer.drawn_from(page_of_sliders.read_text(encoding="utf-8")) if page_of_sliders.exists() else ""
    if made_from != explorer.digest(every_objective()):
        stale.append(page_of_sliders)
    for path in [*stale, *gone]:
        print(f"{'stale' if check else 'removed' if path in gone else 'written'}: {path.relative_to(ROOT)}")
        if check:
            continue
        if path in gone:
            path.unlink()
        elif path == page_of_sliders:
            path.write_text(explorer.render(every_objective()), encoding="utf-8")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
    if check and (stale or gone):
        print("run `make docs` and commit the result")
    return int(check and bool(stale or gone))


if __name__ == "__main__":
    sys.exit(main())
