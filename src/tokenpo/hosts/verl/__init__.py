"""verl 0.9: our objectives in its V1 trainer on Ray.

plugin.py is loaded by every process of verl and registers the trainer; trainer.py computes phase one in the driver and
hands phase two, loss.py, to the workers.
"""

from collections.abc import Iterator

from ...core.negotiation import missing
from ...core.objective import Objective

# Input of an objective -> (verl's field for it, the setting that makes verl fill it).
TOKEN_FIELDS = {
    "old_logprob": ("old_log_probs", "algorithm.rollout_correction.bypass_mode=False"),
    "old_entropy": ("entropy", "algorithm.rollout_correction.bypass_mode=False"),
    "rollout_logprob": ("rollout_log_probs", "actor_rollout_ref.rollout.calculate_log_probs=True"),
    "ref_logprob": ("ref_log_prob", "actor_rollout_ref.actor.use_kl_loss=True"),
    "value": ("values", "critic.enable=True"),
    "teacher_logprob": ("tokenpo_teacher", "distillation.enabled=True"),
    "token_ids": ("responses", "verl's own agent loop"),
}
# These, and inputs that our adapter derives.
PROVIDES = frozenset({*TOKEN_FIELDS, "temperature", "entropy", "token_reward", "turn"})


def lacking(objective: Objective) -> Iterator[str]:
    """Yields a sentence for each input of the objective that verl does not have."""
    elsewhere = f"train it with the embedded engine (tokenpo train --method {objective.name}), or choose another method"
    remedies = dict.fromkeys(objective.needs, elsewhere)
    if objective.critic is None:
        remedies["value"] = "say what the value is fitted to, by Objective(critic=tokenpo.parts.Critic())"
    return missing(objective, PROVIDES - (frozenset() if objective.critic else {"value"}), "verl", remedies)
