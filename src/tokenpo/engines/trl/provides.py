"""The inputs of an objective that TRL's trainer can provide; imports neither TRL nor its settings."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.negotiation import negotiate
from ...core.objective import Objective

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


# A recipe has no setting for either: there the trainer's own model samples.
RECIPE_REMEDIES = REMEDIES | {
    "rollout_logprob": "take the ratio to the old policy, which is the one that samples in a recipe's run (for dppo: "
    "--set method.anchor=old), or leave out --engine trl",
}


def require_inputs(objective: Objective, *, reported: bool, remedies: Mapping[str, str] = REMEDIES) -> None:
    """Raises Unsupported where the objective reads what TRL does not have.

    Args:
        reported: whoever samples reports log-probabilities.
        remedies: input -> what the user can do about it.
    """
    negotiate(objective, ALWAYS | SAMPLED if reported else ALWAYS, ENGINE, remedies)
