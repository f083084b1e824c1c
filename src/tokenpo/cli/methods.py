"""`tokenpo methods`, `show`, `check`, `exact` and `explain`: the table of methods, and what single methods do."""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..base.errors import MissingInput, TokenPOError, choose
from ..base.files import expanded, make_directory
from .options import METHODS, ONE_METHOD, add_command, need, objectives
from .streams import print_list, progress

EXAMPLES = """examples:
  tokenpo methods                            all of them
  tokenpo methods old_entropy                those with this word in their name, summary, paper or needs
  tokenpo methods --json                     everything about each, with its options and their defaults
`tokenpo show METHOD` has the formula.
"""
IN_WORLDS = """examples:
  tokenpo exact hapo tepo                     in the twelve worlds
  tokenpo exact mine.py:late --world two_modes,free_length --json late.json

Worlds, measures and what was found: docs/exact.md
"""
ON_ROLLOUTS = """examples:
  tokenpo explain rollouts.jsonl --methods grpo,dapo,tepo
  tokenpo explain runs/quickstart-tepo-seed0 --step 20 --methods grpo,hapo,hapo:tau=0,plain@hapo:tau=0,beta=0
  tokenpo explain rollouts.jsonl --methods grpo,gspo --correction icepop
  tokenpo explain rollouts.jsonl --methods grpo,gtpo --out here --tokens

The file: docs/rollouts.md. What the numbers mean: docs/explain.md
"""


def add(commands: Any) -> None:
    parser = add_command(commands, methods, "table of the methods: what each changes, its paper, its needs", EXAMPLES)
    parser.take("word", "WORD", "only methods with this in their description", nargs="?")
    parser.flag("--json", "as JSON, one object for each")
    parser = add_command(commands, show, "the formula of a method, its options and its choices")
    parser.take("method", "METHOD", ONE_METHOD)
    parser = add_command(commands, check, "test methods, also your own, against the laws that every method obeys")
    parser.take("methods", "LIST", METHODS)
    about = "compare a method's expected update with the true gradient, in small worlds"
    parser = add_command(commands, exact, about, IN_WORLDS)
    parser.take("methods", "METHOD", ONE_METHOD, nargs="+")
    parser.take("--world", "LIST", "names of worlds; default: the twelve")
    parser.take("--json", "FILE", "the numbers: value and standard error by method, world and measure")
    about = "what each method would do to every token of recorded rollouts, without training"
    parser = add_command(commands, explain, about, ON_ROLLOUTS)
    parser.take("rollouts", "ROLLOUTS", "a .jsonl file, or a run directory", type=expanded)
    parser.take("--methods", "LIST", METHODS, required=True)
    parser.take("--step", "N", "training step, where there are several; default: the last")
    parser.flag("--first-update", "explain the update at ratio 1, even where the file has log-probs of a later policy")
    quantile = "tokens at or above it have high entropy; default: 0.8"
    parser.take("--entropy-quantile", "Q", quantile, type=float, default=0.8)
    correction = "with every method, a correction for the policy that sampled: tis, icepop, seq_mis, mis_geo, ..."
    parser.take("--correction", "NAME", correction)
    parser.flag("--tokens", "also write the numbers of every token, to tokens.jsonl")
    parser.take("--out", "DIR", "directory to write; default: runs/explain-NAME")


def methods(options: argparse.Namespace) -> int:
    from ..methods import METHODS

    chosen = [described(name) for name in METHODS]
    if options.word is not None:
        word = options.word.lower()
        chosen = [method for method in chosen if word in " ".join(map(str, list(method.values())[:-1])).lower()]
        if not chosen:
            raise TokenPOError(f"no method has {options.word!r} in its description: leave it out to see them all")
    if options.json:
        print(json.dumps(chosen, indent=1, ensure_ascii=False, default=str))
    else:
        print_list([("METHOD", "PAPER", "WHAT IT CHANGES [WHAT IT READS]"), *_by_family(chosen)])
    return 0


