"""A cap on dynamic sampling: verl's V1 buffer refills for ever where every group's metric is equal."""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from ...errors import TokenPOError

# Where max_num_gen_batches is 0, which is verl's default and means no limit there.
DEFAULT = 10


@dataclass
class Refills:
    """Counts the prompts that one step draws.

    Args:
        batch: prompts of one generation batch.
        most: generation batches that one step may draw, the first included.
    """

    batch: int
    most: int
    drawn: int = 0

    @staticmethod
    def of(config: DictConfig) -> Refills:
        """Honours algorithm.filter_groups.max_num_gen_batches, which verl's V1 trainer ignores."""
        most = OmegaConf.select(config, "algorithm.filter_groups.max_num_gen_batches", default=0) or DEFAULT
        return Refills(config.data.train_batch_size, int(most))

    def begin(self) -> None:
        """A step begins: its first batch is on the way."""
        self.drawn = self.batch

    def add(self, prompts: int) -> None:
        """
        Raises:
            TokenPOError: the step would draw more than it may.
        """
        self.drawn += prompts
        if self.drawn > self.batch * self.most:
            raise TokenPOError(
                f"dynamic sampling drew {self.drawn - prompts} prompts for one step of {self.batch} and still misses "
                f"some whose rewards differ (at most {self.most} batches, "
                "algorithm.filter_groups.max_num_gen_batches): the problems are too easy or too hard for the model, "
                "or the metric never varies"
            )
