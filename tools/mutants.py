"""Breaks core and methods on purpose, one expression at a time, and lists every break that no test notices.

    python tools/mutants.py [PATTERN ...]     such as "tokenpo.core.ops.ratio.*"; default: everything

mutmut does it: [tool.mutmut] in pyproject.toml names files and tests, `mutants/` keeps what was found, so that only
functions that changed are tried again, and `mutmut browse` shows it. The ways of breaking are the ones below: what is
lost in a loss is a stop-gradient, a bound or a mask, and mutmut's own have none of these. A survivor is a test that is
missing, or a change that changes nothing; which of the two, a reader decides. Not broken are properties, defaults of
fields and constants of modules, which mutmut does not reach.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import libcst as cst
import libcst.matchers as m
from mutmut.__main__ import cli
from mutmut.mutation import file_mutation, mutators

ROOT = Path(__file__).resolve().parents[1]
DROPPED = {"detach", "clamp", "clamp_", "masked_fill", "double", "abs", "square", "sqrt", "log", "exp"}
SWAPPED = {"min": "max", "amin": "amax", "minimum": "maximum"}
SWAPPED |= {b: a for a, b in SWAPPED.items()}
NEGATED = {
    cst.LessThan: cst.GreaterThanEqual, cst.GreaterThanEqual: cst.LessThan, cst.GreaterThan: cst.LessThanEqual,
    cst.LessThanEqual: cst.GreaterThan,
}  # fmt: skip
# Their functions stay functions; mutmut leaves out everything that is decorated.
DECORATORS = re.compile(r"Paper\(.*\)|PAPER|torch\.(no|enable)_grad\(\)|functools\.cache", re.DOTALL)


def bracketed(x: cst.BaseExpression) -> cst.BaseExpression:
    return x.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def lost_call(node: cst.Call) -> Iterator[cst.CSTNode]:
    """x.detach(), x.clamp(...), torch.log(x) → x; where(m, a, b) → a; min= ↔ max=."""
    function = node.func
    if isinstance(function, cst.Attribute) and function.attr.value in DROPPED:
        free = m.matches(function.value, m.Name("torch"))
        yield bracketed(node.args[0].value if free else function.value)
    if isinstance(function, cst.Attribute) and function.attr.value == "where" and len(node.args) == 3:
        yield bracketed(node.args[1].value)
    names = [arg.keyword and arg.keyword.value for arg in node.args]
    for i, name in enumerate(names):
        if name in ("min", "max") and SWAPPED[name] not in names:
            other = node.args[i].with_changes(keyword=cst.Name(SWAPPED[name]))
            yield node.with_changes(args=[*node.args[:i], other, *node.args[i + 1 :]])


def lost_mask(node: cst.BinaryOperation) -> Iterator[cst.CSTNode]:
    """a & b → a, b."""
    if isinstance(node.operator, cst.BitAnd):
        yield bracketed(node.left)
        yield bracketed(node.right)


def lost_sign(node: cst.UnaryOperation) -> Iterator[cst.CSTNode]:
    """−x → x; but −1 as a dimension stays."""
    if isinstance(node.operator, cst.Minus) and not isinstance(node.expression, cst.Integer):
        yield bracketed(node.expression)


def other_extreme(node: cst.Attribute) -> Iterator[cst.CSTNode]:
    """x.min ↔ x.max; torch.inf → −torch.inf."""
    if node.attr.value in SWAPPED:
        yield node.with_changes(attr=cst.Name(SWAPPED[node.attr.value]))
    if node.attr.value == "inf":
        yield bracketed(cst.UnaryOperation(cst.Minus(), node))


def other_reduction(node: cst.SimpleString) -> Iterator[cst.CSTNode]:
    """The "amin" of a scatter_reduce ↔ "amax"."""
    if (name := node.value.strip("\"'")) in SWAPPED:
        yield node.with_changes(value=f'"{SWAPPED[name]}"')


def other_side(node: cst.ComparisonTarget) -> Iterator[cst.CSTNode]:
    """a < b → a >= b; mutmut's own is a <= b."""
    if other := NEGATED.get(type(node.operator)):
        yield node.with_changes(operator=other())


def other_branch(node: cst.If) -> Iterator[cst.CSTNode]:
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), bracketed(node.test)))


OURS = [
    (cst.Call, lost_call), (cst.BinaryOperation, lost_mask), (cst.UnaryOperation, lost_sign),
    (cst.Attribute, other_extreme), (cst.SimpleString, other_reduction), (cst.ComparisonTarget, other_side),
    (cst.If, other_branch),
]  # fmt: skip
# Of mutmut's: the others change texts, or put None where a tensor belongs, which is only another crash.
THEIRS = {
    mutators.operator_number, mutators.operator_name, mutators.operator_remove_unary_ops, mutators.operator_swap_op,
    mutators.operator_keywords, mutators.operator_if_exp,
}  # fmt: skip


def teach() -> None:
    """Gives mutmut these ways of breaking, and the decorated functions that it can try."""
    mutators.mutation_operators[:] = [rule for rule in mutators.mutation_operators if rule[1] in THEIRS] + OURS
    skips = file_mutation.MutationVisitor._skip_node_and_children

    def left_out(visitor: object, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef) and node.decorators:
            written = [cst.Module([]).code_for_node(decorator.decorator) for decorator in node.decorators]
            if all(DECORATORS.fullmatch(text) for text in written):
                return False
        # Not a message, nor what only checks.
        return isinstance(node, cst.Raise | cst.Assert | cst.FormattedString) or skips(visitor, node)

    file_mutation.MutationVisitor._skip_node_and_children = left_out


def report(patterns: list[str]) -> None:
    """Prints how many of each file were noticed, and every survivor as a diff."""
    found = dict(re.findall(r"^\s+(\S+): (.+)$", asked("results", "--all", "true"), re.MULTILINE))
    wanted = {name: verdict for name, verdict in found.items() if any(fnmatch(name, p) for p in patterns or ["*"])}
    for (module, verdict), count in sorted(Counter((name.rpartition(".")[0], x) for name, x in wanted.items()).items()):
        print(f"{module:<44}{verdict:<20}{count:>5}")
    for name, verdict in wanted.items():
        if verdict not in ("killed", "timeout"):
            changed = [line for line in asked("show", name).splitlines() if re.match(r"[+-](?![+-])", line)]
            print(f"\n{verdict}: {name}", *changed, sep="\n")


def asked(*words: str) -> str:
    command = [sys.executable, "-m", "mutmut", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    teach()
    cli(["run", "--max-children", "2", *sys.argv[1:]], standalone_mode=False)
    report(sys.argv[1:])


if __name__ == "__main__":
    main()
