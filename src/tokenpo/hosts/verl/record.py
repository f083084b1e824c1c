"""The run directory of a verl run, for `tokenpo report`: metrics of every step under the report's names."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...records import RunLog

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
    """A run directory that verl's driver fills; `greedy`: verl validates at temperature 0."""

    def __init__(
        self, path: Path, step: int = 0, config: Mapping[str, Any] = {}, objective: str = "", *, greedy: bool = False
    ) -> None:
        super().__init__(path, step, config, objective, ("verl", "ray"))
        self.greedy = greedy

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
