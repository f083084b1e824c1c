"""Our tasks for verl: a parquet file of problems in verl's columns, and the reward function that scores them.

A row holds the task, its options, its seed and the problem's position. From these the reward function makes the same
problem again and calls the task's verifier.
"""

# pyright: reportMissingImports=false
import functools
import json
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.files import whole
from ...tasks import Problem, Split, Task, make_task, refuse_tool


def write_parquet(path: Path, task: str, options: Mapping[str, Any], seed: int, split: Split, count: int) -> Path:
    """`count` problems of a task in verl's columns: data_source, prompt, reward_model, extra_info.

    reward_model.ground_truth is null for a problem without a reference answer.

    Raises:
        TokenPOError: a test split with fewer problems.
    """
    import pyarrow
    import pyarrow.parquet

    source = json.dumps({"task": task, "options": dict(options), "seed": seed, "split": split}, sort_keys=True)
    with closing(make_task(task, options, seed)) as generator:
        refuse_tool(generator, "verl")
        problems = generator.problems(split, 0, count)
    rows = [
        {
            "data_source": task,
            "prompt": _messages(problem),
            "ability": task,
            "reward_model": {"style": "rule", "ground_truth": problem.reference},
            "extra_info": {"index": number, "tokenpo": source},
        }
        for number, problem in enumerate(problems)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = pyarrow.string()
    # Types are given: a column of nulls would have none, and verl joins only files of equal types.
    columns = {
        "data_source": text,
        "prompt": pyarrow.list_(pyarrow.struct({"role": text, "content": text})),
        "ability": text,
        "reward_model": pyarrow.struct({"style": text, "ground_truth": text}),
        "extra_info": pyarrow.struct({"index": pyarrow.int64(), "tokenpo": text}),
    }
    with whole(path) as part:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns)), part)
    return path


def _messages(problem: Problem) -> list[dict[str, str]]:
    if isinstance(problem.prompt, str):
        return [{"role": "user", "content": problem.prompt}]
    return [{"role": str(m["role"]), "content": str(m["content"])} for m in problem.prompt]


# A verifier may own processes: a reward worker has one verifier per task, which its threads use in turn.
_TURN = threading.Lock()


def compute_score(
    data_source: str, solution_str: str, ground_truth: str | None, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """verl's reward function for rows of `write_parquet`: "score" is the reward, "acc" is 1.0 for a right answer.

    Set reward.custom_reward_function.path=pkg://tokenpo.engines.verl.data.

    Raises:
        TokenPOError: the row was not written by `write_parquet`.
    """
    source = (extra_info or {}).get("tokenpo")
    if not isinstance(source, str):
        raise TokenPOError(
            f"a row of {data_source} has no extra_info.tokenpo: write the file with write_parquet, or give verl the "
            "reward function of your data (reward.custom_reward_function.path)"
        )
    with _TURN:
        task, problem = _problem(source, int((extra_info or {})["index"]))
        (score,) = task.score([problem], [solution_str], [[]])
    return {"score": float(score.reward), "acc": float(score.correct)}


@functools.lru_cache(maxsize=8)
def _task(source: str) -> Task:
    settings = json.loads(source)
    return make_task(settings["task"], settings["options"], settings["seed"])


@functools.lru_cache(maxsize=4096)
def _problem(source: str, position: int) -> tuple[Task, Problem]:
    task = _task(source)
    (problem,) = task.problems(json.loads(source)["split"], position, 1)
    return task, problem
