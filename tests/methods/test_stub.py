"""The generated stub: a type checker knows the options of `tokenpo.method` by the method's name."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tokenpo

CODE = """
import tokenpo
from tokenpo import Objective

known: Objective = tokenpo.method("hapo", low=0.1)
misspelt: Objective = tokenpo.method("hapo", lwo=0.1)
of_another_kind: Objective = tokenpo.method("hapo", low="0.1")
ones_own: Objective = tokenpo.method("mine.py:late", anything=1)
builder: Objective = tokenpo.methods.hapo(low=0.1)

def any_name(name: str, **options: float) -> Objective:
    return tokenpo.method(name, **options)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_a_type_checker_knows_the_options(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    source = str(Path(tokenpo.__file__).parents[1])
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"include": ["code.py"], "extraPaths": [source]}))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout)
    wrong = [CODE.splitlines()[x["range"]["start"]["line"]].partition(":")[0] for x in found["generalDiagnostics"]]
    assert wrong == ["misspelt", "of_another_kind"]
