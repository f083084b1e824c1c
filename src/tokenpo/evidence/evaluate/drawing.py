"""How an evaluation draws its samples."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...base.errors import TokenPOError
from ...core.seeds import keyed_seed
from ...models import Sampling


@dataclass(frozen=True)
class Drawing:
    """How samples are drawn.

    Args:
        samples: of each prompt.
        max_new_tokens: longest sample.
        temperature: 0 is greedy.
        seed: that of a training run, for the samples that its own evaluation draws.
        rows: samples drawn at once.

    Raises:
        TokenPOError: a number that makes no sense; the message names the option.
    """

    samples: int = 1
    max_new_tokens: int = 512
    temperature: float = 1.0
    seed: int = 0
    rows: int = 64

    def __post_init__(self) -> None:
        for option, value in (("--samples-per-prompt", self.samples), ("--rows", self.rows)):
            if value < 1:
                raise TokenPOError(f"{option} is {value}, expected at least 1")
        try:
            Sampling(self.max_new_tokens, self.temperature)
        except TokenPOError as error:
            raise TokenPOError(re.sub(r"Sampling\.(\w+)", _option, str(error))) from error
        if self.temperature == 0 and self.samples > 1:
            raise TokenPOError(
                f"{self.samples} greedy samples of a prompt are all the same: set --samples-per-prompt 1, or a "
                "--temperature above 0"
            )

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.max_new_tokens, self.temperature, keyed_seed(self.seed, "evaluation"))

    @property
    def at_once(self) -> int:
        """Problems in one batch."""
        return max(1, self.rows // self.samples)


def _option(setting: re.Match[str]) -> str:
    """The option that sets a setting of the sampler."""
    return "--" + setting[1].replace("_", "-")
