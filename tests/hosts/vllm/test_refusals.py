"""What the processor for vLLM refuses, on the stand-in for vLLM's interfaces."""

from typing import Any

import pytest

import refused
from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.hosts.vllm.runners import check, require_processed
from vllm_support import flat, heat, settings


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logits"])
def test_log_probabilities_that_are_not_those_of_the_sampler(mode: str) -> None:
    refused.check(f"logprobs_mode='{mode}'", require_processed, settings(mode))


@pytest.mark.parametrize(
    ("names", "temperature", "min_p", "without", "error"),
    [
        (["temperature 0"], 0.0, 0.0, "", TokenPOError),
        (["min_p = 0.1"], 1.0, 0.1, "", TokenPOError),
        (["without tokenpo_spread"], 1.0, 0.0, "tokenpo_spread", MissingInput),
    ],
)
def test_a_request(names: list[str], temperature: float, min_p: float, without: str, error: type) -> None:
    keys: dict[str, Any] = {key: value for key, value in flat(heat(0)).items() if key != without}
    refused.check(names, check, temperature, min_p, keys, error=error)
