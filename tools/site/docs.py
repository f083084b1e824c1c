"""Writes what comes from the code: docs/methods/ a page for each family, docs/family.md with its picture,
docs/tasks.md, docs/tokens.svg, tables of docs/trl.md, docs/verl.md and docs/engines.md, and of the inputs in
docs/ideas.md.

python tools/site/docs.py            write them
python tools/site/docs.py --check    exit 1 and name what is not what the code says
"""

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import family
import host_fields
import task_page
import token_picture
from layout import GENERATED, WIDTH, cell, code, filled, linked, plain, prose, table

from tokenpo.core.facts import facts_of
from tokenpo.core.objective import Objective
from tokenpo.core.types import EXTRA, OPTIONAL, Policy, Rollouts
from tokenpo.methods import METHODS, options_of, paper
from tokenpo.methods.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]

PAGES = ROOT / "docs" / "methods"
PICTURE = "family.svg"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

PROVENANCE = {
    "paper": "read in the text of the paper",
    "code": "read in the authors' or a framework's code",
    "second-hand": "told by others; the text of the paper could not be read",
    "reconstructed": "inferred here from what could be read",
    "own": "our own composition; the paper has its idea",
}

INDEX = """\
{generated}

# Methods

Every method is one builder in one table, `tokenpo.methods.METHODS`. `tokenpo.method(NAME, option=...)` gives the
objective. A page for each family has formulas, options and sources; `tokenpo show NAME` prints the parts. The tests
compare value and gradient of each method with a [reference implementation](../../tests/oracles) in NumPy.

{tables}

## Needs

The optional inputs, fields of [`Rollouts` and `Policy`](../ideas.md#needs-and-refusal), that the objective reads at its
default options.

## Provenance

Where a formula was found. No page claims more than this: "second-hand" and "reconstructed" do not reproduce a paper.

{provenance}
"""

PAGE = """\
{generated}

# {title}

{about}

To use one: `method="NAME", method_options={{...}}` [in TRL](../trl.md), `--method NAME --set method.OPTION=VALUE`
[in a recipe](../embedded.md), `tokenpo.method("NAME", OPTION=VALUE)` [in Python](../own_loop.md).

{links}

{sections}
"""

ABOUT = {
    "baselines": """\
These methods change how rewards become advantages: the baseline, the scale, and which groups count. Start with
`dapo`. On a [real model](../results.md#a-real-model) we could not tell GRPO from it.""",
    "responses": """\
These methods use one ratio for a whole response, or weigh whole responses. GSPO learned less than DAPO in [small
models](../results.md#small-models); on a [real model](../results.md#a-real-model) we could not tell them apart.""",
    "trust": """\
These methods change how far the ratio of a token may move before its gradient stops. CISPO learned less than DAPO in
[small models](../results.md#small-models); on a [real model](../results.md#a-real-model) we could not tell them
apart.""",
    "entropy": """\
These methods treat tokens at which the policy is undecided differently: their weight, advantage or clip. In [small
models](../results.md#small-models) TEPO, HAPO and GRPO-S learned less than DAPO on some tasks, and GTPO 0.02 more on
one. On a [real model](../results.md#a-real-model) we could not tell any of the four from DAPO.""",
    "probability": """\
These methods weigh a token by its probability. TR-GRPO as its paper writes it learned less than DAPO in [most of our
runs](../results.md). Its default, with the weight on the advantage, could not be told from DAPO on a real model.""",
    "segments": """\
These methods measure which tokens or parts of a response earned the reward, some with extra samples. In [exact
worlds](../exact.md) VinePPO and SPO make more progress with a response and less with a sampled token than DAPO.""",
    "critics": """\
These methods estimate the value of each token. They need [a value head](../embedded.md#a-critic) or [verl's
critic](../verl.md#a-critic).""",
    "teachers": """\
These methods learn from the probabilities of a teacher. With a better-trained teacher, `opd` and `gkd` learned faster
than rewards alone [on the quickstart](../embedded.md#a-teacher). [Which distillation loss is
right?](../distillation.md) compares their expected updates.""",
}

# docs/results.md has the numbers.
REAL, SMALL = "[a real model](../results.md#methods)", "[small models](../results.md#small-models)"
MEASURED = {
    "grpo": f"undecided on {REAL}; in {SMALL} 0.02 less on one of two tasks if both are tuned, else within 0.02",
    "gspo": f"undecided on {REAL}; less on two of three tasks of {SMALL}",
    "cispo": f"undecided on {REAL}; less on some tasks of {SMALL}, in every comparison",
    "tepo": f"undecided on {REAL}; less on some tasks of {SMALL}, in every comparison",
    "gtpo": f"undecided on {REAL}; 0.02 more on one of three tasks of {SMALL}, else undecided or within 0.03",
    "grpo_s": f"undecided on {REAL}; less on one or two tasks of {SMALL}",
    "hapo": f"undecided on {REAL}; 0.02 less on two tasks of {SMALL} if both are tuned, else undecided or within 0.02",
    "tr_grpo": f"undecided on {REAL}; the literal reading learned less there and on three tasks of {SMALL}",
    "eb_cispo": "better updates in exact worlds, 0.04 to 0.05 less in [trained runs](../results.md#other-questions)",
}


