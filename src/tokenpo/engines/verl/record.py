"""The run directory of a verl run, for `tokenpo report`: metrics of every step, loss terms of a few responses.

The driver marks rows of a step; the worker whose loss meets one writes its terms to a file of its own; after the update
the driver appends these files to trace.jsonl. Workers on other nodes need a disk that they share with the driver.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict

from ...base.files import aside, refuse_links, write_whole
from ...base.jsonl import Lines, cut, finite, whole_lines, with_step
from ...core.learner import Step
from ...core.types import Batch, Loss
from ...runs.records import Tracer
from .layout import Rows, column

FIELD = "tokenpo_trace"
PARTS = "trace-parts"
LOGS = ("metrics.jsonl", "trace.jsonl")
DESCRIPTION = ("config.json", "objective.txt", "versions.json")
# verl's name -> the report's.
NAMES = {
    "critic/score/mean": "reward", "actor/entropy": "entropy", "response_length/mean": "length",
    "response_length/max": "length_max", "response_length/clip_ratio": "truncated", "actor/grad_norm": "grad_norm",
    "actor/lr": "lr", "actor/pg_loss": "loss", "actor/pg_clipfrac": "clip_fraction", "actor/ppo_kl": "kl_moved",
    "timing_s/gen": "seconds_rollout", "timing_s/update_actor": "seconds_update",
    "timing_s/old_log_prob": "seconds_rescore", "timing_s/step": "step_seconds",
}  # fmt: skip


@dataclass
class Record:
    """A run directory that verl's driver fills."""

    path: Path
    every: int = 10  # steps between traces; 0 for none
    most: int = 4  # responses of one trace
    greedy: bool = False  # verl validates at temperature 0

    def __post_init__(self) -> None:
        (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        self.metrics, self.trace = (Lines(self.path / name) for name in LOGS)

    @staticmethod
    def begin(path: Path, step: int, every: int, most: int, *, greedy: bool = False) -> Record:
        """A new run, which moves another run's files aside; or one that goes on after `step`, where they are cut."""
        refuse_links(path)
        shutil.rmtree(path / PARTS, ignore_errors=True)  # of a step that was never finished
        logs = [path / name for name in LOGS if (path / name).exists()]
        for file in logs if step else ():
            cut(file, _size_after(file, step))
        if logs and not step:
            older = aside(path)
            older.mkdir()
            for name in (*LOGS, *DESCRIPTION):  # no more: data and checkpoints in the directory may be of the new run
                if (path / name).exists():
                    (path / name).rename(older / name)
        return Record(path, every, most, greedy)

    def wants(self, step: int) -> bool:
        """Whether this step is traced."""
        return bool(self.most and self.every) and (step == 1 or step % self.every == 0)

    def gather(self) -> None:
        """Appends the files that the workers wrote in this step."""
        for part in sorted((self.path / PARTS).glob("*.json")):
            self.trace.write(json.loads(part.read_text(encoding="utf-8")))
            part.unlink()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """One line of metrics, under the report's names where it has one."""
        numbers = dict[str, float]()
        for name, value in metrics.items():
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # text, and arrays of several numbers
                numbers[name] = float(value)
        ours = {NAMES.get(name, name): value for name, value in numbers.items()}
        held_out = [name for name in numbers if name.startswith("val-core/") and "/acc/mean@" in name]
        if len(held_out) == 1:  # verl's validation; several data sets have no name of ours
            accuracy, samples = numbers[held_out[0]], int(held_out[0].rpartition("@")[2])
            ours |= {"eval/accuracy": accuracy} if self.greedy else {"eval/avg": accuracy, "eval/k": samples}
        self.metrics.write({"step": step, **ours})


def _size_after(path: Path, step: int) -> int:
    """Bytes up to the last whole line of a step, damaged lines before it included: the report leaves those out."""
    size, data = 0, path.read_bytes()
    for line in itertools.takewhile(lambda line: line.value["step"] <= step, whole_lines(path, with_step, [])):
        size = data.find(b"\n", line.offset) + 1 or size
    return size


def marks(
    step: Step, where: Rows, number: int, plan: Sequence[Sequence[int]], most: int, data: TensorDict, tokenizer: Any
) -> TensorDict:
    """The field that marks the best and the worst response of groups: JSON of what the driver knows, "" elsewhere.

    Args:
        number: of the step.
        plan: the rows of each optimiser step; groups of the last come first.
        data: "prompts", "responses" and "reward_model" of every row.
    """
    places = where.live.nonzero()[:, 0].tolist()
    tracer = Tracer(most)
    tracer.choose(where.numbers([row for rows in reversed(plan) for row in rows]), step)
    prompts, responses = data["prompts"].unbind(), data["responses"].unbind()
    rewards = column(data["reward_model"]) if "reward_model" in data else [None] * len(data)
    lines = [""] * len(data)
    for i in sorted(tracer.wanted):
        place = places[i]
        token_ids = responses[place][step.rollouts.mask[i, : len(responses[place])]].tolist()
        facts = {
            "step": number,
            "row": i,
            "group": int(step.rollouts.group[i]),
            "prompt": tokenizer.decode(prompts[place].tolist(), skip_special_tokens=True),
            "tokens": [tokenizer.decode([token]) for token in token_ids],
            "reward": float(step.rollouts.reward[i]),
            "answer": answer(rewards[place]),
            "terms": tracer.known.get(i, {}),
        }
        lines[place] = json.dumps(facts)
    return TensorDict({FIELD: NonTensorStack(*lines)}, [len(data)])


def answer(reward_model: Any) -> str:
    """The reference answer in a row's `reward_model`; "" for none."""
    truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    return "" if truth is None else str(truth)


def write(directory: str, data: TensorDict, live: Sequence[int], batch: Batch, loss: Loss) -> None:
    """In a worker: one file for each marked row of a micro-batch; the batch holds the rows `live`."""
    marked = column(data[FIELD]) if FIELD in data else []
    places = [place for place, row in enumerate(live) if marked and marked[row]]
    if not places:
        return
    tracer = Tracer(len(places))
    tracer.want(places)
    tracer.add(torch.arange(len(live)), batch, loss)
    for place, terms in tracer.found.items():
        facts = json.loads(marked[live[place]])
        file = Path(directory) / PARTS / f"{facts['step']:06d}-{facts['row']:06d}.json"
        write_whole(file, json.dumps(finite({**facts, "terms": {**terms, **facts["terms"]}})))