def _by_family(chosen: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The rows of the methods under the titles of their families."""
    from ..methods.families import FAMILIES

    for title, names in FAMILIES.values():
        if rows := [_row(method) for method in chosen if method["name"] in names]:
            yield from (("",), (title,), *rows)


def described(name: str) -> dict[str, Any]:
    """Name, summary, paper, provenance, needs and options of a method, for JSON."""
    from ..methods import METHODS, method, options_of, paper

    source, build = paper(name), METHODS[name]
    return {
        "name": name,
        "changes": (inspect.getdoc(build) or "").partition("\n")[0],
        "title": source.title,
        "paper": source.reference,
        "provenance": source.provenance,
        "needs": sorted(method(name).needs),
        "options": {option: parameter.default for option, parameter in options_of(build).items()},
    }


def _row(method: dict[str, Any]) -> tuple[str, str, str]:
    number = method["paper"].removeprefix("arXiv:").partition(" ")[0].rstrip(";")
    number = number.split("/")[2] if "://" in number else number  # of a page the host
    words = method["changes"] + (f" [{', '.join(method['needs'])}]" if method["needs"] else "")
    if method["provenance"] not in ("paper", "code"):  # the formula itself was not read
        words += f" ({method['provenance']})"
    return method["name"], number, words


def show(options: argparse.Namespace) -> int:
    need("pydantic")
    from ..methods import builder
    from ..train.recipe.command_line import parse_entries
    from ..train.recipe.objective import build_entry

    entry, *others = parse_entries(options.method, "show")
    if others:
        raise TokenPOError(f"show {options.method!r} names {1 + len(others)} methods: give one at a time")
    objective, build = build_entry(entry), builder(entry.method)
    # The signature without annotations, which the docstring explains.
    parameters = ", ".join(str(p.replace(annotation=p.empty)) for p in inspect.signature(build).parameters.values())
    print(f"{entry.method}({parameters})\n\n{inspect.getdoc(build) or ''}")
    if source := getattr(build, "paper", None):
        print(f"\nPaper: {source.title}, {source.reference}; provenance: {source.provenance}")
    print(f"\n{objective}")
    return 0


def check(options: argparse.Namespace) -> int:
    """Prints for each method that all laws hold, or the first that it breaks; 1 if a method breaks one."""
    need("pydantic")
    from ..core.laws import LAWS, Nonconforming, check_method, statement

    broken = 0
    # All are built first, so that mistakes in the options are found before the first check.
    for label, objective in objectives(options.methods, "check").items():
        try:
            check_method(objective)
        except Nonconforming as error:
            broken += 1
            print(f"{label}: {error}")
        else:
            print(f"{label}: all {len(LAWS)} laws hold")
    if not broken:
        print_list([(f"  {law.__name__}", statement(law)) for law in LAWS])
    return 1 if broken else 0


def exact(options: argparse.Namespace) -> int:
    need("pydantic", "rich")
    import torch

    from ..lab.exact import measures
    from ..lab.exact.worlds import WORLDS
    from ..lab.page.frame import write

    names = (options.world or ",".join(WORLDS)).split(",")
    worlds = [choose("world", name, WORLDS)() for name in names]
    chosen = objectives(measures.BASE, "exact") | objectives(",".join(options.methods), "exact")
    torch.set_num_threads(1)  # a world is small: more threads only wait for each other
    entrants = [*((label, objective, False) for label, objective in chosen.items())]
    entrants.append((measures.PERFECT, chosen[measures.BASE], True))
    results: dict[str, Any] = {}
    with progress(len(worlds) * len(entrants), "") as tell:
        for label, objective, perfect in entrants:
            for world in worlds:
                tell(sum(map(len, results.values())), label)
                results.setdefault(label, {})[world.name] = measures.measure(objective, world, perfect=perfect)
    measures.show(results, names, sys.stdout)
    if options.json:
        print(f"numbers: {write(json.dumps(results, indent=1), options.json)}")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Reads the rollouts, prints the table and writes explain.html and explain.json.

    If a method lacks an input, MissingInput is raised after everything is written.
    """
    need("pydantic", "rich", "jinja2")
    from ..lab.explain.explanation import explain_all, objectives, to_json, token_lines
    from ..lab.explain.page import render
    from ..lab.page.frame import write
    from ..lab.page.text import print_parts, visible
    from ..records import read, write_lines
    from ..train.recipe.command_line import parse_entries

    entries = parse_entries(options.methods)
    objectives(entries, options.correction)  # mistakes in the methods are found before a large file is read
    recording = read(options.rollouts, options.step)
    recording = recording.at_first_update() if options.first_update else recording
    result = explain_all(recording, entries, options.entropy_quantile, options.correction)
    lines = [*result.legend, *(f"note: {note}" for note in result.notes)]
    verdict = [result.verdict] if result.verdict else []
    print_parts([*verdict, *result.tables, *(visible(line, limit=1000) for line in lines)], sys.stdout)
    source, step = options.rollouts.resolve(), result.recording.step
    stem = source.name.removesuffix(".jsonl") if source.is_file() else source.name
    stem = re.sub(r"[^A-Za-z0-9_.=+-]+", "-", stem) or "rollouts"
    name = stem if step is None else f"{stem}-step{step}"
    out = make_directory(options.out or Path("runs", f"explain-{name}"))
    print(f"page: {write(render(result), out / 'explain.html')}")
    print(f"numbers: {write(to_json(result), out / 'explain.json')}")
    if options.tokens:
        print(f"tokens: {write_lines(out / 'tokens.jsonl', token_lines(result))}")
    if result.refused:
        raise MissingInput("; ".join(reason for _, reason in result.refused))
    return 0