def page(kind: str) -> str:
    """The page of one family."""
    title, names = FAMILIES[kind]
    names = [name for name in names if name in METHODS]
    return PAGE.format(
        generated=GENERATED.format(source="src/tokenpo/methods/"),
        title=title,
        about=ABOUT[kind],
        links=textwrap.fill(" ".join(f"[`{name}`](#{name})" for name in names), WIDTH, break_on_hyphens=False),
        sections="\n\n".join(section(name, names[:place]) for place, name in enumerate(names)),
    )


def section(name: str, before: Sequence[str] = ()) -> str:
    """A method: what it changes, its formula, its options, and where the formula was read.

    A text that a method `before` it on the page has too is not repeated.
    """
    said = prose(body(name))
    if same := [other for other in before if body(other) == body(name)]:
        said = f"The formula is [with `{same[0]}`](#{same[0]})."
    return f"## {name}\n\n{plain(summary(name))}\n\n{said}\n\n{options(name)}\n\n{origin(name)}"


def body(name: str) -> str:
    """The docstring of a builder without its first line and its arguments."""
    text = (inspect.getdoc(METHODS[name]) or "").partition("\n\nArgs:\n")[0]
    return text.partition("\n")[2].strip("\n")


def origin(name: str) -> str:
    """Paper, provenance, needs and file of a method, a line each."""
    objective, source = METHODS[name](), paper(name)
    module = inspect.unwrap(METHODS[name]).__module__
    path = "/".join(module.split(".")[1:]) + ".py"
    note = f"; open: {plain(source.note)}" if source.note else ""
    read = "; ".join(map(released, source.code.split("; "))) if source.code else ""
    lines = [
        f"*Paper*: {plain(source.title)}, {linked(source.reference)}",
        f"*Formula*: [{source.provenance}](README.md#provenance)" + (f", {read}" if read else "") + note,
        *([f"*Measured*, against DAPO: {MEASURED[name]}"] if name in MEASURED else []),
        *([f"*Needs*: {needs(objective)}"] if objective.needs else []),
        *(
            ["*Sampler*: has to apply `temperature`, which differs from token to token"]
            if objective.temperature
            else []
        ),
        *(
            ["*Scope*: batch, so that [`observe`](../ideas.md#scope) sees the whole optimiser step"]
            if objective.scope == "batch"
            else []
        ),
        *(
            [f"*Idle* with one update per rollout batch: {', '.join(code(type(p).__name__) for p in idle)}"]
            if (idle := objective.idle_on_policy)
            else []
        ),
        f"*Code*: [`{path}`](../../src/tokenpo/{path})",
    ]
    return "\n".join(f"- {line}" for line in lines)


def summary(name: str) -> str:
    """What a method changes: the first line of its builder's docstring."""
    return (inspect.getdoc(METHODS[name]) or "").partition("\n")[0]


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


def methods_tables() -> str:
    """One table a family, one row a method."""
    head = ("method", "what it changes", "paper", "provenance", "needs")
    tables = []
    for kind, (title, names) in FAMILIES.items():
        rows = [
            (
                f"[`{name}`]({kind}.md#{name})",
                cell(summary(name)),
                linked(paper(name).reference),
                paper(name).provenance,
                needs(METHODS[name]()),
            )
            for name in names
            if name in METHODS
        ]
        tables.append(f"### {title}\n\n{table(head, rows)}")
    return "\n\n".join(tables)


def inputs() -> str:
    """One row for each input that an objective may need, from its declaration."""
    owners = (("Rollouts", facts_of(Rollouts)), ("Policy", facts_of(Policy)), ("Rollouts.extra", EXTRA))
    rows = [
        (code(name), code(owner), cell(fact.described))
        for owner, declared in owners
        for name, fact in declared.items()
        if name in OPTIONAL or name in EXTRA
    ]
    return table(("need", "field of", "what it is"), rows)


def generated() -> dict[Path, str]:
    """Every generated file with what it should hold."""
    legend = "\n".join(f"- *{name}*: {meaning}" for name, meaning in PROVENANCE.items())
    notice = GENERATED.format(source="the table of methods")
    files = {PAGES / f"{kind}.md": page(kind) for kind in FAMILIES}
    files[PAGES / "README.md"] = INDEX.format(generated=notice, tables=methods_tables(), provenance=legend)
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
