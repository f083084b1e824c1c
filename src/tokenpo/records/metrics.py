"""The metrics of a run: their names, those that every engine computes alike, and a reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..base.jsonl import whole_lines
from ..core.ops import masked
from ..core.statistics import LAGS
from ..core.types import Credit, Rollouts

Number = float | None
# Names of the metrics that engines log.
_LOGGED = """
    reward accuracy eval/accuracy eval/low eval/high entropy entropy_q10 entropy_q50 entropy_q90 length length_max
    eval/length ratio_mean ratio_min ratio_max clip_fraction clip_low_fraction clip_high_fraction kl grad_norm
    zero_advantage_groups effective_tokens discarded_groups truncated seconds_rollout seconds_update seconds_other
    loss lr temperature_mean eval/avg eval/avg_low eval/avg_high eval/k groups seconds_evaluation reward_std
    length_min equal_reward_groups skipped_updates eval/reward eval/reward_low eval/reward_high eval/avg_reward
    eval/avg_reward_low eval/avg_reward_high continued_tokens kl_reached kl_rate kl_left_out value_loss
    explained_variance teacher_kl kept_tokens
"""
BY_LAG = ("share", "ratio_mean", "clip_fraction")
LOGGED = frozenset(_LOGGED.split()) | {f"lag_{least}_{what}" for least in LAGS for what in BY_LAG}
NOTE = "note/"  # prefix of metrics that count a verifier's notes
# Held-out mean reward -> the accuracy that it equals if every reward is 1 for a right and 0 for a wrong response. In
# that case the metrics leave the reward out.
REWARDS: Mapping[str, str] = {
    "eval/reward": "eval/accuracy",
    "eval/reward_low": "eval/low",
    "eval/reward_high": "eval/high",
    "eval/avg_reward": "eval/avg",
    "eval/avg_reward_low": "eval/avg_low",
    "eval/avg_reward_high": "eval/avg_high",
}
_LOGGED_TYPES = {float, int, bool, type(None)}
X = TypeVar("X")


@dataclass(frozen=True)
class Metrics:
    """A run's log: the number of steps after step 0, and the `series`, (step, value) ascending by metric."""

    trained: int
    series: Mapping[str, list[tuple[float, Number]]]


def read_metrics(log: Path, notes: list[str]) -> Metrics:
    """Reads a log of metrics, with rewards and counts of notes that are implied; skipped lines are named in `notes`.

    If a resumed run logged a step twice, the later line counts.
    """

    def numbers(line: Any) -> dict[str, Number]:
        if not isinstance(line, dict) or number(line.get("step")) is None:
            raise ValueError("not an object with a step")
        return {name: number(value) for name, value in line.items() if type(value) in _LOGGED_TYPES}

    found = [line.value for line in whole_lines(log, numbers, notes)]
    if not found:
        cause = notes[0] if notes else "it is empty"
        raise TokenPOError(f"{log} holds no whole line with a step ({cause.rstrip('.')}): restore it, or train again")
    by_step = {line["step"]: line for line in found}
    if repeated := len(found) - len(by_step):
        notes.append(f"metrics.jsonl: {repeated} steps were logged twice (a resumed run); the later line counts.")
    counts = dict.fromkeys(name for line in found for name in line if name.startswith(NOTE))
    series: dict[str, list[tuple[float, Number]]] = {}
    for step, line in zip(sorted(by_step), with_rewards([by_step[step] for step in sorted(by_step)]), strict=True):
        none = [name for name in counts if name not in line] if line.get("accuracy") is not None else []
        for name, value in (line | dict.fromkeys(none, 0.0)).items():
            series.setdefault(name, []).append((step, value))
    return Metrics(sum(step > 0 for step in by_step), series)


def with_rewards(lines: Sequence[Mapping[str, X]]) -> list[dict[str, X]]:
    """The lines of a run's metrics; if one has a held-out mean reward, all lines with an evaluation get it.

    >>> with_rewards([{"eval/accuracy": 0.0}, {"lr": 1.0}, {"eval/accuracy": 0.5, "eval/reward": 0.7}])[0]
    {'eval/accuracy': 0.0, 'eval/reward': 0.0}
    """
    if not any("eval/reward" in line for line in lines):
        return [dict(line) for line in lines]
    implied = [{name: line[same] for name, same in REWARDS.items() if same in line} for line in lines]
    return [
        dict(line) if "eval/reward" in line else {**line, **more} for line, more in zip(lines, implied, strict=True)
    ]


def number(value: Any) -> Number:
    """A finite float, or None. No axis can show numbers beyond 1e±100: they count as not finite, or as zero."""
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        x = float(value)
    except OverflowError:
        return None
    if not abs(x) < 1e100:
        return None
    return x if abs(x) > 1e-100 else 0.0


def entropy_metrics(entropy: Tensor) -> dict[str, float]:
    """Mean and quantiles of the entropy over tokens [M], nats."""
    quantiles = {f"entropy_q{q}": float(masked.quantile(entropy, q / 100)) for q in (10, 50, 90)}
    return {"entropy": float(entropy.mean()), **quantiles}


def credit_metrics(rollouts: Rollouts, credit: Credit) -> dict[str, float]:
    """Statistics of the groups that are trained on."""
    live = ((credit.advantage != 0) & rollouts.mask).any(1)
    groups = int(rollouts.group.max()) + 1
    alive = torch.zeros(groups, dtype=torch.bool, device=live.device).index_put((rollouts.group[live],), live[live])
    return {"groups": groups, "zero_advantage_groups": 1 - float(alive.float().mean())}
