"""A recipe that TRL trains is the same run wherever it is made: on a device that is none (`device.stand_in` says what
that shows), and with weights that FSDP2 shards over two processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tokenpo.models import load, locate
from trl_support import run_script

pytestmark = pytest.mark.usefixtures("trl_here")
# A temperature for every token; statistics of the whole step; a reference.
CASES = ("hapo", "kl_cov", "adv_reweight")
# Times, and what rounding decides: which small entropy is the tenth percentile, which penalty is exactly 0.
LEFT_OUT = ("seconds", "entropy_q", "effective_tokens")
# HAPO's entropy score ends at the log of the smallest entropy, of which the head and TRL's own pass round other digits:
# the loss, a sum that cancels, and the temperatures of the next batch show it, and the weights do not.
ROUNDED = {"hapo": ("loss", "temperature_mean")}


def made(kinds: tuple[str, str], factory: pytest.TempPathFactory, processes: int) -> list[Path]:
    out = [factory.mktemp(kind, numbered=False) for kind in kinds]
    for kind in out:
        run_script("recipes_run.py", kind.name, kind, *CASES, processes=processes)
    return out


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return made(("cpu", "standin"), tmp_path_factory, 1)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return made(("whole", "sharded"), tmp_path_factory, 2)


def same(runs: list[Path], case: str, atol: float, left_out: tuple[str, ...]) -> None:
    """Metrics, and the weights of the model that is left."""
    logs: list[list[dict[str, Any]]] = []
    for run in runs:
        lines = (run / case / "trl" / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        dropped = (*left_out, *ROUNDED.get(case, ()))
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(dropped)} for line in lines])
    for here, there in zip(*logs, strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=atol)
    here, there = (dict(load(run / case / "model").model.named_parameters()) for run in runs)
    for name in here:
        torch.testing.assert_close(there[name], here[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_that_of_the_processor(devices: list[Path], case: str) -> None:
    """The same responses from the same random numbers; float32 in another order, as TRL takes the head there.

    A loss is a mean of terms of size one that cancel.
    """
    same(devices, case, 5e-5, ("seconds", "effective_tokens"))


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_that_with_all_weights_in_each_process(shards: list[Path], case: str) -> None:
    same(shards, case, 1e-5, LEFT_OUT)


def test_an_adapter_is_left_by_itself_and_merged_in(shards: list[Path]) -> None:
    """W + (alpha / rank) B A, from what stands in adapter/."""
    for run in shards:
        adapter = load_file(run / "adv_reweight" / "adapter" / "adapter_model.safetensors")
        settings = json.loads((run / "adv_reweight" / "adapter" / "adapter_config.json").read_text())
        start, end = (
            dict(load(path).model.named_parameters()) for path in (locate("tiny"), run / "adv_reweight" / "model")
        )
        names = [name for name in adapter if name.endswith("lora_A.weight")]
        assert names
        for name in names:
            down, up = adapter[name], adapter[name.replace("lora_A", "lora_B")]
            place = name.removeprefix("base_model.model.").replace("lora_A.", "")
            moved = settings["lora_alpha"] / settings["r"] * up @ down
            torch.testing.assert_close(end[place], start[place] + moved, rtol=1e-5, atol=1e-6)
            assert moved.any()


def test_what_the_first_process_loads_alone_is_not_sharded_by_deepspeed() -> None:
    """Under ZeRO-3 transformers shards every model that it loads, in step with processes that only wait here."""
    from types import SimpleNamespace

    from transformers.integrations import deepspeed

    from tokenpo.engines.trl.main import _in_first_process

    class Stage3:
        def is_zero3(self) -> bool:
            return True

    trainer = SimpleNamespace(accelerator=SimpleNamespace(is_main_process=True, wait_for_everyone=lambda: None))
    config = Stage3()
    deepspeed.set_hf_deepspeed_config(config)
    try:
        assert _in_first_process(trainer, lambda: {"sharded": deepspeed.is_deepspeed_zero3_enabled()}) == {
            "sharded": False
        }
        assert deepspeed.is_deepspeed_zero3_enabled()
    finally:
        deepspeed.unset_hf_deepspeed_config()
    assert _in_first_process(trainer, lambda: {"sharded": deepspeed.is_deepspeed_zero3_enabled()}) == {"sharded": False}
