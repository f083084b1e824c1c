"""`tokenpo golden`: worked-out values of a method, to test another implementation against."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .options import ONE_METHOD, add_command, argument, need, one_entry, place


def add(commands: Any) -> None:
    about = "worked-out values of a method as JSON, for implementations in any language"
    parser = add_command(commands, golden, about)
    argument(parser, "method", "METHOD", ONE_METHOD)
    place(parser, "--out", "FILE", "where to write them; without it they are printed")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")


def golden(options: argparse.Namespace) -> int:
    """Writes or prints the values, one input or stage to a line."""
    need("pydantic", "jinja2")
    from ..lab.golden import golden as values
    from ..page.frame import write
    from ..recipe.objective import build_entry

    entry = one_entry(options.method, "golden")
    text = _text(values(entry.label, build_entry(entry), options.seed), "") + "\n"
    if options.out is None:
        print(text, end="")
    else:
        print(f"written: {write(text, options.out)}")
    return 0


def _text(value: Any, indent: str) -> str:
    """JSON with a line for each name, so that two files can be compared by eye."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    rows = [f"{indent} {json.dumps(key, ensure_ascii=False)}: {_text(x, indent + ' ')}" for key, x in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
