"""`tokenpo show`: the formula of a method, its options and choices, or a picture of its fingerprint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from .options import ONE_METHOD, add_command, add_flag, argument, need, one_entry, place


def add(commands: Any) -> None:
    parser = add_command(commands, show, "the formula of a method, its options and its choices")
    argument(parser, "method", "METHOD", ONE_METHOD)
    add_flag(parser, "--fingerprint", "what its push on a token depends on, and its picture with --out")
    place(parser, "--out", "FILE", "the picture, an .svg, or a directory for it", folder=True)


def show(options: argparse.Namespace) -> int:
    """Prints the docstrings of file and builder, and the objective; or how hard it pushes a token, and draws it."""
    import inspect

    from ..methods import builder

    entry = one_entry(options.method, "show")
    objective = _built(entry)
    if options.fingerprint:
        return _fingerprint(options.out, entry.label, objective)
    if options.out:
        raise TokenPOError("show writes a file only with --fingerprint: add it, or leave out --out")
    build = builder(entry.method)
    # The signature without the annotations, whose place is the docstring.
    parameters = ", ".join(str(p.replace(annotation=p.empty)) for p in inspect.signature(build).parameters.values())
    print((inspect.getdoc(inspect.getmodule(inspect.unwrap(build))) or "").strip())
    if source := getattr(build, "paper", None):
        print(f"\nPaper: {source.title}, {source.reference}; provenance: {source.provenance}")
    print(f"\n{entry.method}({parameters})\n\n{inspect.getdoc(build) or ''}\n\n{objective}")
    return 0


def _built(entry: Any) -> Any:
    """The objective of one entry; options are read as a recipe's are."""
    if not entry.options:
        from ..methods import method

        return method(entry.method)
    need("pydantic")
    from ..recipe.objective import build_entry

    return build_entry(entry)


def _fingerprint(out: Path | None, label: str, objective: Any) -> int:
    from ..lab.fingerprint.drawing import ranges, write
    from ..methods import method

    base = method("grpo")
    print("\n".join(ranges(label, objective)))
    file = out and (out / f"{objective.name}-fingerprint.svg" if out.is_dir() else out)
    print(f"picture: {write(label, objective, base, file)}" if file else "as a picture: --out FILE.svg")
    return 0
