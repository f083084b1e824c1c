"""The table of methods: names, papers, options and their words hold together, and mistakes are named."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import tokenpo
from tokenpo.methods import METHODS, options_of, paper


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_value_with_one_name_and_says_what_its_options_mean(name: str) -> None:
    """Frozen, equal to itself built again, hashable; its builder by name and by attribute are the same."""
    build = METHODS[name]
    assert name == build.__name__ == build().name == getattr(tokenpo.methods, name).__name__
    assert tokenpo.method(name) == build() and hash(tokenpo.method(name)) == hash(build())
    with pytest.raises(dataclasses.FrozenInstanceError):
        build().name = "another"  # type: ignore[misc]
    shown = inspect.getdoc(build) or ""
    for key, option in options_of(build).items():
        assert option.words and not option.words.endswith("."), key
        assert f"\n    {key}: {option.words}" in shown
        assert option.default is None or not option.choices or option.default in option.choices, key
        for choice in option.choices:
            assert f'"{choice}"' in shown, f"{key}={choice}"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_names_its_paper_and_the_code_that_was_read(name: str) -> None:
    """Repository, commit and file, or package, version and file: for every provenance "code", and for no other."""
    source = paper(name)
    assert re.fullmatch(r"\d{4}\.\d{5}|[a-z-]+\.com/\S+", source.arxiv)
    assert re.fullmatch(r"(v\d+(\.\.v\d+)?)?", source.version)
    where = "arXiv:" if source.arxiv[0].isdigit() else "https://"
    assert source.reference.startswith(where + source.arxiv) and source.reference == source.reference.strip()
    read = r"([\w.-]+/[\w.-]+@[0-9a-f]{7}|(trl|verl) \d+\.\d+\.\d+):[\w./-]+\.(py|sh)"
    wanted = rf"{read}(; {read})*" if source.provenance == "code" else ""
    assert re.fullmatch(wanted, source.code), f"{source.provenance}, {source.code!r}"


def test_no_file_was_forgotten() -> None:
    """Every builder with a paper, in whichever file of the package, has its line in the table."""
    files = pkgutil.walk_packages(tokenpo.methods.__path__, "tokenpo.methods.")
    modules = [importlib.import_module(x.name) for x in files]
    found = {name for module in modules for name, x in vars(module).items() if hasattr(x, "paper")}
    assert found == set(METHODS)


CODE = """
import tokenpo
from tokenpo import Objective

known: Objective = tokenpo.methods.hapo(low=0.1)
misspelt = tokenpo.methods.hapo(lwo=0.1)
of_another_kind = tokenpo.methods.hapo(low="0.1")
no_choice = tokenpo.methods.hapo(entropy="present")
none: Objective = tokenpo.methods.dapo(dual=None)
by_name: Objective = tokenpo.method("hapo", low=0.1)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_a_type_checker_knows_the_options(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    source = str(Path(tokenpo.__file__).parents[1])
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"include": ["code.py"], "extraPaths": [source]}))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout)
    wrong = [CODE.splitlines()[x["range"]["start"]["line"]].partition(" ")[0] for x in found["generalDiagnostics"]]
    assert wrong == ["misspelt", "of_another_kind", "no_choice"]


def test_an_objective_without_a_name_gets_that_of_its_function(tmp_path: Path) -> None:
    made = "tokenpo.Objective(of.credit, of.surrogate, of.aggregate"
    lines = ["import tokenpo", "of = tokenpo.methods.grpo()", f"def mine(): return {made})"]
    lines += [f"def other(): return {made}, name='its own')", "def whole(): return of"]
    (tmp_path / "late.py").write_text("\n".join(lines))
    names = {x: tokenpo.method(f"{tmp_path}/late.py:{x}").name for x in ("mine", "other", "whole")}
    assert names == {"mine": "mine", "other": "its own", "whole": "grpo"}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tokenpo.method("grop"), "no method is called 'grop': did you mean 'grpo'?"),
        (lambda: paper("xyzzy"), f"no method is called 'xyzzy': of {len(METHODS)} the nearest are "),
        (lambda: tokenpo.method(paper), "a method's name is text, such as 'dapo' or 'mine.py:late', not <function"),
        (lambda: tokenpo.method("dapo", hihg=1), "method dapo has no option 'hihg'; did you mean 'high'?"),
        (lambda: tokenpo.methods.dapo(hihg=1), "method dapo has no option 'hihg'; did you mean 'high'?"),
    ],
)
def test_an_unknown_name_names_the_nearest(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(tokenpo.UnknownName, match=f"^{re.escape(message)}"):
        ask()
