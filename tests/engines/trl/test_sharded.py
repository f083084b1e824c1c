"""Weights that FSDP2 shards over two processes: the run is the one with all weights in each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tokenpo.models import load, locate
from trl_support import run_script

pytestmark = pytest.mark.usefixtures("trl_here")
CASES = ("hapo", "kl_cov", "adv_reweight")
# Times, and what rounding decides: which small entropy is the tenth percentile, which penalty is exactly 0.
LEFT_OUT = ("seconds", "entropy_q", "effective_tokens")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = [tmp_path_factory.mktemp(kind, numbered=False) for kind in ("whole", "sharded")]
    for kind in out:
        run_script("sharded_run.py", kind.name, kind, *CASES, processes=2)
    return out


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_that_with_all_weights_in_each_process(runs: list[Path], case: str) -> None:
    logs, weights = [], []
    for run in runs:
        lines = (run / case / "trl" / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(LEFT_OUT)} for line in lines])
        weights.append(dict(load(run / case / "model").model.named_parameters()))
    for whole, sharded in zip(*logs, strict=True):
        assert sharded == pytest.approx(whole, rel=1e-4, abs=1e-5)
    for name, whole in weights[0].items():
        torch.testing.assert_close(weights[1][name], whole, rtol=1e-5, atol=1e-6)


def test_an_adapter_is_left_by_itself_and_merged_in(runs: list[Path]) -> None:
    """W + (alpha / rank) B A, from what stands in adapter/."""
    for run in runs:
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
