"""One method on one recording: the credit, the weight and the push of every token."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import MissingInput, NotFinite
from ...core.culprit import SOUND, broken
from ...core.objective import Objective
from ...core.parts import MemorySignal
from ...core.types import Batch, Rollouts, Totals
from ...runs.rollouts import Recording

# What a file has to hold for an input: a formula in words, where its name does not say it.
MEANINGS = {
    "old_entropy": "the entropy, in nats, of the policy that sampled",
    "entropy": "the entropy, in nats, of the current policy",
    "rollout_logprob": "the log-probability that the engine which sampled reported",
    "ref_logprob": "the log-probability under the reference model",
    "entropy_drift": "Σ_v p_v² (log p_v + H) of the current policy",
    "influence": "Σ ⟨g, g'⟩⟨h, h'⟩ over the group's better responses, see tokenpo.Rollouts",
    "divergence": "how far the group's next-token distributions lie apart, see tokenpo.Rollouts",
    "token_ids": "the ids of the tokens",
    "prompt_logprob": "one number: the mean log-probability of a token of the prompt",
}


@dataclass(frozen=True, eq=False)
class Explained:
    """What one method makes of N responses; all tensors are [N, T], 0 behind the end of a response.

    Args:
        label: as the user calls it.
        advantage: the credit of phase one.
        weight: factor on the surrogate.
        ratio: of the current to the old policy, as this method takes it.
        clipped: the trust region cuts this token's gradient.
        push: −M ∂L/∂lp with M the response tokens of the recording: > 0 makes the token more likely.
        notes: what the numbers do not show.
    """

    label: str
    objective: Objective
    advantage: Tensor
    weight: Tensor
    ratio: Tensor
    clipped: Tensor
    push: Tensor
    notes: tuple[str, ...]


def missing(label: str, objective: Objective, recording: Recording) -> str:
    """Why the method cannot be held to this recording; "" where it can."""
    lacking = sorted(objective.needs - recording.inputs)
    if not lacking:
        return ""
    fields = "; ".join(f"'{name}' ({MEANINGS.get(name, name)})" for name in lacking)
    odd = f"; fields that are not read: {', '.join(recording.unread)}" if recording.unread else ""
    per = "response" if lacking == ["prompt_logprob"] else "token"
    return (
        f"{label} needs what {recording.source} does not hold: write {fields} into every response, one number for each "
        f"{per} (docs/rollouts.md{odd})"
    )


@torch.enable_grad()
def explain(label: str, objective: Objective, recording: Recording) -> Explained:
    """Holds the objective to the whole recording as one optimiser step.

    Phase one, the look at the whole step where the objective asks for it, the loss, and its gradient to the
    log-probabilities. The objective is handed what it needs and nothing else; what remembers earlier batches has seen
    none.

    Raises:
        MissingInput: the recording lacks an input.
        NotFinite: a loss or gradient that is none.
    """
    if reason := missing(label, objective, recording):
        raise MissingInput(reason)
    needed = objective.needs | {"mask", "reward", "group", "old_logprob", "logprob"}
    rollouts = Rollouts(**{name: x for name, x in vars(recording.rollouts).items() if name in needed})
    policy = dataclasses.replace(
        recording.policy,
        logprob=recording.policy.logprob.clone().requires_grad_(),
        **{name: None for name in ("entropy", "entropy_drift") if name not in needed},
    )
    batch = Batch(rollouts, objective.prepare(rollouts), policy)
    # The whole step is given, so that a method of batch scope looks at it by itself, and draws with seed 0.
    totals = Totals.of(rollouts)
    loss = objective.loss(batch, totals)
    (gradient,) = torch.autograd.grad(loss.value, policy.logprob, allow_unused=True, materialize_grads=True)
    mask, terms = rollouts.mask, loss.terms
    if not (gradient[mask].isfinite().all() and loss.value.isfinite()):
        observed = objective.observed(batch, totals)
        raise NotFinite(f"{label} on this recording is not finite: {broken(objective, observed, totals) or SOUND}")
    return Explained(
        label=label,
        objective=objective,
        advantage=terms["advantage"],
        weight=torch.where(mask, terms["weight"], 0.0),
        ratio=torch.where(mask, terms["ratio"], 0.0),
        clipped=terms["clipped"].bool() & mask,
        # Adding 0 turns -0 into 0.
        push=torch.where(mask, -gradient * mask.sum(), 0.0) + 0.0,
        notes=tuple(f"{label}: {note}" for note in _notes(objective)),
    )


def _notes(objective: Objective) -> list[str]:
    """What of the method is not in the push."""
    notes = []
    if objective.entropy_gradient:
        notes.append("an entropy bonus pushes through the entropy too, which a push on log-probabilities leaves out.")
    if any(isinstance(memory, MemorySignal) for memory in objective.memories):
        notes.append("it remembers earlier batches; shown is a first batch, before which there was none.")
    if objective.passes:
        notes.append(f"it makes {len(objective.passes)} passes over a batch; shown is their sum, before the first.")
    if objective.draws:
        notes.append("it draws tokens at random; shown is one draw (seed 0).")
    if objective.temperature is not None:
        notes.append("it also samples at a temperature of its own; these rollouts may have been sampled at another.")
    return notes
