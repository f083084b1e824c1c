"""prime-rl: our loss as its custom loss, with the orchestrator's advantages.

    [trainer.loss]
    type = "custom"
    import_path = "tokenpo.engines.prime_rl.loss"
    kwargs = { method = "cispo" }

It calls the loss with one sample at a time, adds up, and divides by the tokens of the step: the token mean alone. There
is no old policy; the ratio is to the one that sampled.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...base.errors import Unsupported
from ...core.learner import Learner
from ...core.objective import Objective
from ...core.parts import TokenMean
from ...core.types import Credit, Rollouts
from ...methods import method as built
from ..advantage_only import REMEDY, bare, require_handed, require_proportional, summed

HOST = "prime-rl"
PROVIDES = frozenset({"ref_logprob", "rollout_logprob"})
# One token, on which it is tried whether an objective takes credit.
_ONE = torch.zeros(1, 1)
_FACTS = bare(_ONE == 0, _ONE, rollout_logprob=_ONE, ref_logprob=_ONE)


def require(objective: Objective) -> None:
    """
    Raises:
        Unsupported: prime-rl does not hand over what the objective reads, or does not divide as it does; or the
            objective makes credit of its own.
    """
    require_handed(objective, PROVIDES, HOST)
    if not isinstance(objective.aggregate, TokenMean):
        raise Unsupported(
            f"{objective.name} divides by {objective.aggregate}, and {HOST} by the tokens of the step: {REMEDY}"
        )
    _credited(objective, _FACTS.only(objective.needs), _ONE)


def _credited(objective: Objective, rollouts: Rollouts, advantages: torch.Tensor) -> Credit:
    """The orchestrator's advantages as credit, where the objective makes none of its own."""
    return Learner(objective, length=1, ratio=None).look(rollouts, credit=advantages).credit


@functools.cache
def _objective(name: str, options: tuple[tuple[str, Any], ...]) -> Objective:
    objective = built(name, **dict(options))
    require(objective)
    return objective


def loss(inputs: Any, *, method: str, **options: Any) -> Any:
    """The loss of one sample as prime-rl's LossOutputs, a sum over its tokens.

    Args:
        inputs: LossInputs, every tensor [T] over the whole sequence.
        method: of the table; `options` are its own.

    Raises:
        Unsupported: as `require`, or token weights with a loss that is not proportional to its advantages.
    """
    from prime_rl.trainer.rl.loss import LossOutputs  # pyright: ignore[reportMissingImports]

    objective = _objective(method, tuple(sorted(options.items())))
    advantages = inputs.advantages
    if inputs.loss_weights is not None:
        require_proportional(objective, HOST)
        advantages = advantages * inputs.loss_weights
    sampled, mask = inputs.inference_logprobs[None], inputs.loss_mask[None]
    ref = None if inputs.ref_logprobs is None else inputs.ref_logprobs[None]
    rollouts = bare(mask, sampled, rollout_logprob=sampled, ref_logprob=ref)
    credit = _credited(objective, rollouts, advantages[None])
    value, clipped = summed(objective, rollouts, credit, inputs.trainer_logprobs[None])
    return LossOutputs(loss=value, metrics={"clipped": clipped})
