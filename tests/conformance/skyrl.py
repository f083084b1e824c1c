"""SkyRL's own loss: its trainer's division of the advantages of a mini-batch, then its registered policy loss."""

# pyright: reportMissingImports=false
import copy
from typing import Any

import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import (
    AdvantageEstimatorRegistry,
    PolicyLossRegistry,
    apply_loss_reduction_to_advantages_minibatch,
)
from skyrl.train.config import AlgorithmConfig
from torch import Tensor

from . import CREDIT, EMPTY, LONE, Compared, Step, last, once

CONFIG = AlgorithmConfig()


def loss(step: Step, *, advantage_estimator: str | None = None, **settings: Any) -> Tensor:
    """The loss of a step, whose gradients are added over ranks."""
    config, old = copy.deepcopy(CONFIG), step.rollouts
    for name, value in settings.items():
        place, _, key = name.rpartition(".")
        setattr(getattr(config, place) if place else config, key, value)
    advantage = step.advantage
    if advantage_estimator is not None:
        advantage, _ = AdvantageEstimatorRegistry.get(advantage_estimator)(
            token_level_rewards=last(step), response_mask=old.mask.double(), index=old.group.numpy(),
            values=None, grpo_norm_by_std=config.grpo_norm_by_std, gamma=1.0, lambd=1.0, config=config,
        )  # fmt: skip
    advantage = apply_loss_reduction_to_advantages_minibatch(
        advantage, old.mask.double(), config.loss_reduction, len(step.ranks[0][0]), step.length
    )
    policy_loss = PolicyLossRegistry.get(config.policy_loss_type)
    total = torch.zeros((), dtype=torch.float64)
    for rows in (rows for rank in step.ranks for rows in rank):
        value, _ = policy_loss(
            step.policy.logprob[rows],
            old.old_logprob[rows],
            advantage[rows],
            config=config,
            loss_mask=old.mask[rows].double(),
            rollout_logprobs=old.need("rollout_logprob")[rows],
        )
        total = total + value
    return total


_EMPTY = {EMPTY: "A response without tokens counts in the mean over responses."}
_LONE = {LONE: "A response alone in its group is compared with 0; it has nothing to be compared with."}
_MEAN, _KIND = {"loss_reduction": "sequence_mean"}, "policy_loss_type"
_DAPO = {_KIND: "dual_clip", "eps_clip_high": 0.28, "clip_ratio_c": 10.0}
COMPARED = (
    Compared("dapo", {}, _DAPO),
    Compared("grpo", {}, _MEAN, _EMPTY),
    Compared("gspo", {}, {_KIND: "gspo", **_MEAN, "eps_clip_low": 3e-4, "eps_clip_high": 4e-4}, _EMPTY),
    Compared("cispo", {}, {_KIND: "cispo", "cispo.cispo_eps_clip_low": 1.0, "cispo.cispo_eps_clip_high": 0.28}),
    Compared("sapo", {}, {_KIND: "sapo", **_MEAN}, _EMPTY),
    Compared("dr_grpo", {}, {"loss_reduction": "seq_mean_token_sum_norm", "max_seq_len": 9}, _EMPTY),
    Compared("rloo", {}, {"advantage_estimator": "rloo"}, {}, CREDIT),
    Compared("maxrl", {}, {"advantage_estimator": "maxrl", _KIND: "dual_clip", "clip_ratio_c": 3.0}, _LONE, CREDIT),
    Compared("grpo", {}, {"advantage_estimator": "grpo", **_MEAN}, _LONE, CREDIT),
    once("dapo", {}, {_KIND: "dual_clip"}, "Dual clip 3, both clips 0.2 unless told; DAPO's recipe has 10, 0.2/0.28."),
    once(
        "gspo",
        {},
        {_KIND: "gspo"},
        "A mean over tokens and clips of 0.2 unless told; the paper has a mean over responses, 3e-4 and 4e-4.",
    ),
    once("cispo", {}, {_KIND: "cispo"}, "The ratio is capped at 5 unless told; the paper caps at 1.28."),
    once("sapo", {}, {_KIND: "sapo"}, "A mean over tokens unless told; the paper has one over responses."),
)
