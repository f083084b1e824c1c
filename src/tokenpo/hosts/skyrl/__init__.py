"""SkyRL: our credit and loss in its registries of advantage estimators and policy losses.

SkyRL divides the advantages of a mini-batch by its denominators and sums losses, so an objective's denominator has to
be one of its `loss_reduction`s, and the loss proportional to the advantages.
"""

import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...base.errors import refuse
from ...core.negotiation import warn
from ...core.objective import Objective
from ...core.parts import ConstantLength, SequenceMean, TokenMean
from ...core.trial import example
from ...core.types import Credit
from ...methods import method
from ..advantage_only import bare, remedy, reward_credit, summed, unfit

PROVIDES = frozenset({"rollout_logprob", "token_reward"})
REDUCTIONS = {TokenMean: "token_mean", SequenceMean: "sequence_mean", ConstantLength: "seq_mean_token_sum_norm"}
_PAD = re.compile(r"pad\d+")  # uids of the copies of the first row that fill a batch
_ENTRY = "trainer.override_entrypoint="
_NAMES = re.compile(r"trainer\.algorithm\.(?:policy_loss_type|advantage_estimator)=tokenpo/(.+)")


def main() -> None:
    """Runs SkyRL's own program with our names registered; trainer.override_entrypoint=tokenpo.hosts.skyrl calls it."""
    from skyrl.train.entrypoints import main_base  # pyright: ignore[reportMissingImports]

    sys.argv = [word for word in sys.argv if not word.startswith(_ENTRY)]  # it would call us again
    for name in dict.fromkeys(found[1] for word in sys.argv if (found := _NAMES.fullmatch(word))):
        register(method(name), f"tokenpo/{name}")
    main_base.main()


def register(objective: Objective, name: str = "tokenpo") -> None:
    """Registers an objective, before Ray starts, for trainer.algorithm.policy_loss_type = .advantage_estimator = NAME.

    Raises Unsupported as `require`.
    """
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry  # pyright: ignore[reportMissingImports]

    require(objective)
    warn(objective)

    def estimate(
        *, token_level_rewards: Tensor, response_mask: Tensor, index: Any, config: Any, **others: Any
    ) -> tuple[Tensor, Tensor]:
        """Phase one on the whole training batch, in the driver."""
        require_settings(objective, config)
        kept = [row for row, uid in enumerate(index) if not _PAD.fullmatch(str(uid))]
        rewards, mask, group = token_level_rewards[kept], response_mask[kept], [index[row] for row in kept]
        if mask.is_floating_point() and bool(mask.all()):  # the last rows of step-wise trajectories alone
            refuse(step_wise(objective, name, config))
        advantage = torch.zeros_like(token_level_rewards)
        advantage[kept] = reward_credit(objective, rewards, mask, group)
        return advantage, advantage

    def loss(
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Phase two on any micro-batch, summed over its tokens."""
        require_settings(objective, config)
        mask = torch.ones_like(log_probs) if loss_mask is None else loss_mask
        if not mask.any():  # padding or filtered rows: a zero with its graph, so that every rank runs backward
            return torch.where(mask.bool(), log_probs, 0.0).sum(), {"clip_ratio": 0.0}
        rollouts = bare(mask, old_log_probs, rollout_logprob=rollout_logprobs)
        value, clipped = summed(objective, rollouts, Credit(advantages.where(rollouts.mask, 0.0)), log_probs)
        return value, {"clip_ratio": float(clipped.mean())}

    AdvantageEstimatorRegistry.register(name, estimate)
    PolicyLossRegistry.register(name, loss)


def require(objective: Objective) -> None:
    """Raises Unsupported if SkyRL lacks an input or the denominator of the objective."""
    faults = [*unfit(objective, PROVIDES, "SkyRL", proportional=True, credit=True)]
    if type(objective.aggregate) not in REDUCTIONS:
        faults.append(
            f"{objective.name} divides by {objective.aggregate}, which SkyRL has no reduction for: {remedy(objective)}"
        )
    refuse(faults)


def step_wise(objective: Objective, name: str, config: Any) -> Iterator[str]:
    """Yields what generator.step_wise_trajectories, a row for each step of a trajectory, takes from the objective.

    SkyRL gives an estimator the last row of each trajectory, without lengths, and its advantage to all tokens.
    """
    mask, group = example().rollouts["mask"], [row // 4 for row in range(16)]
    rewards = torch.nn.functional.pad(example().rollouts["reward"][:, None], (0, mask.shape[1] - 1))
    short, full = (reward_credit(objective, rewards, x, group) for x in (mask, torch.ones_like(mask)))
    obstacles = {
        "has a mean of responses, in which SkyRL counts rows": not isinstance(objective.aggregate, TokenMean),
        "reads whole responses in its loss, and SkyRL gives it rows": bool(objective.of_response),
        "has a credit that differs between tokens or depends on lengths, which SkyRL does not hand over": (
            "token_reward" in objective.needs or not bool(((full == short[:, :1]) & (full == full[:, :1])).all())
        ),
        "is not the policy_loss_type too": getattr(config, "policy_loss_type", name) != name,
    }
    for obstacle in (words for words, applies in obstacles.items() if applies):
        yield (
            f"{objective.name} {obstacle}: set generator.step_wise_trajectories to false, or register a method such as "
            "dapo for both names"
        )


def require_settings(objective: Objective, config: Any) -> None:
    """Raises Unsupported if a setting of trainer.algorithm would make SkyRL train another objective."""
    aggregate = objective.aggregate
    required = {"loss_reduction": REDUCTIONS[type(aggregate)], "use_kl_loss": False, "use_entropy_loss": False}
    required["advantage_batch_normalize"] = False
    if isinstance(aggregate, ConstantLength) and aggregate.length is not None:
        required["max_seq_len"] = aggregate.length
    refuse(
        f"trainer.algorithm.{name} = {given!r} would make SkyRL train something else than {objective.name}: set it to "
        f"{value!r}"
        for name, value in required.items()
        if (given := getattr(config, name, False)) != value
    )
