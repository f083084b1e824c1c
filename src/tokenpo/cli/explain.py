"""`tokenpo explain`: how methods would update every token of recorded rollouts."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from ..base.errors import MissingInput
from ..base.files import make_directory
from .options import METHODS, add_command, need, path

EXAMPLES = """examples:
  tokenpo explain rollouts.jsonl --methods grpo,dapo,tepo
  tokenpo explain runs/quickstart-tepo-seed0 --step 20 --methods grpo,hapo,hapo:tau=0,plain@hapo:tau=0,beta=0
  tokenpo explain rollouts.jsonl --methods grpo,gspo --correction icepop
  tokenpo explain rollouts.jsonl --methods grpo,gtpo --out here --tokens

The file: docs/rollouts.md. What the numbers mean: docs/explain.md
"""


def add(commands: Any) -> None:
    about = "what each method would do to every token of recorded rollouts, without training"
    parser = add_command(commands, explain, about, EXAMPLES)
    parser.take("rollouts", "ROLLOUTS", "a .jsonl file, or a run directory", type=path)
    parser.take("--methods", "LIST", METHODS, required=True)
    parser.take("--step", "N", "training step, where there are several; default: the last")
    parser.flag("--first-update", "explain the update at ratio 1, even where the file has log-probs of a later policy")
    quantile = "tokens at or above it have high entropy; default: 0.8"
    parser.take("--entropy-quantile", "Q", quantile, type=float, default=0.8)
    correction = "with every method, a correction for the policy that sampled: tis, icepop, seq_mis, mis_geo, ..."
    parser.take("--correction", "NAME", correction)
    parser.flag("--tokens", "also write the numbers of every token, to tokens.jsonl")
    parser.write("--out", "DIR", "directory to write; default: runs/explain-NAME")


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
