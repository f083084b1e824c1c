"""The parts that the candidates of composition.toml are made of, by the names that it gives them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

import tokenpo
from tokenpo.core.ops import masked
from tokenpo.core.ops.group import Groups, others_mean, prior_weight
from tokenpo.core.parts import (
    CreditStage,
    DetachedClip,
    FixedBounds,
    ProbabilityWeight,
    SignalWeight,
    Unclipped,
    Weight,
)
from tokenpo.core.parts.weights import Affine
from tokenpo.core.ranges import Share, limit
from tokenpo.core.types import Batch, Rollouts, Trust
from tokenpo.methods.sapo import SoftGate
from tokenpo.methods.thr import HiddenReward

LIMIT = limit(0)


@dataclass(frozen=True)
class Shrunk(CreditStage):
    """R less a baseline between the mean of the group's others and that of the other groups.

    Args:
        prior: the weight of the other groups, in responses of the own one; None takes it from the batch.
        scale: "batch", "near" or "none".
        siblings: what the baseline of the prefix before counts, in siblings that share the prefix; inf is no tree.
    """

    across_groups = True
    prior: float | None
    scale: str
    siblings: Annotated[float, LIMIT] = math.inf

    @property
    def reads(self) -> set[str]:
        return {"token_ids"} if self.siblings < math.inf else set()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        reward = torch.where(groups.valid, reward - groups.one().extremes(reward)[0], 0.0)
        prior = prior_weight(groups, reward) if self.prior is None else self.prior
        value = others_mean(groups, reward, prior)
        credit = (reward - value)[:, None].expand(rollouts.mask.shape)
        if self.siblings < math.inf:
            credit = self._tree(rollouts, reward, value)
        credit = credit / self._deviation(groups, reward, prior)[:, None]
        return torch.where(groups.one().varied(reward)[:, None], credit, 0.0)

    def _tree(self, rollouts: Rollouts, reward: Tensor, value: Tensor) -> Tensor:
        tokens, node = rollouts.need("token_ids"), rollouts.group
        credit = torch.zeros(rollouts.mask.shape, dtype=torch.float64)
        for t in range(rollouts.mask.shape[1]):
            here = Groups.of(node, rollouts.mask[:, t])
            if (here.size() > 1).any():
                value = (here.sum(reward) - reward + self.siblings * value) / (here.size() - 1 + self.siblings)
            credit[:, t] = reward - value
            node = torch.unique(torch.stack([node, tokens[:, t]]), dim=1, return_inverse=True)[1]
        return credit

    def _deviation(self, groups: Groups, reward: Tensor, prior: float) -> Tensor:
        if self.scale == "none":
            return torch.ones_like(reward)
        whole = groups.one().mean_std(reward)[1]
        if self.scale == "batch" or prior == math.inf:
            return whole + 1e-6
        size, own = groups.size(), groups.mean_std(reward)[1]
        mixed = ((size - 1) * own.square() + prior * whole.square()) / (size - 1 + prior).clamp(min=1e-300)
        return mixed.sqrt() + 1e-6


@dataclass(frozen=True)
class RelativeEntropy(Weight):
    """1 - share + share · H / mean H of the response."""

    reads = {"old_entropy"}
    share: Share

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        entropy = batch.need("old_entropy")
        mean = masked.mean(entropy, batch.mask, dim=1).clamp(min=1e-6)
        return 1 - self.share + self.share * entropy.clamp(min=0) / mean


CREDIT: dict[str, Callable[[str], CreditStage]] = {
    "group": lambda scale: tokenpo.method("dapo").credit,
    "others": lambda scale: Shrunk(0.0, scale),
    "batch": lambda scale: Shrunk(math.inf, scale),
    "eb": lambda scale: Shrunk(None, scale),
    "tree": lambda scale: Shrunk(None, scale, 4.0),
}
SURROGATE = {
    "dapo": tokenpo.method("dapo").surrogate,
    "cispo": tokenpo.method("cispo").surrogate,
    "open": DetachedClip(FixedBounds(1.0, 2.0)),
    "sapo": SoftGate(1.0, 1.05),
    "unclipped": Unclipped(),
}
WEIGHT = {
    "": (),
    "entropy": (RelativeEntropy(0.25),),
    "rare": (ProbabilityWeight(Affine(0.2), old=True),),
    "reward": (SignalWeight(HiddenReward(0.1, False)),),
}
