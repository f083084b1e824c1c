"""The setting of a study, the same for all methods of a file; docs/exact.json has the defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ...base.errors import TokenPOError, choose

HOT, GRID = 1.2, 0.5  # temperature of the hot sampler; multiple to which the rounding sampler rounds logits
SAMPLERS = ("same", "hot", "rounded")


@dataclass(frozen=True)
class Setting:
    """The axes of a study.

    Args:
        group: number of rollouts in a group.
        batch: number of groups in an update.
        network: compute the logits by a small network, whose states share parameters, rather than a table; noisy
            training always does.
        sampler: "same" samples from the policy, "hot" at a higher temperature, "rounded" from rounded logits; the
            method sees the difference only in `rollout_logprob`.
    """

    group: int = 8
    batch: int = 8
    network: bool = False
    sampler: str = "same"

    def __post_init__(self) -> None:
        choose("sampler", self.sampler, dict.fromkeys(SAMPLERS))
        if self.group < 2 or self.batch < 2:
            raise TokenPOError(f"group is {self.group} and batch {self.batch}: both must be 2 or more")

    @classmethod
    def of(cls, pairs: Iterable[str]) -> Self:
        """The setting from texts KEY=VALUE.

        >>> str(Setting.of(["group=4", "network=true"]))
        'group=4,network=true'

        Raises:
            UnknownName: an axis does not exist.
            TokenPOError: a value has the wrong type.
        """
        kinds, values = {field.name: type(field.default) for field in dataclasses.fields(cls)}, {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            kind = choose("setting", key, kinds)
            try:
                values[key] = {"true": True, "false": False}[value] if kind is bool else kind(value)
            except (KeyError, ValueError):
                expected = "true or false" if kind is bool else "a number"
                raise TokenPOError(f"--set {pair}: give {key} as {expected}") from None
        return cls(**values)

    def sampled_by(self, logits: Tensor) -> Tensor:
        """The sampler's logits, from the policy's."""
        if self.sampler == "hot":
            return logits / HOT
        return torch.round(logits / GRID) * GRID if self.sampler == "rounded" else logits

    def __str__(self) -> str:
        """The axes that are not at their defaults."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        return ",".join(f"{key}={str(x).lower()}" for key, x in vars(self).items() if x != usual[key])


USUAL = Setting()
