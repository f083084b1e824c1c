"""prime-rl's own loss: `compute_loss` of its trainer with one of its loss functions, sample by sample."""

# pyright: reportMissingImports=false
from typing import Any

import torch
from prime_rl.configs.trainer import DefaultLossConfig
from prime_rl.trainer.rl.loss import compute_loss, setup_rl_loss_fn
from torch import Tensor

from . import Compared, Step, once


def loss(step: Step, **settings: Any) -> Tensor:
    """The loss of a step, whose gradients are added over ranks; a prompt of one token before each response."""
    old, function = step.rollouts, setup_rl_loss_fn(DefaultLossConfig(**settings))
    fields = (step.policy.logprob, old.need("rollout_logprob"), old.need("ref_logprob"), step.advantage, old.mask)
    total = torch.zeros((), dtype=torch.float64)
    for rows in (rows for rank in step.ranks for rows in rank):
        samples = [[torch.cat([x.new_zeros(1), x[row][step.written[row]]]) for row in rows.tolist()] for x in fields]
        value, _ = compute_loss(
            *samples, None, None, None, rl_loss_fn=function, rl_scale=int(old.mask.sum()), ce_scale=1, ref_kl_scale=1
        )
        total = total + value
    return total


COMPARED = (
    Compared("prime_rl", {}, {}),
    Compared("prime_rl", {"low": 0.1, "kl": 0.01}, {"dppo_mask_low": 0.1, "kl_tau": 0.01}),
    once("dppo_tv", {}, {}, "DPPO's mask, without the paper's cap on the ratio and with a penalty on (log q)²."),
)
