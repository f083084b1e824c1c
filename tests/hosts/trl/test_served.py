"""Adaptive temperature where vLLM samples for TRL: TRL's code and our processor, around a small model on the CPU."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tokenpo.core.request_temperature import KEYS
from trl_support import run_script
from trl_support.reference import heated


@pytest.fixture(scope="module")
def ran(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("served")
    run_script("served_run.py", model_dir, out)
    return json.loads((out / "served.json").read_text()) | {"out": out}


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_the_temperature_is_the_rules_and_the_loss_is_evaluated_at_it(
    mode: str, ran: dict[str, Any], model_dir: Path
) -> None:
    """And vLLM reports log-probabilities at it: the processor heats each token by the entropy it sees, the trainer by
    that of its own pass."""
    assert "rollout_logprob" in load_file(ran["out"] / mode / "batch1.safetensors")
    heated(model_dir, ran["out"] / mode, ran[mode])


def test_every_request_carries_the_numbers_of_the_memory(ran: dict[str, Any]) -> None:
    """None with the first rollout batch, whose entropies are to be measured yet; then the seven."""
    first, second = ran["colocate"]["told"]
    assert first is None
    assert set(second) == set(KEYS)
    assert second["tokenpo_tau"] == 0.4
    assert {f"tokenpo_{name}": x for name, x in ran["colocate"]["memory"][1][0].items()}.items() <= second.items()
    assert ran["server"]["told"][0] == {}
    assert set(ran["server"]["told"][1]) == {"vllm_xargs"}
    assert set(ran["server"]["told"][1]["vllm_xargs"]) == set(KEYS)


def test_vllm_computes_in_float32_where_the_trainer_does(ran: dict[str, Any]) -> None:
    """TRL leaves the type to vLLM, which takes half of the bits, as a trainer with autocast does. Afterwards TRL has
    its own engine back."""
    assert ran["colocate"]["same"]
    assert ran["made"] == {
        "False": {"dtype": "float32", "logits_processors": None},
        "True": {"dtype": None, "logits_processors": None},
    }


def test_a_server_without_the_processor_is_refused(ran: dict[str, Any]) -> None:
    assert ran["bare"].startswith(
        "Unsupported: hapo adapts the temperature from token to token, and the vLLM server of TRL's trainer at"
    )
    assert "--logits-processors tokenpo.hosts.vllm.processor:AdaptiveTemperatureProcessor" in ran["bare"]
    # Without these TRL cannot send such a server any weights, and says so only after it was restarted.
    assert "VLLM_SERVER_DEV_MODE=1" in ran["bare"] and "--weight-transfer-config" in ran["bare"]


def test_an_engine_that_ignores_the_numbers_is_found_out(ran: dict[str, Any]) -> None:
    """Its second rollout batch is the first that should have been heated."""
    assert "nats a token from those at the adapted temperature" in ran["deaf"]
    assert "its logits processor does not run" in ran["deaf"]
