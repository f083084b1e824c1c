"""docs/refusals.md: a table for each engine."""

from collections.abc import Mapping, Sequence

from .case import SOURCE, Case, Refusal

PAGE = SOURCE.parents[1] / "docs" / "refusals.md"
TITLES = {
    "embedded": ("The embedded engine", "`tokenpo train` without `--engine`."),
    "trl": ("TRL", "[`TokenPOConfig`, `TokenPOTrainer`](trl.md)."),
    "tinker": ("Tinker", "`--engine tinker` and [`tokenpo.engines.tinker`](tinker.md); a server is asked for nothing."),
    "verl": ("verl", "[`algorithm.tokenpo`](verl.md) in verl's own command."),
    "handed": ("SkyRL and prime-rl", "Their [contracts](other_hosts.md); neither was run."),
    "vllm": ("vLLM", "The [logits processor](vllm.md); read on a stand-in for vLLM's interfaces."),
}
HEAD = """\
<!-- Written by tools/site/refusals.py from tests/refusal_cases: change those, then run it where the engines are. -->

# Refusals

What an engine cannot honour it refuses, before anything is trained where it can be known by then; nothing is replaced
by something else. Each row was asked and answered when this page was written, and is a test: the error is the right
one, its one sentence names the engine, the method and input or the setting, and a remedy. A place of the source that
refuses and has no row here fails a test too, and so does a row of a table in the source that refuses row by row.

Not here: a name that does not exist (the error names the nearest), a value out of range, a package that is not
installed, and an engine whose private surface moved (the error says what moved).
"""


def section(engine: str, cases: Sequence[Case], refusals: Sequence[Refusal]) -> str:
    title, what = TITLES[engine]
    rows = [f"| {_cell(case.request)} | {_code(one.sentence)} |" for case, one in zip(cases, refusals, strict=True)]
    return "\n".join([f"## {title}", "", what, "", "| asked | answered |", "| --- | --- |", *rows, ""])


def page(sections: Mapping[str, str]) -> str:
    return "\n".join([HEAD, *(sections[engine] for engine in TITLES)])


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _code(text: str) -> str:
    assert "`" not in text, f"a sentence with a backtick cannot stand in the page: {text}"
    return f"`{text}`".replace("|", r"\|")
