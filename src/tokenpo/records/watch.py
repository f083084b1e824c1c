"""Warns if a run learns nothing, from the metrics of its steps in any engine (docs/metrics.md has the names)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

BATCHES = 3  # rollout batches in a row
KL, ENTROPY = 0.5, 0.01  # nats per token: largest KL of a healthy step, smallest entropy of a sampling policy

ALL_ZERO = (
    f"the reward of every response was 0 in the first {BATCHES} batches, so nothing is learnt: read a few responses "
    "and look whether the verifier finds their answers and the limit of new tokens lets them end; else give easier "
    "problems or a stronger model"
)
ALL_EQUAL = (
    f"the rewards of every group were equal in {BATCHES} batches in a row, so no response has an advantage and nothing "
    "is learnt: give problems of middle difficulty, larger groups or a higher temperature"
)
MOVED = (
    f"is more than {KL} nats, so the policy is no longer the one that sampled: lower the learning rate, or hold it "
    "with kl_stop"
)
COLLAPSED = (
    f"is below {ENTROPY} nats, so the responses to a prompt are nearly all the same: resume from before with a lower "
    "learning rate or a higher temperature"
)
NO_GRADIENT = (
    "the gradient norm is 0 although rewards differ, so no weight moves: look whether the weights are frozen, every "
    "response is masked, or the method clips or drops every token"
)


class Watch:
    """Warns once of each sign that a run learns nothing.

    Args:
        step: the step after which the run resumes; 0 for a fresh run.
        rewarded: the method learns from rewards, not only from a teacher.

    Attributes:
        said: all warnings so far.
    """

    def __init__(self, step: int = 0, *, rewarded: bool = True) -> None:
        self.said: list[str] = []
        self._fresh, self._rewarded = step == 0, rewarded
        self._zero = self._equal = self._batches = 0
        self._known: set[str] = set()

    def __call__(self, metrics: Mapping[str, Any]) -> list[str]:
        """New warnings after a step with these metrics; absent and NaN metrics are not judged."""
        if not metrics.get("step"):  # the evaluation before the first step
            return []
        signs = {kind: text for kind, text in self._signs(metrics) if kind not in self._known}
        self._known |= signs.keys()
        new = [f"step {metrics['step']:g}: {text}" for text in signs.values()]
        self.said += new
        return new

    def _signs(self, metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        numbers = {name: float(x) for name, x in metrics.items() if isinstance(x, (int, float)) and x == x}
        kl, entropy = numbers.get("kl", numbers.get("kl_moved", math.nan)), numbers.get("entropy", math.nan)
        equal = self._rewarded and numbers.get("zero_advantage_groups") == 1 and "reward" in numbers
        self._batches += 1
        self._equal = self._equal + 1 if equal else 0
        self._zero += equal and numbers.get("reward") == 0
        if self._fresh and self._zero == self._batches == BATCHES:
            yield "equal", ALL_ZERO
        elif self._equal == BATCHES:
            yield "equal", ALL_EQUAL
        if kl > KL:
            yield "kl", f"the KL of a step, {kl:.3g} per token, {MOVED}"
        if entropy < ENTROPY:
            yield "entropy", f"the entropy, {entropy:.2g} per token, {COLLAPSED}"
        # Without groups, or at rate 0 (a critic's warm-up), a gradient of 0 is expected.
        if numbers.get("grad_norm") == 0 and 0 not in (numbers.get("groups"), numbers.get("lr")) and not equal:
            yield "gradient", NO_GRADIENT
