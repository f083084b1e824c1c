"""vLLM's sampler, on the stand-in for its interfaces."""

from collections.abc import Callable
from pathlib import Path

from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.engines.vllm.runners import check, require_processed
from vllm_support import flat, heat, settings

from .case import Case


def _request(temperature: float = 1.0, min_p: float = 0.0, *, without: str = "") -> Callable[[Path], None]:
    """What vLLM calls with a request's parameters, through both processors' `validate_params`."""
    keys = {key: value for key, value in flat(heat(0)).items() if key != without}
    return lambda directory: check(temperature, min_p, keys)


CASES = [
    Case('an adaptive temperature under `logprobs_mode="raw_logprobs"`',
         lambda directory: require_processed(settings("raw_logprobs")),
         ("logprobs_mode='raw_logprobs'", "adaptive temperature"), 'set logprobs_mode="processed_logprobs"'),
    Case('an adaptive temperature under `logprobs_mode="processed_logits"`',
         lambda directory: require_processed(settings("processed_logits")),
         ("logprobs_mode='processed_logits'", "adaptive temperature"), 'set logprobs_mode="processed_logprobs"'),
    Case("an adaptive temperature in a request with `temperature=0`", _request(temperature=0.0), ("temperature 0",),
         "give a temperature above 0 or leave the keys out", TokenPOError),
    Case("an adaptive temperature in a request with `min_p=0.1`", _request(min_p=0.1), ("min_p = 0.1",),
         "set min_p=0 or leave the keys out", TokenPOError),
    Case("an adaptive temperature in a request that holds some of its keys", _request(without="tokenpo_spread"),
         ("without tokenpo_spread",), "give what tokenpo.engines.vllm.extra_args(objective, state) returns, whole",
         MissingInput),
]  # fmt: skip
