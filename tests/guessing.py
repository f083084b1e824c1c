"""A sampler that guesses what only sampling could tell: half of the continuations are right, say."""

from collections.abc import Sequence

import torch
from torch import Tensor

import tokenpo
from tokenpo.train.run.supplied import Forwarded


class Guess(Forwarded):
    def greedy(self, rollouts: tokenpo.Rollouts) -> Tensor:
        """As if the greedy response earned what the first of the group did."""
        first = (rollouts.group[:, None] == rollouts.group).int().argmax(1)
        return rollouts.reward[first]

    def continued(self, rollouts: tokenpo.Rollouts, cuts: Tensor, count: int) -> Tensor:
        return torch.full_like(rollouts.old_logprob, 0.5)

    def score(self, parts: Sequence[tuple[int, list[int]]]) -> list[float]:
        return [float(i % 2) for i in range(len(parts))]
