"""Writes what comes from the code: in docs/methods/ the sections of methods, docs/family.svg, docs/tokens.svg, and the
tables between marks of the other pages (`MARKED`).

python tools/site/docs.py            write them
python tools/site/docs.py --check    exit 1 and name what is not what the code says
"""

import argparse
import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import family
import host_fields
import task_page
import token_picture
from layout import GENERATED, cell, code, filled, linked, plain, prose, table

from tokenpo.base.errors import TokenPOError
from tokenpo.core.facts import facts_of
from tokenpo.core.types import EXTRA, OPTIONAL, Policy, Rollouts
from tokenpo.methods import METHODS, options_of, paper
from tokenpo.methods.families import FAMILIES
from tokenpo.methods.families import family as family_of

ROOT = Path(__file__).resolve().parents[2]

PAGES = ROOT / "docs" / "methods"
PICTURE = "family.svg"
FOLDED = re.compile(r"^\*\*(Defaults|Departures|Options|Reductions)\*\*: ", re.MULTILINE)
DETAILS = (
    '<details markdown="1"><summary>Defaults, departures from the source, reductions</summary>\n\n{}\n\n</details>'
)
# What a reader may try first: method -> option and value.
TRIED = {
    "grpo": ("high", 0.28), "dapo": ("high", 0.4), "tepo": ("beta", 0.1), "gtpo": ("a2", 0.2), "grpo_s": ("b2", 0.2),
    "hapo": ("tau", 0.1), "tr_grpo": ("upper", 1.2), "ppo": ("lam", 0.95),
    "s_grpo": ("fraction", 0.7),
}  # fmt: skip
ELSEWHERE = {"tepo_v1": "tepo"}  # methods whose formula another page has
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

