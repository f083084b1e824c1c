"""Adaptive temperature inside vLLM: a logits processor, and the numbers that a request carries to it.

    LLM(..., logits_processors=[PROCESSOR], logprobs_mode="processed_logprobs")
    SamplingParams(..., extra_args=extra_args(objective, state))

Importing this package needs only torch; vLLM imports the processor in its own processes.
"""

from ...core.request_temperature import PROCESSOR, Heat, extra_args, read

__all__ = ["PROCESSOR", "Heat", "extra_args", "read"]
