"""TRL trains on what a real vLLM samples: in its own process with weight updates, and from a server without."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tokenpo.core.request_temperature import KEYS
from tokenpo.hosts.vllm import PROCESSOR
from trl_support.reference import heated
from vllm_support import cpu, flat, heat

PROCESSED = ("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--logits-processors", PROCESSOR)


@pytest.fixture(scope="module")
def colocated(site: Path, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("colocated")
    cpu.run_script("trl_run.py", site, models["qwen"], out)
    return out


def test_colocated_it_draws_at_the_rules_temperature_from_the_weights_of_the_moment(
    colocated: Path, models: dict[str, Path]
) -> None:
    """The first rollout batch at the base temperature; two updates later the second, at its tokens' own. What vLLM
    reports, in float32 as the trainer computes, is within 1e-3 nats of the embedded engine at those weights."""
    heated(models["qwen"], colocated / "colocate", json.loads((colocated / "colocate.json").read_text()))


def test_another_precision_is_said_or_refused(colocated: Path) -> None:
    """vLLM in bfloat16: a trainer in float32 is told, and stops where nothing weighs for it; one in bfloat16 is not."""
    gaps = json.loads((colocated / "colocate.json").read_text())["gaps"]
    (warning,) = gaps["weighed"]["warned"]
    assert "nats a token from those of TRL's trainer, above 0.001" in warning
    assert warning.endswith("vllm_importance_sampling_correction weighs for it")
    assert gaps["weighed"]["said"] == "nothing was refused"
    assert gaps["unweighed"]["said"].startswith("Unsupported: grpo: vLLM's log-probabilities are 0.0")
    assert "--dtype float32" in gaps["unweighed"]["said"]
    assert gaps["half"] == {"said": "nothing was refused", "warned": []}


def test_a_server_samples_for_trl_and_for_anybody(site: Path, models: dict[str, Path], tmp_path: Path) -> None:
    """TRL's requests carry the numbers from the second rollout batch on; half of them are refused."""
    with cpu.server(site, models["qwen"], *PROCESSED, "--dtype", "float32") as url:
        cpu.run_script("trl_run.py", site, models["qwen"], tmp_path, url)
        told = posted(url, models["qwen"], flat(heat(1)))
        refused = posted(url, models["qwen"], {"tokenpo_tau": 0.1})
    ran = json.loads((tmp_path / "server.json").read_text())
    assert ran["warned"] == []
    for batch, largest in ((0, 1e-4), (1, None)):
        facts = load_file(tmp_path / "server" / f"batch{batch}.safetensors")
        apart = (facts["rollout_logprob"] - facts["old_logprob"])[facts["mask"]].abs().max()
        assert apart < largest if largest else apart > 0.05
    assert len(told["choices"][0]["logprobs"]["token_logprobs"]) == 4
    assert "tokenpo_quantile" in refused["error"]["message"] and set(KEYS) > {"tokenpo_tau"}


def posted(url: str, model: Path, numbers: dict[str, float]) -> Any:
    body = {"model": str(model), "prompt": [5, 6, 7], "max_tokens": 4, "logprobs": 0, "ignore_eos": True}
    text = json.dumps({**body, "temperature": 1.0, "vllm_xargs": numbers}).encode()
    asked = urllib.request.Request(f"{url}/v1/completions", text, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())
