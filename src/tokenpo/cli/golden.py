"""`tokenpo golden`: worked-out values of a method, which another implementation can be held to."""

from __future__ import annotations

import argparse
from typing import Any

from ..base.errors import TokenPOError
from .options import METHOD, add_command, need, path


def add(commands: Any) -> None:
    """The parser of `tokenpo golden`."""
    parser = add_command(
        commands, "golden", "worked-out values of a method as JSON, for implementations in any language"
    )
    parser.add_argument("method", metavar="METHOD", help=f"{METHOD}; METHOD:KEY=VALUE,... with options")
    parser.add_argument("--out", metavar="FILE", type=path, help="where to write them; without it they are printed")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    parser.set_defaults(run=golden)


def golden(options: argparse.Namespace) -> int:
    """Writes or prints the values, one input or stage to a line."""
    need("pydantic")
    from ..base.files import write_whole
    from ..lab.golden import golden as values
    from ..recipe.command_line import parse_entries
    from ..recipe.objective import build_entry

    entries = parse_entries(options.method, "golden")
    if len(entries) > 1:
        raise TokenPOError(f"golden {options.method!r} names {len(entries)} methods: give one at a time")
    text = _text(values(entries[0].label, build_entry(entries[0]), options.seed))
    if options.out is None:
        print(text, end="")
        return 0
    try:
        write_whole(options.out, text)
    except OSError as error:
        raise TokenPOError(f"cannot write {options.out}: {error.strerror}; give another place") from error
    print(f"written: {options.out}")
    return 0


def _text(values: dict[str, Any]) -> str:
    """JSON with a line for each name, so that two files can be compared by eye."""
    import json

    def lines(value: Any, indent: str) -> str:
        if not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        rows = [f"{indent} {json.dumps(key, ensure_ascii=False)}: {lines(x, indent + ' ')}" for key, x in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"

    return lines(values, "") + "\n"
