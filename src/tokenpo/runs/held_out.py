"""Held-out mean rewards in the metrics of a run: an evaluation whose rewards are its verdicts leaves them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

# Mean reward -> what it is equal to where every reward is 1 for a right and 0 for a wrong response.
REWARDS: Mapping[str, str] = {
    "eval/reward": "eval/accuracy",
    "eval/reward_low": "eval/low",
    "eval/reward_high": "eval/high",
    "eval/avg_reward": "eval/avg",
    "eval/avg_reward_low": "eval/avg_low",
    "eval/avg_reward_high": "eval/avg_high",
}
X = TypeVar("X")


def with_rewards(lines: Sequence[Mapping[str, X]]) -> list[Mapping[str, X]]:
    """The lines of a run's metrics; if some tell a mean reward, it stands in all that evaluate.

    >>> with_rewards([{"eval/accuracy": 0.0}, {"lr": 1.0}, {"eval/accuracy": 0.5, "eval/reward": 0.7}])[0]
    {'eval/accuracy': 0.0, 'eval/reward': 0.0}
    """
    if not any("eval/reward" in line for line in lines):
        return list(lines)
    return [line if "eval/reward" in line else {**line, **_verdicts(line)} for line in lines]


def _verdicts(line: Mapping[str, X]) -> dict[str, X]:
    return {name: line[same] for name, same in REWARDS.items() if same in line}
