"""Files over 450 lines and functions over 50: the size budget, reported and held.

`ALLOWED` names what may exceed it, each with the reason.
"""

import ast
import sys
from pathlib import Path

FILE_LINES, FUNCTION_LINES = 450, 50
ALLOWED: dict[str, str] = {}


def oversized(root: Path) -> dict[str, int]:
    """Path or path:function to its number of lines, for everything over the budget under `root`."""
    found: dict[str, int] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > FILE_LINES:
            found[str(path)] = lines
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                # The docstring is documentation, not code.
                doc = (ast.get_docstring(node, clean=False) or "").count("\n") + 1 if ast.get_docstring(node) else 0
                if (length := node.end_lineno - node.lineno + 1 - doc) > FUNCTION_LINES:
                    found[f"{path}:{node.name}"] = length
    return found


def main() -> int:
    files = list(Path("src").rglob("*.py"))
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in files]
    found = oversized(Path("src"))
    print(f"{len(files)} files, {sum(lines)} lines, longest {max(lines)}; {len(found)} over the budget")
    for name, length in found.items():
        print(f"  {name}: {length} lines{' (' + ALLOWED[name] + ')' if name in ALLOWED else ''}")
    return int(bool(set(found) - set(ALLOWED)))


if __name__ == "__main__":
    sys.exit(main())
