"""A cap on dynamic sampling: verl's V1 buffer refills for ever where every group's rewards are equal.

The buffer draws two prompts for each group that it drops, while others still run. Prompts above the cap are not drawn;
the step fails when nothing runs any more and groups are still missing.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ...base.errors import TokenPOError


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
        """algorithm.filter_groups.max_num_gen_batches, which verl's V1 trainer ignores; 0, verl's default, is 10."""
        most = OmegaConf.select(config, "algorithm.filter_groups.max_num_gen_batches", default=0) or 10
        return Refills(config.data.train_batch_size, int(most))

    def begin(self) -> None:
        """A step begins, with its first batch drawn."""
        self.drawn = self.batch

    def take(self, prompts: int) -> int:
        """The number of these prompts that the step may still draw."""
        allowed = min(prompts, self.batch * self.most - self.drawn)
        self.drawn += allowed
        return allowed

    def watch(self, buffer: Any) -> Any:
        """verl's buffer, which from now on fails where it would wait for ever for responses of a step."""
        wait = buffer._wait_for_next_poll

        def watched(partition: str, last_debug_time: float) -> float:
            if partition == "train":
                self.require_running(len(buffer.pending_keys[partition]) + len(buffer.running_keys[partition]))
            return wait(partition, last_debug_time)

        buffer._wait_for_next_poll = watched
        return buffer

    def require_running(self, running: int) -> None:
        """
        Raises:
            TokenPOError: the step has drawn all that it may, and nothing of it runs any more.
        """
        if not running and self.drawn >= self.batch * self.most:
            raise TokenPOError(
                f"dynamic sampling drew {self.drawn} prompts for one step of {self.batch} and still misses "
                f"some whose rewards differ (at most {self.most} batches, "
                "algorithm.filter_groups.max_num_gen_batches): the problems are too easy or too hard for the model, "
                "or the metric never varies"
            )
