"""docs/tasks.md: every task with its options, and where answers are looked for."""

import inspect

from conventions import CONVENTIONS
from layout import GENERATED, arguments, cell, code, table

from tokenpo.train.tasks import TASKS, builder, options
from tokenpo.train.tasks.extract import EXTRACTORS

PAGE = """\
{generated}

# Use your own data and rewards

A data set is a .jsonl or .parquet file with a prompt a row. A recipe names it, and what judges an answer:

```toml
[model]
path = "runs/my-model"              # a directory or hub id; without it the package's tiny model, which knows arithmetic

[train]
lr = 1e-5                           # for 135 million weights; papers use 1e-6 for billions

[task]
name = "files"

[task.options]
path = "train.jsonl"                # {{"prompt": "3+4=", "answer": "7"}}; messages and verl's columns work too
verifier = "reward.py:correct"      # or "exact" (text), "math" (value)
```

```sh
tokenpo train my.toml --method dapo
tokenpo eval runs/my-dapo-seed0     # on the share of the file that was held out, or on test_path
```

A reward function has TRL's signature or verl's, and names only the arguments it wants. `reward.py`:

```py
def correct(completions, answer):   # TRL's: lists in, a number for each out; columns of the file by their names
    return [float(said.rpartition("#")[2].strip() == str(right)) for said, right in zip(completions, answer)]


def compute_score(data_source, solution_str, ground_truth, extra_info):   # verl's: one answer; or a dict with "score"
    return float(solution_str.strip() == ground_truth)
```

A reward of `correct_at` or more counts as right. With a chat model, a completion is
`[{{"role": "assistant", "content": ...}}]`. [trl.md](trl.md) and [verl.md](verl.md) say how those trainers take their
own. An option that the verifier does not read is rejected.

## `files`

{files}

A prompt that stands in the train and in the test file is a warning.

### GSM8K and DAPO-Math

Save the rows with `datasets` (`pip install datasets`), and name their columns:

```py
from datasets import load_dataset

load_dataset("openai/gsm8k", "main", split="train").to_parquet("gsm8k.parquet")
rows = load_dataset("BytedTsinghua-SIA/DAPO-Math-17k", split="train").to_pandas()
rows[~rows["prompt"].map(str).duplicated()].to_parquet("dapo_math.parquet")
```

| rows | `[task.options]` in addition to `path` |
| --- | --- |
| GSM8K | `verifier = "math"`, `prompt_key = "question"`, `answer_key = "answer"`, `chat = true` |
| DAPO-Math | `verifier = "math"`; prompts are chats, the reference is `reward_model.ground_truth` |

DAPO-Math-17k holds each of its 17 thousand prompts about a hundred times, [by
accident](https://github.com/BytedTsinghua-SIA/DAPO/issues/36), so remove copies first.

### reasoning-gym

Write the problems of [reasoning-gym](https://github.com/open-thought/reasoning-gym) to a file, too:

```py
import json

import reasoning_gym

with open("countdown.jsonl", "w") as file:
    for row in reasoning_gym.create_dataset("countdown", size=5000, seed=0):
        asked = row["question"] + "\\nGive the expression between <answer> and </answer>."
        known = row["metadata"]
        file.write(json.dumps({{"prompt": asked, "answer": known["target"], "nums": known["numbers"]}}) + "\\n")
```

Then `verifier = "countdown"`, which runs no text as code; the library's scorer does. For `chain_sum` take
`verifier = "exact"`, and for others a reward function that calls `reasoning_gym.get_score_answer_fn`.

## Tasks that come with the package

`[task] name = "dial_sum"`, or `tokenpo eval MODEL --task NAME --task-option KEY=VALUE`. The train and the test split
share no problem, whatever the seeds.

{tasks}

| option | tasks | meaning |
| --- | --- | --- |
{shared}

## Where the answer stands

`extract` names a way to find the answer in a completion.

{extractors}

## What the verifier `math` counts as the same answer

[math-verify](https://github.com/huggingface/Math-Verify) compares values. The answer is brought to one spelling of
LaTeX ([`spelling.py`](../src/tokenpo/train/tasks/maths/spelling.py)) and taken apart. A part reaches math-verify only
if all of it is maths that math-verify reads. How often this errs is counted in [trust](trust.md#maths-answers).

{conventions}

References are read before a run. Those that are neither maths nor a few words are counted in a warning with the first
three; a data set that has no other is rejected.
"""


def page() -> str:
    ready = [name for name in TASKS if name != "files"]
    shared: dict[tuple[str, str, str], list[str]] = {}
    for name in ready:
        for option, default in options(name).items():
            if meaning := _told(name).get(option):
                shared.setdefault((option, repr(default), meaning), []).append(name)
    rows = [(code(name), cell(_first(builder(name)))) for name in ready]
    return PAGE.format(
        generated=GENERATED.format(source="src/tokenpo/train/tasks"),
        files=_options("files"),
        tasks=table(("task", "what"), rows),
        shared="\n".join(
            f"| `{option}` = `{default}` | {', '.join(map(code, names))} | {cell(meaning)} |"
            for (option, default, meaning), names in shared.items()
        ),
        extractors=_extractors(),
        conventions=table(("question", "convention"), CONVENTIONS),
    )


def _told(name: str) -> dict[str, str]:
    """The options of a task, with their meanings."""
    build = builder(name)
    classes = reversed(inspect.getmro(build)) if inspect.isclass(build) else (build,)
    return {option: said for one in classes for option, said in arguments(inspect.getdoc(one) or "").items()}


def _options(name: str) -> str:
    rows = [
        (code(option), "required" if default is ... else code(repr(default)), cell(_told(name)[option]))
        for option, default in options(name).items()
    ]
    return table(("option", "default", "meaning"), rows)


def _extractors() -> str:
    return table(("`extract`", "the answer"), [(code(name), cell(_first(find))) for name, find in EXTRACTORS.items()])


def _first(of: object) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(of) or "").partition("\n")[0]
