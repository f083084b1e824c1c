"""docs/tasks.md: every task with its options, and where answers are looked for."""

from __future__ import annotations

import inspect

from conventions import CONVENTIONS
from layout import GENERATED, arguments, cell, code, table

from tokenpo.tasks import TASKS, builder, options
from tokenpo.tasks.extract import EXTRACTORS
from tokenpo.tasks.reasoning_gym import ReasoningGym

PAGE = """\
{generated}

# Tasks

A recipe names one in `[task]` and sets its options in `[task.options]`; `tokenpo eval MODEL --task NAME` takes them by
`--task-option KEY=VALUE`. [`files`](#files) is a data set of yours, with a verifier of ours or yours. The train and
the test split of a task share no problem, whatever the seeds; of `files` with a `test_path` the two files say what is
in which, and prompts that stand in both are a warning. An option that the verifier does not read is refused.

{tasks}

## Where the answer stands

`extract` names a way to find the answer in a completion.

{extractors}

## What the verifier `math` counts as the same answer

[math-verify](https://github.com/huggingface/Math-Verify) compares values. What stands around a value is read before it:
the answer is brought to one spelling of LaTeX, taken apart into its parts, and a part is given to math-verify only if
all of it is maths that math-verify reads. How often this errs is counted in [trust](trust.md#maths-answers).

{conventions}

The spelling is the list of steps in [`spelling.py`](../src/tokenpo/tasks/maths/spelling.py).

References are read before a run. Those that are neither maths nor a few words are counted in a warning with the first
three; a data set that has no other is refused.
"""


def page() -> str:
    tasks = "\n\n".join(f"## `{name}`\n\n{_first(builder(name))}\n\n{_options(name)}" for name in TASKS)
    return PAGE.format(
        generated=GENERATED.format(source="src/tokenpo/tasks"),
        tasks=tasks,
        extractors=_extractors(),
        conventions=table(("question", "convention"), CONVENTIONS),
    )


def _options(name: str) -> str:
    """A task's options; those without a meaning of ours are the library's."""
    told = arguments(inspect.getdoc(ReasoningGym) or "") | arguments(inspect.getdoc(builder(name)) or "")
    rows = [
        (code(option), "required" if default is ... else code(repr(default)), cell(told.get(option, "reasoning-gym's")))
        for option, default in options(name).items()
    ]
    return table(("option", "default", "meaning"), rows)


def _extractors() -> str:
    rows = [(code(name), cell(_first(way.find)), cell(way.instruction)) for name, way in EXTRACTORS.items()]
    return table(("`extract`", "the answer", "what a prompt of reasoning-gym ends with"), rows)


def _first(of: object) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(of) or "").partition("\n")[0]
