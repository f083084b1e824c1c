"""verl 0.9.1's policy losses on our batches."""

from typing import Any

import numpy as np
import torch

from oracle_support import Outcome, Sample

from .required import need

MISSING = "verl is not installed: none of its losses and estimators was compared with ours"
core = need("verl.trainer.ppo.core_algos", MISSING)
config = need("verl.workers.config", MISSING)


def loss(
    mode: str,
    sample: Sample,
    advantage: np.ndarray,
    aggregate: str = "token-mean",
    policy_loss: Any = None,
    rollout_is_weights: Any = None,
    **actor: Any,
) -> Outcome:
    """verl's registered loss and its gradient to the log-probabilities; the mask is of integers, as its trainer's."""
    settings = config.ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=config.PolicyLossConfig(**(policy_loss or {})),
        **actor,
    )
    lp = torch.tensor(sample.logprob, requires_grad=True)
    value, _ = core.get_policy_loss_fn(mode)(
        old_log_prob=torch.tensor(sample.old_logprob),
        log_prob=lp,
        advantages=torch.tensor(advantage),
        response_mask=torch.tensor(sample.mask, dtype=torch.int64),
        loss_agg_mode=aggregate,
        config=settings,
        **({} if rollout_is_weights is None else {"rollout_is_weights": rollout_is_weights}),
    )
    (gradient,) = torch.autograd.grad(value, lp)
    return Outcome(float(value.detach()), gradient.numpy(), {}, np.zeros(sample.mask.shape))
