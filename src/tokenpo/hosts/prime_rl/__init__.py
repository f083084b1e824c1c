"""prime-rl: our loss as its custom loss, with the orchestrator's advantages.

    [trainer.loss]
    type = "custom"
    import_path = "tokenpo.hosts.prime_rl.loss"
    kwargs = { method = "cispo" }

prime-rl calls the loss for one sample at a time, sums, and divides by the tokens of the step, so the aggregate has to
be the token mean. It has no old policy: the ratio is to the policy that sampled.
"""

import functools
import json
from typing import Any

import torch

from ...base.errors import refuse
from ...core.negotiation import warn
from ...core.objective import Objective
from ...core.parts import TokenMean
from ...methods import method as built
from ..advantage_only import bare, credited, remedy, sampler_alone, summed, unfit, unproportional

HOST = "prime-rl"
PROVIDES = frozenset({"ref_logprob", "rollout_logprob"})


def require(objective: Objective) -> None:
    """Raises Unsupported if prime-rl lacks an input or the denominator, or the objective computes its own credit."""
    other = (
        f"{objective.name} divides by {objective.aggregate}, and {HOST} by the tokens of the step: {remedy(objective)}"
    )
    told = [*unfit(objective, PROVIDES, HOST), *sampler_alone(objective, HOST)]
    refuse([*told, None if isinstance(objective.aggregate, TokenMean) else other])
    one = torch.zeros(1, 1)
    credited(objective, bare(one == 0, one, rollout_logprob=one, ref_logprob=one).only(objective.needs), one)


@functools.cache
def _objective(name: str, options: str) -> Objective:
    """The objective, built once for its options in JSON."""
    objective = built(name, **json.loads(options))
    require(objective)
    warn(objective)
    return objective


def loss(inputs: Any, *, method: str, **options: Any) -> Any:
    """The loss of one sample, LossInputs of tensors [T], as prime-rl's LossOutputs: a sum over its tokens.

    Raises:
        Unsupported: as `require`, or token weights with a loss that is not proportional to its advantages.
    """
    from prime_rl.trainer.rl.loss import LossOutputs  # pyright: ignore[reportMissingImports]

    objective = _objective(method, json.dumps(options))
    advantages, sampled, ref = inputs.advantages, inputs.inference_logprobs[None], inputs.ref_logprobs
    if inputs.loss_weights is not None:
        refuse(unproportional(objective, HOST))
        advantages = advantages * inputs.loss_weights
    if not inputs.loss_mask.any():  # a dummy batch: a zero with its graph, so that every rank runs backward
        zero = torch.where(inputs.loss_mask, inputs.trainer_logprobs, 0.0).sum()
        return LossOutputs(loss=zero, metrics={"clipped": zero.new_zeros(0)})
    ref = None if ref is None else ref[None]
    rollouts = bare(inputs.loss_mask[None], sampled, rollout_logprob=sampled, ref_logprob=ref)
    credit = credited(objective, rollouts, advantages[None])
    value, clipped = summed(objective, rollouts, credit, inputs.trainer_logprobs[None])
    return LossOutputs(loss=value, metrics={"clipped": clipped})
