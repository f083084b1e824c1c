"""The inputs of an objective that TRL's trainer can provide; imports neither TRL nor its settings."""

from __future__ import annotations

from ...objective import Objective
from ...train.objective import negotiate

ENGINE = "the TRL engine"
ALWAYS = frozenset({"old_entropy", "ref_logprob", "temperature", "token_ids", "entropy", "entropy_drift"})
# With vLLM, or a rollout_func that returns logprobs.
SAMPLED = frozenset({"rollout_logprob"})
REMEDIES = {
    "rollout_logprob": "set use_vllm=True, or give a rollout_func that returns logprobs",
    "prompt_logprob": "train with the embedded engine (tokenpo train), which computes it",
    "influence": "train with the embedded engine (tokenpo train), which computes it",
    "divergence": "train with the embedded engine (tokenpo train), which computes it",
}


def require_inputs(objective: Objective, *, reported: bool) -> None:
    """Raises Unsupported where the objective reads what TRL does not have.

    Args:
        reported: whoever samples reports log-probabilities.
    """
    negotiate(objective, ALWAYS | SAMPLED if reported else ALWAYS, ENGINE, REMEDIES)