Start with [`dapo`](baselines.md#dapo); [Which method for my run?](../which_method.md) says when to take another. On the
page of its family a method has its idea, when to take it, what we measured, its formula and its options.

`tokenpo show NAME` prints the parts of a method. The tests compare value and gradient of each with a [reference
implementation](../../tests/oracles) in NumPy. [Engines](../engines.md#which-method-runs-where) lists what runs where,
[Papers](../papers.md) the sources.

{tables}

## Provenance

Where we found a formula. "Second-hand" and "reconstructed" methods may differ from their paper.

{provenance}
"""


def page(kind: str) -> str:
    """The page of one family, written by hand but for the sections of its methods."""
    names = [name for name in FAMILIES[kind][1] if name in METHODS]
    text = (PAGES / f"{kind}.md").read_text(encoding="utf-8")
    return filled(text, {name: functools.partial(section, name, names[:place]) for place, name in enumerate(names)})


def section(name: str, before: Sequence[str] = ()) -> str:
    """A method: a snippet, its formula, its options, its source, and folded what the source leaves open.

    A text that a method `before` it on the page has too, or that another page has, is not repeated.
    """
    text, folded = prose(body(name)), ""
    if same := [other for other in before if body(other) == body(name)]:
        text = f"The formula is [with `{same[0]}`](#{same[0]})."
    elif name in ELSEWHERE:
        text = f"The formula is [with `{ELSEWHERE[name]}`]({family_of(ELSEWHERE[name])}.md#{ELSEWHERE[name]})."
    elif found := FOLDED.search(text):
        folded = DETAILS.format(text[found.start() :])
        text = text[: found.start()].rstrip()
    told = paper(name).provenance.replace(" + ", " and ")
    doubt = f"> May differ from the paper: {told}." if re.search("hand|recon", told) else ""
    return "\n\n".join(
        piece for piece in (doubt, snippet(name), text, options(name), origin(name, before), folded) if piece
    )


def snippet(name: str) -> str:
    """How to use a method in Python and in TRL, with a value that one may try for the option that is most its own."""
    chosen = TRIED.get(name) or next(tried(name), None)
    key, value = chosen or ("", None)
    word = repr(value).replace("'", '"')
    lines = [f'tokenpo.method("{name}"' + (f", {key}={word})" if key else ")")]
    answer = host_fields.answer(name, host_fields.ENGINES["TRL"])
    if answer in ("runs", "`rollout_logprob`"):
        options_given = f', method_options={{"{key}": {word}}}' if key else ""
        vllm = " with vLLM" * (answer != "runs")
        lines.append(f'GRPOConfig("runs/{name}", method="{name}"{options_given})  # TRL{vllm}')
    return "```py\n" + "\n".join(lines) + "\n```"


def tried(name: str) -> Iterator[tuple[str, Any]]:
    """Options with another value than the default that the method takes, those of its own first."""
    given = options_of(METHODS[name])
    common = ("high", "low", "dual", "beta")
    for key in sorted(given, key=lambda key: common.index(key) if key in common else -1):
        default = given[key].default
        values = list(given[key].choices) or [not default] if isinstance(default, bool) or given[key].choices else []
        if isinstance(default, int | float) and not isinstance(default, bool):
            values = [2 * default, default / 2]
        for value in values:
            with contextlib.suppress(TokenPOError):
                if value != default and METHODS[name](**{key: value}):
                    yield key, value


def body(name: str) -> str:
    """The docstring of a builder without its first line and its arguments."""
    text = (inspect.getdoc(METHODS[name]) or "").partition("\n\nArgs:\n")[0]
    return text.partition("\n")[2].strip("\n")


def origin(name: str, before: Sequence[str] = ()) -> str:
    """Paper, provenance, needs and file of a method, a line each."""
    objective, source = METHODS[name](), paper(name)
    module = inspect.unwrap(METHODS[name]).__module__
    path = "/".join(module.split(".")[1:]) + ".py"
    note = f"; open: {plain(source.note)}" if source.note else ""
    read = "; ".join(map(released, source.code.split("; "))) if source.code else ""
    told = [
        f"*Paper*: {plain(source.title)}, {linked(source.reference)}",
        f"*Formula*: [{source.provenance}](README.md#provenance)" + (f", {read}" if read else "") + note,
    ]
    if same := [other for other in before if paper(other) == source]:
        told = [f"*Paper* and *formula*: as [`{same[0]}`](#{same[0]})"]
    idle = ", ".join(code(type(part).__name__) for part in objective.idle_on_policy)
    told[-1] += f"; code in [`{path}`](../../src/tokenpo/{path})"
    lines = [
        *told,
        *([f"*Needs*: {', '.join(map(code, sorted(objective.needs)))}"] if objective.needs else []),
        *(["*Sampler*: has to apply a `temperature` that differs between tokens"] if objective.temperature else []),
        *(["*Scope*: [the whole optimiser step](../ideas.md#scope)"] if objective.scope == "batch" else []),
        *([f"*Without effect with one update per rollout batch*: {idle}"] if idle else []),
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


def options(name: str) -> str:
    """The builder's keywords as a table: values, default and meaning from its signature."""
    rows: list[tuple[str, ...]] = []
    for key, option in options_of(METHODS[name]).items():
        if not option.words:
            raise SystemExit(f"{name}: the annotation of option {key} has no words")
        names = [f'"{choice}"' for choice in option.choices] or option.kinds
        values = cell(short(option.allowed.text)) if option.allowed else " or ".join(map(code, names))
        rows.append((f"`{key}`", values, code(repr(option.default)), cell(option.words)))
    if [row[-1] for row in rows if row[0] in ("`low`", "`high`")] == ["clip below", "clip above"]:
        low, high = (next(row for row in rows if row[0] == key) for key in ("`low`", "`high`"))
        both = tuple(f"{one}, {other}" for one, other in zip(low, high, strict=True))
        rows = [both if row == low else row for row in rows if row != high]
    return table(("option", "value", "default", "meaning"), rows) if rows else "None."


def short(text: str) -> str:
    """A range in signs: "a finite number >= 0" becomes "≥ 0, finite"."""
    text = re.sub(r"^a finite number ([<>]=? \S+?)(,|$)", r"\1, finite\2", text)
    return re.sub(r"^a number ", "", text).replace(">=", "≥").replace("<=", "≤").removeprefix("in ")


def methods_tables() -> str:
    """One table a family, one row a method."""
    head = ("method", "what it changes", "provenance")
    tables = []
    for kind, (title, names) in FAMILIES.items():
        rows = [
            (f"[`{name}`]({kind}.md#{name})", cell(summary(name)), paper(name).provenance)
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


# Page -> mark -> the table between the marks.
MARKED = {**host_fields.TABLES, "family": family.TABLES, "tasks": task_page.TABLES, "ideas": {"inputs": inputs}}


def generated() -> dict[Path, str]:
    """Every generated file with what it should hold."""
    legend = "\n".join(f"- *{name}*: {meaning}" for name, meaning in PROVENANCE.items())
    notice = GENERATED.format(source="the table of methods")
    files = {PAGES / f"{kind}.md": page(kind) for kind in FAMILIES if (PAGES / f"{kind}.md").exists()}
    files[PAGES / "README.md"] = INDEX.format(generated=notice, tables=methods_tables(), provenance=legend)
    files[PAGES.parent / PICTURE] = family.picture(METHODS)
    files[PAGES.parent / "tokens.svg"] = token_picture.drawing()
    for name, tables in MARKED.items():
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
