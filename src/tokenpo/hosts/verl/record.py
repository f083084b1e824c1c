"""The run directory of a verl run, for `tokenpo report`: metrics of every step, loss terms of a few responses.

The driver marks rows of a step. The worker that computes the loss of a marked row writes its terms to a file. After the
update the driver appends these files to trace.jsonl. Workers on other nodes need a disk shared with the driver.
"""

# pyright: reportMissingImports=false
import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict

from ...base.files import write_whole
from ...base.jsonl import finite
from ...core.learner import Step
from ...core.types import Batch, Loss
from ...records import RunLog, Tracer
from .layout import Rows, column

FIELD = "tokenpo_trace"
PARTS = "trace-parts"
ZERO = "tokenpo/zero_advantage_groups"
# verl's name -> the report's.
NAMES = {
    "critic/score/mean": "reward", "actor/entropy": "entropy", "response_length/mean": "length",
    "response_length/max": "length_max", "response_length/clip_ratio": "truncated", "actor/grad_norm": "grad_norm",
    "actor/lr": "lr", "actor/pg_loss": "loss", "actor/pg_clipfrac": "clip_fraction", "actor/ppo_kl": "kl_moved",
    ZERO: "zero_advantage_groups",
    "timing_s/gen": "seconds_rollout", "timing_s/update_actor": "seconds_update",
    "timing_s/old_log_prob": "seconds_rescore", "timing_s/step": "step_seconds",
}  # fmt: skip


class Record(RunLog):
    """A run directory that verl's driver fills; `RunLog` has the first arguments.

    Args:
        every: steps between traces; 0 for none.
        most: responses of one trace.
        greedy: verl validates at temperature 0.
    """

    def __init__(
        self,
        path: Path,
        step: int = 0,
        config: Mapping[str, Any] = {},
        objective: str = "",
        *,
        every: int = 10,
        most: int = 4,
        greedy: bool = False,
    ) -> None:
        super().__init__(path, step, config, objective, ("verl", "ray"))
        self.every, self.most, self.greedy = every, most, greedy
        shutil.rmtree(path / PARTS, ignore_errors=True)  # from an unfinished step
        (path / PARTS).mkdir()

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
        self.write({"step": step, **ours})


def marks(
    step: Step, where: Rows, number: int, plan: Sequence[Sequence[int]], most: int, data: TensorDict, tokenizer: Any
) -> TensorDict:
    """The field that marks the best and the worst response of groups: JSON with the driver's facts, "" elsewhere.

    Args:
        number: number of the step.
        plan: the rows of each optimiser step; groups of the last step are chosen first.
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
    """Called in a worker: writes one file for each marked row of a micro-batch; `batch` holds the rows `live`."""
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
