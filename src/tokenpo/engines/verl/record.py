"""What `tokenpo report` reads of a verl run: metrics of every step, and the loss's own tensors of a few responses.

The driver marks a few rows of a step; the worker that meets one of them in its loss writes its terms to a file of its
own; after the update the driver appends these files to trace.jsonl. Workers on other nodes need the directory on a
disk that they share with the driver.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict

from ...base.files import aside
from ...base.jsonl import Lines, cut, finite, with_step
from ...core.learner import Step
from ...core.types import Batch, Loss
from ...runs.tracer import Tracer
from .layout import Rows, texts

FIELD = "tokenpo_trace"
PARTS = "trace-parts"
LOGS = ("metrics.jsonl", "trace.jsonl")
DESCRIPTION = ("config.json", "objective.txt", "versions.json")
# verl's name -> ours, which the report draws.
NAMES = {
    "critic/score/mean": "reward", "actor/entropy": "entropy", "response_length/mean": "length",
    "response_length/max": "length_max", "response_length/clip_ratio": "truncated", "actor/grad_norm": "grad_norm",
    "actor/lr": "lr", "actor/pg_loss": "loss", "actor/pg_clipfrac": "clip_fraction", "actor/ppo_kl": "kl_moved",
    "timing_s/gen": "seconds_rollout", "timing_s/update_actor": "seconds_update",
    "timing_s/old_log_prob": "seconds_rescore", "timing_s/step": "step_seconds",
}  # fmt: skip


@dataclass
class Record:
    """A run directory that verl's driver fills.

    Args:
        path: the directory.
        every: steps between traces; 0 for none.
        most: responses of one trace.
        greedy: whether verl validates at temperature 0.
    """

    path: Path
    every: int = 10
    most: int = 4
    greedy: bool = False
    metrics: Lines = field(init=False)
    trace: Lines = field(init=False)

    def __post_init__(self) -> None:
        (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        self.metrics, self.trace = (Lines(self.path / name) for name in LOGS)

    @staticmethod
    def begin(path: Path, step: int, every: int, most: int, *, greedy: bool = False) -> Record:
        """A new run, or one that goes on after `step`: what was written behind it is dropped.

        Another run's files are moved aside, never written over or added to.
        """
        shutil.rmtree(path / PARTS, ignore_errors=True)  # of a step that was never finished
        logs = [path / name for name in LOGS if (path / name).exists()]
        if step:
            for file in logs:
                cut(file, _size_after(file, step))
        elif logs:
            _move_aside(path)
        return Record(path, every, most, greedy)

    def wants(self, step: int) -> bool:
        return bool(self.most and self.every) and (step == 1 or step % self.every == 0)

    def gather(self) -> int:
        """Appends what the workers wrote of this step; how many responses."""
        parts = sorted((self.path / PARTS).glob("*.json"))
        for part in parts:
            self.trace.write(json.loads(part.read_text(encoding="utf-8")))
            part.unlink()
        return len(parts)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """One line of metrics, under our names where the report has one."""
        numbers = {name: x for name, value in metrics.items() if (x := _number(value)) is not None}
        ours = {NAMES.get(name, name): value for name, value in numbers.items()}
        self.metrics.write({"step": step, **ours, **self._held_out(numbers)})

    def _held_out(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """verl's validation under our names; nothing where it has several data sets, or none."""
        accuracies = [
            (name, value) for name, value in numbers.items() if name.startswith("val-core/") and "/acc/mean@" in name
        ]
        if len(accuracies) != 1:
            return {}
        ((name, accuracy),) = accuracies
        samples = int(name.rpartition("@")[2])
        return {"eval/accuracy": accuracy} if self.greedy else {"eval/avg": accuracy, "eval/k": samples}


def _number(value: Any) -> float | None:
    """None for what is no single number: text, an array of several."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _size_after(path: Path, step: int) -> int:
    """Bytes of the whole lines up to a step, with damaged ones between them, which the report leaves out."""
    size = end = 0
    with path.open("rb") as lines:
        for line in lines:
            end += len(line)
            try:
                found = with_step(json.loads(line))["step"]
            except (ValueError, RecursionError):
                continue
            if found > step or not line.endswith(b"\n"):
                break
            size = end
    return size


def _move_aside(path: Path) -> None:
    """The files of a record into a directory beside it: the rest, data and checkpoints, may be of the new run."""
    older = aside(path)
    older.mkdir()
    for name in (*LOGS, *DESCRIPTION):
        if (path / name).exists():
            (path / name).rename(older / name)


def marks(rows: Sequence[int], facts: Mapping[int, Mapping[str, Any]]) -> TensorDict:
    """The field that marks rows of verl's batch: JSON of what the driver knows of a row, "" for the others."""
    lines = [json.dumps(facts[row]) if row in facts else "" for row in rows]
    return TensorDict({FIELD: NonTensorStack(*lines)}, [len(rows)])


def traced_rows(
    step: Step, where: Rows, number: int, plan: Sequence[Sequence[int]], most: int, data: TensorDict, tokenizer: Any
) -> dict[int, dict[str, Any]]:
    """What the driver knows of the rows to trace, by their place in verl's batch: the best and the worst of groups.

    Args:
        where: the rollouts of the step stand in verl's batch.
        number: of the step.
        plan: the rows of each optimiser step; groups of the last come first.
        data: "prompts", "responses" and "reward_model" of every row.
    """
    places = where.live.nonzero()[:, 0].tolist()
    tracer = Tracer(most)
    tracer.choose(where.numbers([row for rows in reversed(plan) for row in rows]), step)
    prompts, responses = data["prompts"].unbind(), data["responses"].unbind()
    facts = {}
    for i in sorted(tracer.wanted):
        place = places[i]
        token_ids = responses[place][step.rollouts.mask[i, : len(responses[place])]].tolist()
        facts[place] = {
            "step": number,
            "row": i,
            "group": int(step.rollouts.group[i]),
            "prompt": tokenizer.decode(prompts[place].tolist(), skip_special_tokens=True),
            "tokens": [tokenizer.decode([token]) for token in token_ids],
            "reward": float(step.rollouts.reward[i]),
            "answer": _answer(data, place),
            "terms": tracer.known.get(i, {}),
        }
    return facts


def _answer(data: TensorDict, place: int) -> str:
    if "reward_model" not in data:
        return ""
    # The queue gives a list of its own or a stack of tensordict's.
    column = data["reward_model"]
    reward_model = (column.tolist() if hasattr(column, "tolist") else list(column))[place]
    answer = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    return "" if answer is None else str(answer)


def write(directory: str, data: TensorDict, live: Sequence[int], batch: Batch, loss: Loss) -> None:
    """In a worker: one file for each marked row of a micro-batch; `live` are the rows that the batch holds."""
    if FIELD not in data:
        return
    marked = texts(data[FIELD])
    places = [place for place, row in enumerate(live) if marked[row]]
    if not places:
        return
    tracer = Tracer(len(places))
    tracer.want(places)
    tracer.add(torch.arange(len(live)), batch, loss)
    for place, terms in tracer.found.items():
        facts = json.loads(marked[live[place]])
        file = Path(directory) / PARTS / f"{facts['step']:06d}-{facts['row']:06d}.json"
        file.write_text(json.dumps(finite({**facts, "terms": {**terms, **facts["terms"]}})), encoding="utf-8")
