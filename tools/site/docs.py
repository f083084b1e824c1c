"""Writes what comes from the code: in docs/methods/ the sections of methods, docs/family.svg, docs/tokens.svg, and the
tables between marks of the other pages (`MARKED`).

python tools/site/docs.py            write them
python tools/site/docs.py --check    exit 1 and name what is not what the code says
"""

import argparse
import functools
import inspect
import itertools
import json
import operator
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import family
import host_fields
import pushes
import task_page
import token_picture
from layout import GENERATED, cell, code, filled, linked, plain, prose, table

from tokenpo.core.facts import facts_of
from tokenpo.core.types import EXTRA, OPTIONAL, Policy, Rollouts
from tokenpo.methods import METHODS, options_of, paper
from tokenpo.methods.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]

PAGES = ROOT / "docs" / "methods"
PICTURE = "family.svg"
FOLDED = re.compile(r"^\*\*(Defaults|Departures|Notes?|Options)\*\*: ", re.MULTILINE)
REDUCTIONS = re.compile(r"^Reductions: .*(?:\n(?!Note).+)*\n?", re.MULTILINE)  # for developers: the docstring has them
DETAILS = '<details markdown="1"><summary>{}</summary>\n\n{}\n\n</details>'
# An example of a method with an option: method -> options.
TUNED = {
    "grpo": {"high": 0.28}, "dapo": {"high": 0.4}, "igrpo": {"drafts": 4}, "gdpo": {"weights": (1.0, 0.5)},
    "tepo": {"low": 3e-4, "high": 4e-4}, "gtpo": {"a2": 0.2}, "grpo_s": {"b2": 0.2}, "hapo": {"tau": 0.1},
    "clip_cov": {"fraction": 2e-3}, "kl_cov": {"coef": 0.5}, "forking_tokens": {"fraction": 0.4},
    "skywork_entropy": {"target": 0.4}, "tr_grpo": {"upper": 1.2},
    "s_grpo": {"fraction": 0.7}, "cispo": {"high": 0.4}, "ce_gppo": {"beta1": 0.5}, "dro": {"beta": 0.1},
    "luspo": {"low": 3e-4, "high": 4e-4}, "tepo_v1": {"low": 3e-4, "high": 4e-4},
    "vineppo": {"continuations": 4}, "spo": {"continuations": 4},
    "gtpo_conflict": {"most": 2.0}, "ppo": {"lam": 0.95},
    "opd": {"rewards": True}, "gkd": {"beta": 1.0}, "sdar": {"coef": 0.2},
}  # fmt: skip
# What a part does that is without effect while the policy is the one that sampled.
IDLE = {
    "MaskedKl": "its KL", "BelowOld": "its KL", "Anchor": "its penalty", "ToOld": "its penalty",
    "FutureWeight": "its weights", "Strayed": "its mask",
}  # fmt: skip
# What a loop has to give a method beyond the inputs of GRPO: name of the input -> in plain words.
GIVEN = {
    "entropy": "entropies", "old_entropy": "entropies", "entropy_drift": "logits", "turn": "turns",
    "old_collision": "squared probabilities", "ref_logprob": "a reference", "teacher_logprob": "a teacher",
    "rollout_logprob": "the sampler's log-probabilities", "prompt_logprob": "log-probabilities of prompts",
    "teacher_divergence": "a teacher", "value": "a critic", "gain": "more generations", "drafts": "more generations",
    "baseline": "a greedy answer", "token_ids": "token ids", "staleness": "ages of tokens", "anchor": "states",
    "influence": "hidden states", "divergence": "whole distributions", "rewards": "several rewards",
    "token_reward": "rewards of tokens",
}  # fmt: skip
MEASURED = re.compile(r"\*\*(?:Measured\*\*: (.*?)|Not measured\*\*)\.(?= |$)")
# Where a comparison was made, in a word -> how its piece of the sentence ends.
PLACES = {"real": "on the real model", "small": "on small models", "worlds": "in exact worlds"}
# Families that act on the ratio, so that their first update of a batch may be another method's.
RATIOS = ("responses", "trust", "entropy", "probability")
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

