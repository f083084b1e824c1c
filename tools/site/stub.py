"""The stub of `tokenpo.methods`, from the builders: with it an editor offers the options of `method("hapo", ...)` and a
type checker knows them, although `method` takes any name.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

from tokenpo.methods import METHODS, kinds_of, options_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tokenpo" / "methods" / "__init__.py"
STUB = SOURCE.with_suffix(".pyi")
HEAD = '''\
# Written by tools/site/docs.py from the builders: change those, then run `make docs`.
# The overloads for names of the table come first, so that what overlaps is never ambiguous.
# pyright: reportOverlappingOverload=false
"""One paper, one file, one builder in the table."""

from collections.abc import Callable
from typing import Any, Literal, overload

from ..core.objective import Objective
'''
REST = '''\
METHODS: dict[str, Callable[..., Objective]]

class WrongOptions:
    """What a type checker makes of `method` with an option or a kind that the method does not have: it would raise."""

def builder(name: str) -> Callable[..., Objective]: ...
def paper(name: str) -> Paper: ...
'''
LAST = """\
@overload
def method(name: Known, **options: Any) -> WrongOptions: ...
@overload
def method(name: str, **options: Any) -> Objective: ...
"""


def text() -> str:
    """The whole file; ruff has nothing to format in it."""
    known = "".join(f'    "{name}",\n' for name in METHODS)
    return f"{HEAD}{_imports()}\n{REST}\nKnown = Literal[\n{known}]\n\n{''.join(map(_overload, METHODS))}{LAST}"


def _imports() -> str:
    """What the package takes from its files and offers itself."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (offered,) = (ast.literal_eval(x.value) for x in assigned if ast.unparse(x.targets[0]) == "__all__")
    lines = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            lines += [f"from .{node.module} import {x.name} as {x.name}\n" for x in node.names if x.name in offered]
    return "".join(sorted(lines))


def _written(default: object) -> str:
    return json.dumps(default) if isinstance(default, str) else repr(default)


def _overload(name: str) -> str:
    build = METHODS[name]
    options = [
        f"    {option}: {' | '.join(kinds_of(parameter))} = {_written(parameter.default)},\n"
        for option, parameter in options_of(build).items()
    ]
    summary = (inspect.getdoc(build) or "").partition("\n")[0]
    star = "    *,\n" if options else ""
    head = f'@overload\ndef method(\n    name: Literal["{name}"],\n{star}{"".join(options)}) -> Objective:\n'
    return f'{head}    """{summary}"""\n\n'
