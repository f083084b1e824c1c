"""The documents say what is: generated pages are fresh, examples run, links resolve."""

import doctest
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import oracle_support
import tokenpo
from oracles import ORACLES
from tokenpo.methods.families import family

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def blocks(path: Path, language: str) -> list[str]:
    return [code for kind, code in FENCE.findall(path.read_text(encoding="utf-8")) if kind == language]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delitem(sys.modules, "docs_tool", raising=False)
    return load("docs_tool", ROOT / "tools" / "site" / "docs.py")


def test_documented_totals_give_the_constant_length() -> None:
    """A loop that is copied must not divide by the longest response of each batch where a method wants a constant."""
    made = [x for path in DOCUMENTS for code in blocks(path, "python") for x in re.findall(r"Totals\.of\(.*?\)", code)]
    assert len(made) >= 3 and all("length=" in x for x in made), made


@pytest.mark.parametrize("name", tokenpo.methods.METHODS)
def test_a_page_holds_formula_and_options(name: str) -> None:
    text = (ROOT / "docs" / "methods" / f"{family(name)}.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {name}\n")
    page = rest.partition("\n## ")[0]
    build = tokenpo.methods.METHODS[name]
    docstring = (inspect.getdoc(build) or "").partition("\n\nArgs:\n")[0]
    formula = [line.strip() for line in docstring.splitlines() if line.startswith("    ")]
    excerpts = "\n".join(code for _, code in FENCE.findall(page))
    assert formula and all(line in excerpts for line in formula)
    for option, parameter in inspect.signature(build).parameters.items():
        value = parameter.default
        given = f"{option}={json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)}"
        assert re.search(rf"^- (?:`.*`, )?`{re.escape(given)}`(?:, `.*`)?: \S", page, re.MULTILINE), given


def test_the_table_of_a_family_quotes_what_a_section_measured(tool: ModuleType) -> None:
    page = (
        "\n## tepo\n\n**Not measured**.\n## remax\n\n**Measured**: reward −0.011 in exact worlds. A\n<!-- remax -->\n"
        "## gtpo\n\nThe idea. **Measured**: undecided on the [real\nmodel](../results.md#methods) (then "
        "+0.05 on [new\nseeds](../results.md)), larger in 2 of 10 comparisons on small models; as DAPO in exact worlds."
        "\n\nGo.\n\n<!-- gtpo -->\n\n## prpo\n\n**Not measured**. But.\n<!-- prpo -->\n"
    )
    _, _, remax, gtpo, prpo = tool.overview(page, "baselines", ["remax", "gtpo", "prpo"]).splitlines()
    assert remax.endswith(" | worlds: −0.011 | a greedy answer (not in TRL) | code |")
    assert " | real: undecided; small: larger in 2 of 10 | entropies |" in gtpo
    assert prpo.endswith(" | – | nothing | code |")
    assert " | – | DAPO's | entropies | second" in tool.overview(page, "entropy", ["tepo"])
    with pytest.raises(SystemExit, match="dapo"):
        tool.measured("\n## dapo\n\nThe idea.\n\n<!-- dapo -->\n**Measured**: larger.\n", "dapo")


def test_the_pushes_of_a_family_are_those_of_the_formula(tool: ModuleType) -> None:
    """DAPO's ratio inside its clip, 0 beyond; CISPO's cap; GRPO's 30/20 and 30/40; GSPO clips responses."""
    assert {
        "| `dapo`, `grpo` | 1 | 0.5 | 1.1 | 0 | 0 | 0 | 0.9 | 2 | 4 | 1 | 1 |",
        "| `cispo` | 1 | 0.5 | 1.1 | 1.28 | 1.28 | 0.5 | 0.9 | 1.28 | 1.28 | 1 | 1 |",
        "| `grpo`, `opsm` | 1.5 | 0.75 | 0 | 1 | 0 | 1 |",
        "| `gspo`, `gspo_token` | 1.5 | 0.75 | 0 | 0 | 0 | 0 |",
    } <= {row for family in ("trust", "responses") for row in tool.pushes.pushes(family).splitlines()}


def test_a_snippet_has_the_defaults_first_and_then_what_one_may_tune(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "TUNED", {"grpo": {"low": 0.1, "high": 0.28}})
    _, plain, trl, tuned, _ = tool.snippet("grpo").splitlines()
    assert plain == 'tokenpo.method("grpo")' and trl == 'GRPOConfig("runs/grpo", method="grpo")'
    assert tuned.startswith(trl[:-1] + ', method_options={"low": 0.1, "high": 0.28})  # ')
    assert tuned.endswith("; default 0.2, 0.2")
    assert tool.snippet("remax") == '```py\ntokenpo.method("remax")\n```'
    assert tool.snippet("dppo_tv").splitlines()[2].endswith('method="dppo_tv", use_vllm=True)')
    monkeypatch.setattr(tool, "TUNED", {"grpo": {"high": -1.0}})
    with pytest.raises(tokenpo.TokenPOError, match="high"):
        tool.snippet("grpo")


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if blocks(p, "python")], ids=relative)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks marked python, in order and in one namespace; those with prompts must print what they show."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__example__"}
    for number, code in enumerate(blocks(path, "python"), 1):
        where = f"{relative(path)}, python block {number}"
        if ">>> " not in code:
            exec(compile(code, where, "exec", dont_inherit=True), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, where, str(path), 0)
        seen: list[str] = []
        doctest.DocTestRunner(verbose=False).run(test, out=seen.append, clear_globs=False)
        assert not seen, "".join(seen)
        names = test.globs