Start with [`dapo`](baselines.md#dapo). [Which method for my run?](../which_method.md) says when to take another, and
[Results](../results.md) how much methods differed. A family's page says which to try first, what we
measured, and what a method needs.

{families}

## Shared by all

Unless its section says otherwise:

- Deviations have ddof 1, a group's also eps 1e-6. A group of one, or of equal rewards, has advantage 0; some frameworks
  take a single response's reward as its advantage.
- Log-ratios are bounded to ±20 nats. Quantiles are nearest-rank.
- What looks at many tokens looks at the whole optimiser step. Authors' code often looks at a micro-batch, so its loss
  depends on how the step is split.
- No KL to a reference (beta 0), because verifiable rewards are usually trained without one.

## Provenance

Where we found a formula. "Second-hand" and "reconstructed" methods may differ from their paper.

{provenance}

`tokenpo show NAME` prints the parts of a method. The tests compare the value and gradient of each method with a
[reference implementation](../../tests/oracles) in NumPy. [Engines](../engines.md#which-method-runs-where) lists what
runs where, [Papers](../papers.md) the sources.
"""


def page(kind: str) -> str:
    """The page of one family, written by hand but for the sections of its methods."""
    names = [name for name in FAMILIES[kind][1] if name in METHODS]
    text = (PAGES / f"{kind}.md").read_text(encoding="utf-8")
    sections = {name: functools.partial(section, name, names[:place]) for place, name in enumerate(names)}
    tables = {"pushes": lambda: pushes.pushes(kind)} if kind in pushes.COLUMNS else {}
    return filled(text, {"methods": lambda: overview(text, kind, names), **tables, **sections})


def overview(text: str, kind: str, names: Sequence[str]) -> str:
    """The table on top of a family's page; a column whose cells are all the same is left out."""
    head = ("method", "idea", "measured", "first update", "needs beyond GRPO", "formula from")
    rows = []
    for name in names:
        objective, answer = METHODS[name](), host_fields.answer(name, host_fields.ENGINES["TRL"])
        given = dict.fromkeys(GIVEN[need] for need in sorted(objective.needs))
        given |= {"temperatures of tokens": None} if objective.temperature else {}
        given |= {"two updates a batch": None} if len(objective.split()) > 1 else {}
        trl = {"runs": "", "`rollout_logprob`": " (TRL: vLLM)"}.get(answer, " (not in TRL)")
        needs = (", ".join(given) or "nothing") + trl
        made = pushes.first_update(name) if kind in RATIOS else ""
        rows.append(
            (f"[`{name}`](#{name})", cell(summary(name)), measured(text, name), made, needs, paper(name).provenance)
        )
    kept = [place for place in range(len(head)) if len(rows) < 3 or len({row[place] for row in rows}) > 1]
    left = [f"Formulas are all from {rows[0][5]}."] * (5 not in kept)
    left += [f"All need {rows[0][4]}.".replace("All need nothing", "None needs more than GRPO")] * (4 not in kept)
    head, *rows = (tuple(row[place] for place in kept) for row in (head, *rows))
    return "\n\n".join([table(head, rows), *([" ".join(left)] if left else [])])


def measured(text: str, name: str) -> str:
    """What was measured, by the first sentence of a section that says so, less what stands in brackets, shortened.

    A method that was trained on language models gets no word of the exact worlds.
    """
    own = re.split(r"^<!--", text.partition(f"\n## {name}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = MEASURED.search(" ".join(own.split()))
    if not found:
        raise SystemExit(f"docs/methods: the section of {name} has no sentence **Measured**: ... or **Not measured**.")
    told = re.sub(r" \([^)]*\)", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found[1] or "–"))
    trained, _, _ = told.rpartition("; ")
    pieces = []
    for piece in (trained or told).split(", "):
        where = next((short for short, place in PLACES.items() if piece.endswith(place)), "")
        said = piece.removesuffix(PLACES.get(where, "")).strip().removeprefix("reward ").removesuffix(" comparisons")
        pieces.append(f"{where}: {said}" if where else said)
    return "; ".join(pieces)


def section(name: str, before: Sequence[str] = ()) -> str:
    """A method: its source, a snippet, its formula, and folded its options, needs, defaults and departures.

    What it shares with a method `before` it on the page is not repeated.
    """
    first = next((other for other in before if paper(other) == paper(name)), "")
    text, folded = prose(body(name, whole=not (first and paper(name).about))), ""
    if found := FOLDED.search(text):
        text, folded = text[: found.start()].rstrip(), text[found.start() :]
    elif first and paper(name).about:
        folded = f"Defaults and departures: [with `{first}`](#{first})."
    keywords = ", ".join(f"<code>{key}</code>" for key in options_of(METHODS[name]))
    details = "\n\n".join(piece for piece in (options(name), needs(name), folded) if piece)
    shown = DETAILS.format(f"Options: {keywords}" if keywords else "Details", details)
    return "\n\n".join((origin(name, first), snippet(name), text, shown))


def snippet(name: str) -> str:
    """How to use a method in Python and in TRL, then an example of an option with the method's own words."""
    lines = [f'tokenpo.method("{name}")']
    answer = host_fields.answer(name, host_fields.ENGINES["TRL"])
    if answer in ("runs", "`rollout_logprob`"):
        passes = len(METHODS[name]().split())
        more = f", num_iterations={passes}" * (passes > 1)
        more += ", use_vllm=True" * (answer != "runs")
        lines.append(f'GRPOConfig("runs/{name}", method="{name}"{more})')
    if chosen := TUNED.get(name):
        METHODS[name](**chosen)  # raises where the method does not take them
        given = [options_of(METHODS[name])[key] for key in chosen]
        values = map(literal, chosen.values())
        meant = ", ".join(option.words.partition("; ")[0] for option in given)
        before = ", ".join(literal(option.default) for option in given)
        pairs = list(zip(chosen, values, strict=True))
        made = f'tokenpo.method("{name}", {", ".join(f"{key}={value}" for key, value in pairs)})'
        if len(lines) > 1:
            words = ", ".join(f'"{key}": {value}' for key, value in pairs)
            made = lines[-1].replace(f'method="{name}"', f'method="{name}", method_options={{{words}}}')
        lines.append(f"{made}  # {meant}; default {before}")
    return "```py\n" + "\n".join(lines) + "\n```"


def body(name: str, *, whole: bool = True) -> str:
    """The docstring of a builder without its first line, its reductions and its arguments.

    Args:
        whole: with the text that it shares with the other methods of its paper.
    """
    build = METHODS[name] if whole else inspect.unwrap(METHODS[name])
    text = (inspect.getdoc(build) or "").partition("\n\nArgs:\n")[0]
    return REDUCTIONS.sub("", text.partition("\n")[2]).strip("\n")


def origin(name: str, first: str) -> str:
    """Paper and provenance of a method, in a paragraph; `first` is a method of the page from the same paper."""
    source = paper(name)
    if first:
        return f"*Paper* and source of the formula: as [`{first}`](#{first})."
    doubt = ", so it may differ from the paper" if re.search("hand|recon", source.provenance) else ""
    note = f". {plain(source.note[0].upper() + source.note[1:])}" if source.note else ""
    read = "" if doubt or source.provenance == "own" else "from "
    told = f"*Formula*: {read}[{source.provenance}](README.md#provenance){doubt}{note}."
    return f"*Paper*: {plain(source.title)}, {linked(source.reference)}.\n{told}"


def needs(name: str) -> str:
    """The inputs, the scope and the files of a method."""
    objective, read = METHODS[name](), paper(name).code
    module = inspect.unwrap(METHODS[name]).__module__
    path = "/".join(module.split(".")[1:]) + ".py"
    idle = " and ".join(dict.fromkeys(IDLE[type(part).__name__] for part in objective.idle_on_policy))
    told = [
        *([f"*Needs*: {', '.join(map(code, sorted(objective.needs)))}"] if objective.needs else []),
        *(["*Sampler*: has to apply a `temperature` that differs between tokens"] if objective.temperature else []),
        *(["*Scope*: [the whole optimiser step](../ideas.md#scope)"] if objective.scope == "batch" else []),
        *([f"*Without effect with one update per rollout batch*: {idle}"] if idle else []),
        f"*Code*: [`{Path(path).name}`](../../src/tokenpo/{path})"
        + (f", after {'; '.join(released(read))}" if read else ""),
    ]
    return "\n".join(f"{one}." for one in told)


def summary(name: str) -> str:
    """What a method changes: the first line of its builder's docstring."""
    return (inspect.getdoc(METHODS[name]) or "").partition("\n")[0]


def released(read: str) -> Iterator[str]:
    """The files that were read, as `Paper.code` names them: linked where they are in a repository."""
    places = (place.partition(":") for place in read.split("; "))
    for where, files in itertools.groupby(places, key=operator.itemgetter(0)):
        repository, _, commit = where.partition("@")
        at = f"https://github.com/{repository}/blob/{commit}/"
        told = [f"[`{path}`]({at}{path})" if commit else f"`{path}`" for _, _, path in files]
        yield ", ".join([f"{repository} at {commit}" if commit else where, *told])


def options(name: str) -> str:
    """The builder's keywords as a list: default, meaning and values from its signature."""
    rows: list[tuple[str, str, str]] = []
    for key, option in options_of(METHODS[name]).items():
        if not option.words:
            raise SystemExit(f"{name}: the annotation of option {key} has no words")
        choices = [f'"{choice}"' for choice in option.choices]
        named = all(choice in option.words for choice in choices)
        values = short(option.allowed.text) if option.allowed else ", ".join(choices) * (not named)
        rows.append((f"`{key}={literal(option.default)}`", option.words, values))
    if [words for given, words, _ in rows if given.startswith(("`low=", "`high="))] == ["clip below", "clip above"]:
        low, high = (next(row for row in rows if row[0].startswith(f"`{key}=")) for key in ("low", "high"))
        both = (f"{low[0]}, {high[0]}", "clip below, above", f"{low[2]}; {high[2]}")
        rows = [both if row == low else row for row in rows if row != high]
    return "\n".join(f"- {given}: {plain(words + f' ({values})' * bool(values))}" for given, words, values in rows)


def literal(value: object) -> str:
    """A default as one writes it in Python, its strings in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def short(text: str) -> str:
    """A range in signs: "a finite number >= 0" becomes "≥ 0"."""
    text = re.sub(r"^a whole number", "integer", text)
    return re.sub(r"^a (finite )?number( |$)", "", text).replace(">=", "≥").replace("<=", "≤").removeprefix("in ")


def families() -> str:
    """The methods of each family as links."""
    told = []
    for kind, (title, names) in FAMILIES.items():
        links = (f"[`{name}`]({kind}.md#{name})" for name in names if name in METHODS)
        told.append(f"### [{title}]({kind}.md)\n\n{', '.join(links)}")
    return "\n\n".join(told)


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
    files[PAGES / "README.md"] = INDEX.format(generated=notice, families=families(), provenance=legend)
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
