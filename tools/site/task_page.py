"""Tables of docs/tasks.md: every task with its options, and where answers are looked for."""

import inspect

from conventions import CONVENTIONS
from layout import arguments, cell, code, table

from tokenpo.train.tasks import TASKS, builder, options
from tokenpo.train.tasks.extract import EXTRACTORS


def tasks() -> str:
    return table(("task", "what"), [(code(name), cell(_first(builder(name)))) for name in TASKS if name != "files"])


def shared() -> str:
    """The options of the tasks that come with the package."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name in TASKS:
        for option, default in options(name).items() if name != "files" else ():
            if meaning := _told(name).get(option):
                found.setdefault((option, repr(default), meaning), []).append(name)
    rows = [
        (f"`{option}` = `{default}`", ", ".join(map(code, names)), cell(meaning))
        for (option, default, meaning), names in found.items()
    ]
    return table(("option", "tasks", "meaning"), rows)


def _told(name: str) -> dict[str, str]:
    """The options of a task, with their meanings."""
    build = builder(name)
    classes = reversed(inspect.getmro(build)) if inspect.isclass(build) else (build,)
    return {option: said for one in classes for option, said in arguments(inspect.getdoc(one) or "").items()}


def files() -> str:
    meanings = _told("files")
    rows = [
        (code(option), "required" if default is ... else code(repr(default)), cell(meanings[option]))
        for option, default in options("files").items()
    ]
    return table(("option", "default", "meaning"), rows)


def extractors() -> str:
    return table(("`extract`", "the answer"), [(code(name), cell(_first(find))) for name, find in EXTRACTORS.items()])


def conventions() -> str:
    return table(("question", "convention"), CONVENTIONS)


def _first(of: object) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(of) or "").partition("\n")[0]


TABLES = {
    "files": files,
    "tasks": tasks,
    "options": shared,
    "extract": extractors,
    "conventions": conventions,
}  # of docs/tasks.md
