"""The setting of a study, the same for all methods of a file. The defaults are those of docs/exact.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ...base.errors import TokenPOError, choose

HOT, GRID = 1.2, 0.5  # temperature of the hot sampler; distance between the logits of the rounding one
SAMPLERS = ("same", "hot", "rounded")


@dataclass(frozen=True)
class Setting:
    """The axes of a study.

    Args:
        group: rollouts of a group.
        batch: groups of an update.
        network: a small network, whose states share parameters, gives the logits in place of a table; noisy training
            always has it.
        sampler: the policy itself samples, or one with another temperature or rounded logits, which the method sees in
            `rollout_logprob` alone.
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
        """From KEY=VALUE.

        >>> str(Setting.of(["group=4", "network=true"]))
        'group=4,network=true'

        Raises:
            UnknownName: no such axis.
            TokenPOError: a value of the wrong kind.
        """
        kinds, values = {field.name: type(field.default) for field in dataclasses.fields(cls)}, {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            kind = choose("setting", key, kinds)
            try:
                values[key] = {"true": True, "false": False}[value] if kind is bool else kind(value)
            except (KeyError, ValueError):
                wanted = "true or false" if kind is bool else "a number"
                raise TokenPOError(f"--set {pair}: give {key} as {wanted}") from None
        return cls(**values)

    def sampled_by(self, logits: Tensor) -> Tensor:
        """The logits of the sampler where the policy has these."""
        if self.sampler == "hot":
            return logits / HOT
        return torch.round(logits / GRID) * GRID if self.sampler == "rounded" else logits

    def __str__(self) -> str:
        """The axes that are not as usual."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        return ",".join(f"{key}={str(x).lower()}" for key, x in vars(self).items() if x != usual[key])


USUAL = Setting()
