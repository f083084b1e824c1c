"""The exact value of an arithmetic expression that a model wrote, without evaluating it as code."""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction

_LONGEST = 200  # characters; bounds the size of every number and the depth of the tree
_ALPHABET = re.compile(r"[0-9 ()+*/-]*")
_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(text: str) -> Fraction | None:
    """The value of whole numbers joined by + - * / and brackets; None for any other text.

    >>> value_of("94*4 - 61/2")
    Fraction(691, 2)
    >>> value_of("2**3") is value_of("1/0") is value_of("x") is None
    True
    """
    if len(text) > _LONGEST or not _ALPHABET.fullmatch(text):
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise ValueError(f"{type(node).__name__} is not arithmetic")
