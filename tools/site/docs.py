"""Writes what comes from the code: docs/methods/ with a picture of each, docs/family.md with its picture,
docs/explorer.html, docs/tasks.md, docs/house.svg, docs/exact.svg, docs/tokens.svg, tables of docs/papers_recipes.md,
docs/trl.md, docs/verl.md, docs/engines.md and of the inputs in docs/ideas.md.

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
from statistics import fmean

import card_page
import exact_picture
import exact_sentences
import explorer
import family
import host_fields
import house
import kl_law
import paper_recipes
import task_page
import token_picture
from layout import GENERATED, cell, code, filled, linked, plain, prose, table

from tokenpo.core.facts import facts_of
from tokenpo.core.objective import Objective
from tokenpo.core.parts import walk
from tokenpo.core.types import OPTIONAL, Policy, Rollouts
from tokenpo.lab.exact import study
from tokenpo.lab.exact.world import World
from tokenpo.lab.exact.worlds import LARGE, WORLDS
from tokenpo.lab.fingerprint.curves import EQUAL, axes_of
from tokenpo.lab.fingerprint.drawing import draw, panels
from tokenpo.methods import METHODS, options_of, paper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from oracle_support import source as oracle_source  # noqa: E402

PAGES = ROOT / "docs" / "methods"
PAPERS = ROOT / "src" / "tokenpo" / "recipe" / "recipes" / "papers"
PICTURE = "family.svg"
BED, BED_COLUMNS = ROOT / "docs" / "bed.md", 8
BENCHED_AS = {"tr_grpo": ", with its weight on the advantage,"}  # where its default has changed since
AREAS = re.compile(r"\| train-area, (\w+) − (\w+) \| ([-+.\d]+) \|")
LEAST = 0.01  # of useful progress, below which two updates are alike
MARGIN = 0.03  # of accuracy, the margin that docs/bed.md registered
LITTLE = 0.01  # of accuracy, below which learning is told to be the same
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

## Evidence

<details markdown="1"><summary>In small worlds whose gradient is known</summary>

{exact}

</details>
{bed}
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
        exact=exact(name),
        bed=on_the_bed(name),
        score=oracle_source(name),
    )


def box(name: str) -> str:
    """What a reader wants first: what it changes, whether it helps, how sure its formula is, and the command."""
    objective, origin = METHODS[name](), paper(name)
    if any(need.startswith("teacher") for need in objective.needs):
        run = "give the recipe [a teacher](../embedded.md#a-teacher)"
    elif "role" in objective.needs:
        run = "from [a loop of your own](../own_loop.md), which has to give `role`"
    else:
        run = f"`tokenpo train quickstart --method {name}`"
    note = f" Open: {plain(origin.note)}." if origin.note else ""
    sure = "; ".join(PROVENANCE[kind] for kind in origin.provenance.split(" + "))
    says = (
        ("What it changes", plain(summary(name))),
        (
            "Does it help?",
            " ".join(filter(None, (on_benchmark(name), with_its_kl_held(name), on_a_gpu(name), in_worlds(name)))),
        ),
        ("How sure is the formula?", f"{sure[:1].upper()}{sure[1:]}.{note}"),
        ("Try it", run),
    )
    lines = (f"**{title}** {text}" for title, text in says)
    return "\n>\n".join(
        textwrap.fill(line, 118, break_on_hyphens=False, initial_indent="> ", subsequent_indent="> ") for line in lines
    )


def benchmark() -> str:
    """The section of docs/bed.md, a page of two studies, in which every learning rate is tuned."""
    return BED.read_text(encoding="utf-8").partition("<!-- /bed -->")[0]


def on_benchmark(name: str) -> str:
    """Whether it learned more than DAPO or GRPO on the benchmark; a difference below the margin is none."""
    if name == study.BASE:
        return "It is what the others are compared with."
    found: dict[str, list[float]] = {}
    for first, second, difference in AREAS.findall(benchmark()):
        sign = {(name, second): 1, (first, name): -1}.get((first, second), 0)
        other = second if sign > 0 else first
        if sign and other in (study.BASE, "grpo"):
            found.setdefault(other, []).append(sign * float(difference))
    if not found:
        return "It was not run on the [benchmark](../bed.md)."
    base, differences = min(found.items())  # DAPO where both are there
    first, *others = (_learned(x) for x in differences)
    tasks = "on both tasks" if {first} >= {*others} else f"on one task and {others[0]} it on the other"
    numbers = " and ".join(f"{x:+.3f}" for x in differences)
    return (
        f"On the [benchmark](../bed.md){BENCHED_AS.get(name, '')} it {first} {base.upper()} {tasks} "
        f"(mean training accuracy {numbers}; the margin is {MARGIN:g})."
    )


HELD = {
    "alike": "stays within 0.02 of", "smaller": "learns less than", "larger": "learns more than",
    "undecided": "is not shown to stay within 0.02 of",
}  # fmt: skip


def with_its_kl_held(name: str) -> str:
    """What the study of the KL says of it, on each task from the first base model."""
    found = kl_law.verdicts(kl_law.PAGE.read_text(encoding="utf-8"))
    seen = {
        task: x for (p, task, base, pair), x in found.items() if (p, base, pair) == ("P1", "first", f"{name} - dapo")
    }
    told = [f"{HELD[x.word]} DAPO on {task} ({x.mean})" for task, x in seen.items()]
    listed = " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))
    return f"With [the KL held](../kl_law.md) it {listed}." if told else ""


def on_a_gpu(name: str) -> str:
    """What both parts of the study with the KL held say of it."""
    text = card_page.PAGE.read_text(encoding="utf-8")
    found, pair = card_page.verdicts(text), f"{name} − dapo, held"
    if not any((part, pair) in found for part in card_page.PARTS):
        return ""
    batches, gains = (card_page.told(text, label) for label in (card_page.BATCHES, card_page.GAIN))
    told = {part: HELD[found[part, pair].word] for part in card_page.PARTS}
    numbers = [
        f"{told[part]} DAPO in {batches[part]} batches ({found[part, pair].mean}, where DAPO gains {gains[part]})"
        for part in card_page.PARTS
    ]
    if len({*told.values()}) == 1:
        numbers[1:] = [x.removeprefix(f"{told[card_page.PARTS[0]]} DAPO ") for x in numbers[1:]]
    return f"On [a larger model](../card_study.md), its KL held, it {' and '.join(numbers)}."


def _learned(difference: float) -> str:
    much = "" if abs(difference) > MARGIN else "a little "
    if abs(difference) < LITTLE:
        return "learns as much as"
    return f"learns {much}{'more' if difference > 0 else 'less'} than"


def in_worlds(name: str) -> str:
    """In how many of the small worlds its update is worth more than DAPO's, or less, and how training compares."""
    rows, worlds = studied()
    if name == study.BASE:
        return ""
    if name not in rows or not {world.name for world in worlds} <= set(rows[name].cells):
        return "It was not run in the [small worlds](../exact.md)."
    lead = [[row.at(world, "init/useful").value for row in (rows[name], rows[study.BASE])] for world in worlds]
    more, less = (sum(sign * (x - y) > LEAST for x, y in lead) for sign in (1, -1))
    area = [fmean(row.at(world, "noisy/area").value for world in worlds) for row in (rows[name], rows[study.BASE])]
    return (
        f"In [small worlds](../exact.md) its update makes more progress than DAPO's in {more} of {len(worlds)}, less "
        f"in {less}; at its best step size the mean reward over a run differs from DAPO's by {area[0] - area[1]:+.3f}."
    )


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


