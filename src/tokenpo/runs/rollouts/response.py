"""One recorded response, and the way from a batch of tensors to responses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.types import Policy, Rollouts

# One number for each token, by the names of the fields of `Rollouts` and of `Policy`.
FACTS = (
    "old_logprob", "old_entropy", "rollout_logprob", "ref_logprob", "temperature", "influence", "divergence",
)  # fmt: skip
NOW = ("logprob", "entropy", "entropy_drift")
PER_TOKEN = (*FACTS, *NOW)


@dataclass(frozen=True)
class Response:
    """One response of T tokens.

    Args:
        group: the same for all responses to one prompt.
        tokens: T strings.
        numbers: name to T numbers, names of `PER_TOKEN`.
        token_ids: T integers.
        correct: whether the answer is right; None where it is not known.
        step: of the training that drew it.
        prompt_logprob: nats, mean log-probability of a token of the prompt.
    """

    group: int | str
    reward: float
    tokens: tuple[str, ...]
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    token_ids: tuple[int, ...] | None = None
    prompt: str = ""
    correct: bool | None = None
    step: int | None = None
    prompt_logprob: float | None = None

    @property
    def given(self) -> frozenset[str]:
        """What this response says beyond reward and tokens: names of the format."""
        plain = {name for name in ("token_ids", "prompt_logprob", "step") if getattr(self, name) is not None}
        return frozenset(self.numbers) | plain

    def as_json(self) -> dict[str, Any]:
        """The line of a JSON Lines file; what is not known is left out."""
        line: dict[str, Any] = {name: getattr(self, name) for name in ("step", "group", "prompt", "reward", "correct")}
        line |= {"prompt_logprob": self.prompt_logprob, "tokens": self.tokens, "token_ids": self.token_ids}
        line |= self.numbers
        if heat := set(self.numbers.get("temperature", ())):
            line["temperature"] = heat.pop() if len(heat) == 1 else self.numbers["temperature"]
        return {name: value for name, value in line.items() if value is not None}


def responses(
    rollouts: Rollouts,
    tokens: Sequence[Sequence[str]],
    *,
    groups: Sequence[int | str] | None = None,
    prompts: Sequence[str] | None = None,
    correct: Sequence[bool | None] | None = None,
    step: int | None = None,
    policy: Policy | None = None,
) -> Iterator[Response]:
    """A batch of tensors as responses; a number of float32 becomes the shortest decimal that reads back as it.

    Args:
        rollouts: N rollouts; every optional field that is there is taken along.
        tokens: for each rollout as many strings as it has response tokens.
        groups: [N], in the place of `rollouts.group`.
        prompts: [N] texts.
        correct: [N].
        step: of the training, the same for all.
        policy: what the current policy says, where it is not the one that sampled.
    """
    columns = {name: getattr(rollouts, name) for name in FACTS} | {name: getattr(policy, name, None) for name in NOW}
    per_token = {name: x.detach().cpu() for name, x in columns.items() if x is not None}
    group_names = rollouts.group.tolist() if groups is None else groups
    ids = None if rollouts.token_ids is None else rollouts.token_ids.cpu()
    of_prompt = None if rollouts.prompt_logprob is None else rollouts.prompt_logprob.tolist()
    reward = rollouts.reward.tolist()
    for row, row_mask in enumerate(rollouts.mask.cpu()):
        yield Response(
            group=group_names[row],
            reward=shortest(reward[row]),
            tokens=tuple(tokens[row]),
            numbers={name: tuple(map(shortest, x[row][row_mask].tolist())) for name, x in per_token.items()},
            token_ids=None if ids is None else tuple(ids[row][row_mask].tolist()),
            prompt="" if prompts is None else prompts[row],
            correct=None if correct is None else correct[row],
            step=step,
            prompt_logprob=None if of_prompt is None else shortest(of_prompt[row]),
        )


def shortest(x: float) -> float:
    """The shortest decimal that is the same float32; a number that is no float32 stays.

    >>> shortest(0.10000000149011612), shortest(0.1)
    (0.1, 0.1)
    """
    if ctypes.c_float(x).value == x:
        for digits in (6, 7, 8, 9):
            y = float(f"{x:.{digits}g}")
            if ctypes.c_float(y).value == x:
                return y
    return x
