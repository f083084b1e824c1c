"""Runs the notebooks of examples/ and keeps in them what their cells show; --check says whether they are current.

python tools/site/notebooks.py                                those that show the same on every machine
python tools/site/notebooks.py examples/train_smollm2.ipynb   those named: this one trains, and takes minutes

No Jupyter is needed: a cell shows what it prints and its last expression.
"""

import ast
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from layout import write

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINS = "train_smollm2.ipynb"
Output = dict[str, Any]


def executed(text: str, name: str) -> str:
    """The notebook with the outputs of its cells, run in order and in one namespace."""
    notebook, names = json.loads(text), {"__name__": "__notebook__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["outputs"] = list(_run("".join(cell["source"]), f"{name}, cell {number}", names, number))
        cell["execution_count"] = number
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, where: str, names: dict[str, Any], number: int) -> Iterator[Output]:
    tree, value = ast.parse(source, where), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(tree, where, "exec", dont_inherit=True), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval", dont_inherit=True), names)
    if said.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": _lines(said.getvalue())}
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def quick() -> list[Path]:
    """The notebooks that show the same on every machine."""
    return sorted(path for path in EXAMPLES.glob("*.ipynb") if path.name != TRAINS)


def main() -> int:
    stale = 0
    for path in [Path(word) for word in sys.argv[1:] if word != "--check"] or quick():
        stale |= write(path, executed(path.read_text(encoding="utf-8"), path.name))
    return stale


if __name__ == "__main__":
    sys.exit(main())
