"""The cap on dynamic sampling, under verl's own buffer: prompts in, groups evicted, two drawn for each."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foreign_support import need

need("transfer_queue", "verl's V1 buffer is not installed: the cap on dynamic sampling was not tested")
need("verl.trainer.ppo.v1", "verl's V1 buffer is not installed: the cap on dynamic sampling was not tested")

from omegaconf import OmegaConf  # noqa: E402
from verl.trainer.ppo.v1 import replay_buffer  # noqa: E402

from tokenpo.base.errors import TokenPOError  # noqa: E402
from tokenpo.engines.verl.trainer import Refills  # noqa: E402


class Sampler:
    """A step of verl's sync sampling over a queue in memory; a few groups end at each poll, `share` of them vary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int, refills: Refills, share: float) -> None:
        self.refills, self.share, self.random = refills, share, random.Random(seed)
        self.store: dict[str, dict[str, Any]] = {}
        self.running: list[str] = []
        self.varies: dict[str, bool] = {}
        monkeypatch.setattr(replay_buffer, "tq", self)
        settings: dict[str, Any] = {
            "poll_interval": 0, "refill_fn": self.refill, "filter_groups_metric": "reward",
            "train_batch_size": refills.batch, "gen_batch_size": 1,
        }  # fmt: skip
        buffer = replay_buffer.ReplayBuffer("sync", OmegaConf.create(), None, "drop", OmegaConf.create(), **settings)
        buffer._wait_for_next_poll = self.poll
        self.buffer = refills.watch(buffer)

    def step(self) -> int:
        """Groups that the step trains on."""
        self.refills.drawn = self.refills.batch
        self.draw(self.refills.batch)
        batch, _ = self.buffer.sample(global_steps=1, partition_id="train", batch_size=self.refills.batch)
        return len({key.split("_")[0] for key in batch.keys})

    def refill(self, prompts: int) -> None:
        self.draw(self.refills.take(prompts))

    def draw(self, prompts: int) -> None:
        for _ in range(prompts):
            uid = f"u{len(self.varies)}"
            self.varies[uid] = self.random.random() < self.share
            self.store[uid] = {"is_prompt": True, "status": "running", "global_steps": 1}
            self.running.append(uid)

    def poll(self, partition: str, last_debug_time: float) -> float:
        assert self.running, "verl would wait for ever"
        for _ in range(min(4, len(self.running))):
            uid = self.running.pop(self.random.randrange(len(self.running)))
            self.store[uid]["status"] = "finished"
            self.store |= {f"{uid}_{session}_0": {"status": "success"} for session in range(2)}
        return 0.0

    # The buffer's TransferQueue.
    def kv_list(self) -> dict[str, Any]:
        return {"train": {key: dict(tag) for key, tag in self.store.items()}}

    def kv_clear(self, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            self.store.pop(key, None)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        parts = (key.split("_") for key in keys)
        return {"rm_scores": [torch.tensor([float(self.varies[uid] and n == "1")]) for uid, n, _ in parts]}


@pytest.mark.parametrize(("batch", "most", "share"), [(8, 2, 0.5), (8, 4, 0.3), (64, 2, 0.5), (64, 4, 0.25)])
def test_a_step_stops_only_where_the_cap_holds_too_few(
    batch: int, most: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever runs is waited for; what is drawn never exceeds the cap; and a step that stops had drawn all of it."""
    ends = SimpleNamespace(full=0, stopped=0)
    for seed in range(40):
        sampler = Sampler(monkeypatch, seed, Refills(batch, most), share)
        try:
            assert sampler.step() == batch
            ends.full += 1
        except TokenPOError:
            assert len(sampler.varies) == batch * most and sum(sampler.varies.values()) < batch
            ends.stopped += 1
        assert sampler.refills.drawn == len(sampler.varies) <= batch * most
    assert ends.full and ends.stopped


def test_the_first_batch_is_enough_where_all_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler(monkeypatch, 0, Refills(8, 1), 1.0)
    assert sampler.step() == 8 == len(sampler.varies)


@pytest.mark.parametrize(("setting", "batches"), [(3, 3), (0, 10)])
def test_the_cap_is_verls_setting(setting: int, batches: int) -> None:
    config = {"algorithm": {"filter_groups": {"max_num_gen_batches": setting}}, "data": {"train_batch_size": 8}}
    refills = Refills.of(OmegaConf.create(config))
    assert (refills.batch, refills.most) == (8, batches)
    refills.drawn = refills.batch
    assert refills.take(1000) == 8 * batches - 8
    with pytest.raises(TokenPOError, match=rf"for one step of 8 .*at most {batches} batches"):
        refills.require_more()


def test_a_validation_is_not_watched() -> None:
    """It draws nothing, and a step may have left the count at the cap."""
    waited: list[str] = []
    buffer = SimpleNamespace(_wait_for_next_poll=lambda partition, last: waited.append(partition))
    Refills(8, 1, drawn=8).watch(buffer)._wait_for_next_poll("val", 0.0)
    assert waited == ["val"]