def exact(name: str) -> str:
    """What the worlds whose gradient is known say of a method, computed from docs/exact.json."""
    rows, worlds = studied()
    if name not in rows or not {world.name for world in worlds} <= set(rows[name].cells):
        return "Not run there yet: `tokenpo exact`, [exact worlds](../exact.md)."
    if name == study.BASE:
        return "It is what the others are compared with: [exact worlds](../exact.md)."
    base = rows[study.BASE]
    said = {
        "helps": exact_sentences.helps(rows[name], base, worlds),
        "fails": exact_sentences.fails(rows[name], base, worlds),
        "noisy training at its best step size": exact_sentences.trains(rows[name], base, worlds),
        "why": exact_sentences.why(rows[name], base, worlds),
    }
    if large := [build() for world, build in LARGE.items() if world in rows[name].cells]:
        said["in large worlds"] = exact_sentences.fails(rows[name], base, large)
    lead = (
        "Computed from the numbers of [exact worlds](../exact.md), compared with `dapo`; each world has one assumption."
    )
    if "value" in METHODS[name]().needs:
        lead += " The value that the method reads is exact there, which no critic's is."
    lines = [lead, *(f"**{word}**: {text}" for word, text in said.items() if text)]
    return "\n\n".join(textwrap.fill(line, 120, break_on_hyphens=False) for line in lines)


def on_the_bed(name: str) -> str:
    """The rows of the benchmark that compare a method; nothing for those that were not run there."""
    head, _, *rows = (
        line for line in benchmark().splitlines() if line.startswith("| ") and line.count("|") == BED_COLUMNS + 1
    )
    rows = [row for row in rows if re.search(rf"[,−/] {name} [−/|]", row)]
    if not rows:
        return ""
    lead = "Paired runs of a small transformer, every method at its best learning rate: [the benchmark](../bed.md)."
    table = "\n".join([head, "| " + " | ".join(["---"] * BED_COLUMNS) + " |", *rows])
    return f'\n<details markdown="1"><summary>On the benchmark</summary>\n\n{lead}\n\n{table}\n\n</details>\n'


@functools.cache
def studied() -> tuple[dict[str, study.Row], list[World]]:
    """The methods of docs/exact.json by name, and the twelve worlds."""
    source = ROOT / "docs" / "exact.json"
    return study.load(source) if source.exists() else {}, [build() for build in WORLDS.values()]


def counts() -> str:
    """What the numbers of methods count that other pages give."""
    run = [name for name in METHODS if name in studied()[0]]
    others = [name for name in run if name != study.BASE and "value" not in METHODS[name]().needs]
    text = (
        f"There are {len(METHODS)} names in the table, a page each and no aliases; variants of a paper that have a "
        f"name of their own, as `tepo_v1`, count. [Exact worlds](../exact.md) run {len(run)} of them, all but those "
        "that need a teacher, drafts or scored parts of responses, and compare the "
        f"{len(others)} that need no critic with DAPO."
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
    files[PAGES.parent / "house.svg"] = house.drawing()
    files[PAGES.parent / "tokens.svg"] = token_picture.drawing()
    rows, worlds = studied()
    if rows:
        files[PAGES.parent / "exact.svg"] = exact_picture.drawing(rows, worlds)
    recipes = PAGES.parent / "papers_recipes.md"
    if recipes.exists():
        files[recipes] = paper_recipes.page(recipes.read_text(encoding="utf-8"), PAPERS)
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
