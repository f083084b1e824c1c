"""What `mutants.py` changes: every way to spoil one expression of a source file."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_BOUNDARIES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
_NEGATIONS = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}
_NAMES = {
    "min": "max", "max": "min", "amin": "amax", "amax": "amin", "minimum": "maximum", "maximum": "minimum",
}  # fmt: skip
_DROPPED_METHODS = ("detach", "clamp", "masked_fill", "clamp_", "double", "abs", "square", "sqrt", "log", "exp")


@dataclass(frozen=True)
class Change:
    """One spoilt expression.

    Args:
        line: where, from 1.
        before: the lines it stands on, stripped and joined.
        after: the same, spoilt.
        text: the whole file, spoilt.
    """

    line: int
    before: str
    after: str
    text: str


def changes(source: str) -> list[Change]:
    """Every change of a file, from top to bottom."""
    tree = ast.parse(source)
    found = []
    for node in _mutable(tree):
        found += [_spliced(source, node, f"({ast.unparse(other)})") for other in _spoilt(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found += [_undecorated(source, d) for d in node.decorator_list if "no_grad" in ast.unparse(d)]
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            found.append(_spliced(source, node.test, f"not ({ast.unparse(node.test)})"))
    unique = {change.text: change for change in found if change.text != source}
    return sorted(unique.values(), key=lambda change: (change.line, change.after))


def _mutable(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions that compute: no annotations, messages, decorators, docstrings or papers."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Paper":
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: it only watches
            continue
        if name in ("annotation", "returns", "decorator_list", "slice"):  # another index is only another crash
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _spoilt(node: ast.expr) -> Iterator[ast.expr]:
    for kind, rule in _RULES:
        if isinstance(node, kind):
            yield from rule(node)


def _changed(node: ast.expr, **fields: object) -> ast.expr:
    other = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _unary(node: ast.UnaryOp) -> Iterator[ast.expr]:
    """−x, ~x, not x → x; but −1 as a dimension stays."""
    if not (isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int)):
        yield node.operand


def _binary(node: ast.BinOp) -> Iterator[ast.expr]:
    """+ ↔ −, * ↔ /, & ↔ |; one side of & alone: a mask less."""
    if swap := _SWAPS.get(type(node.op)):
        yield _changed(node, op=swap())
    if isinstance(node.op, ast.BitAnd):
        yield node.left
        yield node.right


def _logic(node: ast.BoolOp) -> Iterator[ast.expr]:
    yield _changed(node, op=_SWAPS[type(node.op)]())


def _compare(node: ast.Compare) -> Iterator[ast.expr]:
    """< ↔ <=, == ↔ != and < → >=, one comparison of a chain at a time."""
    for i, op in enumerate(node.ops):
        for table in (_BOUNDARIES, _NEGATIONS):
            if other := table.get(type(op)):
                yield _changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])


def _constant(node: ast.Constant) -> Iterator[ast.expr]:
    """Numbers change, truths are denied, names of reductions swap."""
    x = node.value
    if isinstance(x, bool):
        yield ast.Constant(not x)
    elif isinstance(x, int):
        yield ast.Constant(x + 1)
    elif isinstance(x, float):
        yield ast.Constant(x * 2 if x else 1.0)
    elif isinstance(x, str) and x in _NAMES:
        yield ast.Constant(_NAMES[x])


def _name(node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """x.min ↔ x.max, torch.inf → −torch.inf."""
    if isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield _changed(node, attr=_NAMES[node.attr])
    if isinstance(node, ast.Attribute) and node.attr == "inf":
        yield ast.UnaryOp(ast.USub(), node)


def _call(node: ast.Call) -> Iterator[ast.expr]:
    """where(m, a, b) → a; x.detach(), x.clamp(..), x.masked_fill(..) → x; min= ↔ max=."""
    function = node.func
    if isinstance(function, ast.Attribute):
        if function.attr == "where" and len(node.args) == 3:
            yield node.args[1]
        elif function.attr in _DROPPED_METHODS:
            yield node.args[0] if ast.unparse(function.value) == "torch" else function.value
    for i, keyword in enumerate(node.keywords):
        if keyword.arg in ("min", "max"):
            other = ast.keyword(_NAMES[keyword.arg], keyword.value)
            yield _changed(node, keywords=[*node.keywords[:i], other, *node.keywords[i + 1 :]])


def _conditional(node: ast.IfExp) -> Iterator[ast.expr]:
    yield _changed(node, test=ast.UnaryOp(ast.Not(), node.test))


_RULES: tuple[tuple[type | tuple[type, ...], Callable[..., Iterator[ast.expr]]], ...] = (
    (ast.UnaryOp, _unary),
    (ast.BinOp, _binary),
    (ast.BoolOp, _logic),
    (ast.Compare, _compare),
    (ast.Constant, _constant),
    ((ast.Name, ast.Attribute), _name),
    (ast.Call, _call),
    (ast.IfExp, _conditional),
)


def _spliced(source: str, node: ast.expr, text: str) -> Change:
    """The file with one expression written anew."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    raw = source.encode()
    spoilt = (raw[:begin] + text.encode() + raw[end:]).decode()
    left = raw[starts[node.lineno - 1] : begin].decode()
    right = raw[end : starts[node.end_lineno]].decode()
    before = " ".join(line.strip() for line in lines[node.lineno - 1 : node.end_lineno])
    return Change(node.lineno, before, f"{left}{text}{right}".strip(), spoilt)


def _undecorated(source: str, decorator: ast.expr) -> Change:
    lines = source.splitlines(keepends=True)
    index = decorator.lineno - 1
    return Change(decorator.lineno, lines[index].strip(), "(nothing)", "".join(lines[:index] + lines[index + 1 :]))
