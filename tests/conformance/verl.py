"""verl's own loss: `ppo_loss` of its workers with a registered policy loss, on nested rows, as its engines call it."""

# pyright: reportMissingImports=false
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.utils import tensordict_utils
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from . import CREDIT, EMPTY, LONE, PIECES, Compared, Step, last, once


def _nested(values: Tensor, inside: Tensor, behind: int = 0) -> Tensor:
    """Nested rows [N, *] of `values` [N, T] where `inside`, each followed by `behind` zeros."""
    rows = [torch.cat([row[keep], row.new_zeros(behind)]) for row, keep in zip(values, inside, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def loss(
    step: Step, *, loss_mode: str = "vanilla", policy_loss: Any = None, adv_estimator: str = "", **actor: Any
) -> Tensor:
    """The loss of a step, whose gradient is averaged over ranks; every prompt has one token."""
    old, written = step.rollouts, step.written
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=loss_mode, **(policy_loss or {})),
        **actor,
    )
    counts = {"dp_size": len(step.ranks), "batch_num_tokens": int(old.mask.sum()), "global_batch_size": len(old.mask)}
    advantage = step.advantage
    if adv_estimator:
        advantage, _ = get_adv_estimator_fn(adv_estimator)(
            token_level_rewards=last(step), response_mask=old.mask.long(), config=AlgoConfig(), index=old.group.numpy()
        )
    losses = []
    for rows in (rows for rank in step.ranks for rows in rank):
        inside = written[rows]
        fields = {
            "response_mask": old.mask[rows].long(),
            "responses": inside.long(),
            "old_log_probs": old.old_logprob[rows],
            "advantages": advantage[rows],
            "ref_log_prob": old.need("ref_logprob")[rows],
        }
        nested = {name: _nested(x, inside) for name, x in fields.items()}
        nested["prompts"] = _nested(inside[:, :1].long(), inside[:, :1] | True)
        data = TensorDict(nested, batch_size=len(rows))
        tensordict_utils.assign_non_tensor(data, **counts)
        value, _ = ppo_loss(config, {"log_probs": _nested(step.policy.logprob[rows], inside, 1)}, data)
        losses.append(value)
    return torch.stack(losses).sum() / len(step.ranks)


_EMPTY = {EMPTY: "A response without tokens counts in the mean over responses."}
_GEO = dict.fromkeys(
    PIECES, "Each micro-batch takes its own mean and their losses add up: as many times the loss as there are pieces."
)
_COV = dict.fromkeys(PIECES, "The share of tokens is taken of each micro-batch, not of the update.")
_WIDTH = dict.fromkeys(PIECES, "Without `loss_scale_factor` each micro-batch divides by its own padded width.")
_MEAN, _SUM = {"loss_agg_mode": "seq-mean-token-mean"}, {"loss_agg_mode": "seq-mean-token-sum-norm"}
_NO_DUAL = {"clip_ratio_c": 1e9}
COMPARED = (
    Compared("dapo", {}, {"clip_ratio_high": 0.28, "clip_ratio_c": 10.0}),
    Compared("grpo", {}, {**_MEAN, **_NO_DUAL}, _EMPTY),
    Compared("gspo", {}, {"loss_mode": "gspo", **_MEAN, "clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}, _EMPTY),
    Compared("cispo", {}, {"loss_mode": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 0.28}),
    Compared("sapo", {}, {"loss_mode": "sapo", **_MEAN}, _EMPTY),
    Compared("gmpo", {}, {"loss_mode": "geo_mean", "clip_ratio_low": 0.4, "clip_ratio_high": 0.4}, _GEO | _EMPTY),
    Compared("dr_grpo", {}, {**_SUM, **_NO_DUAL, "loss_scale_factor": 9}, _EMPTY),
    Compared("dr_grpo", {}, {**_SUM, **_NO_DUAL}, _WIDTH | _EMPTY),
    Compared(
        "kl_cov", {"fraction": 0.1, "coef": 0.7},
        {"loss_mode": "kl_cov", "policy_loss": {"kl_cov_ratio": 0.1, "ppo_kl_coef": 0.7}}, _COV,
    ),
    Compared("gpg", {}, {"loss_mode": "gpg"}),
    Compared(
        "grpo", {}, {**_MEAN, **_NO_DUAL, "adv_estimator": "grpo"},
        {LONE: "A response alone in its group is compared with 0; it has nothing to be compared with."}, CREDIT,
    ),
    Compared(
        "rloo", {}, {**_NO_DUAL, "adv_estimator": "rloo"},
        {LONE: "A response alone in its group keeps its reward; it has nothing to be compared with."}, CREDIT,
    ),
    once("dapo", {}, {}, "Dual clip 3 and both clips 0.2 unless told; DAPO's recipe has 10 and 0.2/0.28."),
    once("gmpo", {}, {"loss_mode": "geo_mean"}, "The log-ratio is clipped at 0.2 unless told; the paper clips at 0.4."),
    once(
        "gspo", {}, {"loss_mode": "gspo", **_MEAN},
        "A response's ratio is clipped at 0.2 unless told; the paper has 3e-4 and 4e-4.",
    ),
    once(
        "kl_cov", {}, {"loss_mode": "kl_cov"},
        "Coefficient 0.1 and a share of 2e-4 unless told; the paper's are 1, and 2e-3 for 7B.",
    ),
    once("cispo", {}, {"loss_mode": "cispo"}, "Both clips 0.2 unless told; the paper caps at 1.28 alone."),
    once(
        "grpo", {"beta": 0.1}, {**_MEAN, **_NO_DUAL, "use_kl_loss": True, "kl_loss_coef": 0.1},
        "The divergence k3 stops at 10, and its gradient with it.",
    ),
)  # fmt: skip
