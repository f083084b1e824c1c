"""A recipe that TRL trains is the same run wherever it is made: on a device that is none (`device.stand_in` says what
that shows), and with weights that FSDP2 shards over two processes."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tokenpo.models import load, locate
from trl_support import run_script

# A temperature for every token; statistics of the whole step; a reference.
CASES = ("hapo", "kl_cov", "adv_reweight")
# On the device also: a share of each group's entropy, a ratio of the response, a gradient through the entropy.
MORE = ("tepo", "gspo", "skywork_entropy")
# Times, and what rounding decides: which penalty is exactly 0, which small entropy is the tenth percentile.
LEFT_OUT = ("seconds", "effective_tokens")
# HAPO's entropy score ends at the log of the smallest entropy, of which the head and TRL's own pass round other digits:
# the loss, a sum that cancels, and the temperatures of the next batch show it, and the weights do not.
ROUNDED = {"hapo": ("loss", "temperature_mean")}
# Absolute tolerance and metrics left out. On the device TRL takes the head in another order: terms of size one cancel
# in the loss.
KINDS = {
    ("cpu", "standin"): (5e-5, LEFT_OUT),
    ("cpu", "standin_head"): (1e-5, ("seconds",)),
    ("whole", "sharded"): (1e-5, (*LEFT_OUT, "entropy_q")),
}
PAIRS = [(kinds, case) for kinds in KINDS for case in (*CASES, *(MORE if "cpu" in kinds else ()))]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, str]], list[Path]]:
    @functools.cache
    def one(kind: str) -> Path:
        out = tmp_path_factory.mktemp(kind, numbered=False)
        several = kind in ("whole", "sharded")
        run_script("recipes_run.py", kind, out, *CASES, *(() if several else MORE), processes=2 if several else 1)
        return out

    return lambda kinds: [one(kind) for kind in kinds]


@pytest.mark.parametrize(("kinds", "case"), PAIRS, ids=lambda x: x if isinstance(x, str) else " and ".join(x))
def test_a_run_is_that_of_whole_weights_on_the_processor(kinds: tuple[str, str], case: str, ran: Callable) -> None:
    """The same responses from the same random numbers: metrics, and the weights of the final model."""
    atol, left_out = KINDS[kinds]
    logs: list[list[dict[str, Any]]] = []
    for run in ran(kinds):
        lines = (run / case / "trl" / "tokenpo" / "metrics.jsonl").read_text().splitlines()
        dropped = left_out if "standin_head" in kinds else (*left_out, *ROUNDED.get(case, ()))
        logs.append([{k: x for k, x in json.loads(line).items() if not k.startswith(dropped)} for line in lines])
    for here, there in zip(*logs, strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=atol)
    here, there = (dict(load(run / case / "model").model.named_parameters()) for run in ran(kinds))
    for name in here:
        torch.testing.assert_close(there[name], here[name], rtol=1e-5, atol=1e-6)


def test_an_adapter_is_saved_by_itself_and_merged_in(ran: Callable) -> None:
    """W + (alpha / rank) B A, from adapter/."""
    for run in (out / "adv_reweight" for out in ran(("whole", "sharded"))):
        adapter = load_file(run / "adapter" / "adapter_model.safetensors")
        settings = json.loads((run / "adapter" / "adapter_config.json").read_text())
        start, end = (dict(load(path).model.named_parameters()) for path in (locate("tiny"), run / "model"))
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