def test_the_example_of_contributing_is_a_method(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method from outside: file, line of the table, oracle and test are taken from the page and run."""
    pieces = {code.partition("\n")[0].lstrip("# "): code for code in blocks(ROOT / "CONTRIBUTING.md", "py")}
    name = next(Path(place).stem for place in pieces if place.startswith("src/tokenpo/methods/") and "__" not in place)
    assert name not in tokenpo.methods.METHODS, "the example has become a method: choose another"
    for place, code in pieces.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(code.partition("\n")[2], encoding="utf-8")

    # As a sibling of the methods: its relative imports are those it would have there.
    module_name = f"tokenpo.methods.{name}"
    module = load(module_name, tmp_path / f"src/tokenpo/methods/{name}.py")
    monkeypatch.setitem(sys.modules, module_name, module)
    line = pieces["src/tokenpo/methods/__init__.py"].splitlines()[-1]
    assert line == f"from .{name} import {name} as {name}"
    monkeypatch.setitem(tokenpo.methods.METHODS, name, getattr(module, name))
    oracle = getattr(load(f"oracles.{name}", tmp_path / "tests/oracles/weights.py"), name)
    monkeypatch.setitem(ORACLES, name, oracle)

    tests = load(f"example_{name}", tmp_path / "tests/methods/test_weights.py")
    (example_test,) = (value for key, value in vars(tests).items() if key.startswith("test_"))
    example_test()
    for options in oracle.cases:
        for sample in oracle_support.batches(name):
            oracle_support.agrees(name, sample, **options)
    names = {"RAGGED": oracle_support.ragged(1)}
    (reduction,) = eval(f"[{pieces['tests/methods/test_reductions.py']}]", names)
    ours, options, other, its, sample = reduction
    oracle_support.close(oracle_support.outcome(ours, sample, **options), oracle_support.outcome(other, sample, **its))
    tokenpo.check_method(tokenpo.method(name))

    # What follows from the table: the page, the row in the table of all, the errors.
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "METHODS", {one: tokenpo.methods.METHODS[one] for one in ("grpo", "dapo", name)})
    assert f'method("{name}"' in tool.section(name) and tokenpo.methods.paper(name).arxiv in tool.section(name)
    with pytest.raises(tokenpo.UnknownName, match=name):
        tokenpo.method(name + "s")


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_links_resolve_and_every_item_of_a_list_begins_a_line(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", prose(path)):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert not broken
    assert not re.findall(r"[;,.] - \w+", prose(path))


def prose(path: Path) -> str:
    """The text of a document without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_paper_stands_in_the_index_with_its_provenance() -> None:
    rows = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8").splitlines()
    for name in tokenpo.methods.METHODS:
        source = tokenpo.methods.paper(name)
        row = next((row for row in rows if f"(methods/{family(name)}.md#{name})" in row), "")
        assert source.arxiv in row and f" | {source.provenance} | " in row, name


def test_every_metric_is_explained(tmp_path: Path) -> None:
    """One step of a real run writes exactly the names of the page."""
    from tokenpo.core.statistics import LAGS
    from tokenpo.records.metrics import BY_LAG, LOGGED, REWARDS
    from tokenpo.train.recipe.config import parse_config
    from tokenpo.train.run.loop import train
    from tokenpo.train.run.step import View

    run = {
        "rollout": {"prompts": 2, "group_size": 2, "max_new_tokens": 8, "top_k": 5}, "model": {"device": "cpu"},
        "train": {"steps": 1, "minibatches": 1}, "evaluate": {"problems": 2, "samples": 1},
        "output": {"dir": str(tmp_path / "run"), "trace_every": 0},
    }  # fmt: skip
    train(parse_config(run, "test"), View())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    written = {name for line in lines for name in json.loads(line)}
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    others = {"note/NAME", *REWARDS, "kl_reached", "kl_rate", "kl_left_out"}  # not of this task, without a held KL,
    others |= {"value_loss", "explained_variance", "teacher_kl"}  # a method that reads a value, a teacher
    assert {re.sub(r"^note/.*", "note/NAME", name) for name in written} | others == explained
    by_lag = {f"lag_{least}_{what}" for least in LAGS for what in BY_LAG}  # one update a batch has none; in words there
    assert explained | by_lag == LOGGED | {"step", "note/NAME"}
