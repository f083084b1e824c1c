"""Phase one on verl's whole step batch, in the driver: rewards of whole groups become nested advantages and signals.

Rows without a response token are left out of every statistic: those that verl adds to fill up a batch are such rows.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from ...core.objective import Objective, State
from ...core.ops.group import numbered
from ...core.types import Batch, Credit, Policy, Rollouts, Totals
from .layout import GROUP, REWARD, SEQUENCES, padded, signal_fields, spread, texts, token_facts
from .provides import TOKEN_FIELDS


def fields(objective: Objective) -> list[str]:
    """What phase one reads of verl's batch."""
    token_fields = [TOKEN_FIELDS[name][0] for name in sorted(objective.needs) if name in TOKEN_FIELDS]
    return ["uid", "response_mask", "rm_scores", "old_log_probs", *token_fields]


@dataclass(frozen=True, eq=False)
class Step:
    """One rollout batch: `live` [N] marks verl's rows that the rollouts [L, T] and their credit stand for."""

    objective: Objective
    rollouts: Rollouts
    credit: Credit
    live: Tensor
    response_mask: Any
    temperature: float

    @staticmethod
    def of(objective: Objective, data: TensorDict, temperature: float, state: State | None = None) -> Step:
        """Phase one.

        Args:
            data: `fields(objective)` of every row, nested; uid as strings.
            temperature: at which the responses were sampled.
            state: of the objective's memories.
        """
        facts = token_facts(data, objective.needs, temperature)
        live = facts["mask"].any(1)
        reward = padded(data["rm_scores"]).sum(1)
        uid = [name for name, alive in zip(texts(data["uid"]), live.tolist(), strict=True) if alive]
        rollouts = Rollouts(
            reward=reward[live],
            group=torch.tensor(numbered(uid)),
            **{name: value[live] for name, value in facts.items()},
        )
        credit = objective.prepare(rollouts, state)
        return Step(objective, rollouts, credit, live, data["response_mask"], temperature)

    def outputs(self) -> TensorDict:
        """What goes back into verl's batch; its metrics read `advantages` and `returns`."""
        reward = self.rollouts.reward.new_zeros(len(self.live))
        group = self.rollouts.group.new_zeros(len(self.live))
        reward[self.live], group[self.live] = self.rollouts.reward, self.rollouts.group
        advantage = spread(self.credit.advantage, self.live, self.response_mask)
        out = {"advantages": advantage, "returns": advantage.clone(), REWARD: reward, GROUP: group}
        out |= self._signals(self.credit, self.live, self.response_mask)
        return TensorDict(out, batch_size=len(self.live))

    def sequences(self, minibatches: Sequence[Sequence[int]]) -> TensorDict:
        """For each row the responses with a token in its minibatch over all ranks: a denominator of the loss."""
        counts = torch.zeros(len(self.live))
        for rows in minibatches:
            counts[list(rows)] = float(self.live[list(rows)].sum())
        return TensorDict({SEQUENCES: counts}, batch_size=len(self.live))

    def observed(
        self, part: Objective, rows: Sequence[int], policy: TensorDict, draws: torch.Generator | None = None
    ) -> TensorDict:
        """The signals that depend on the current policy over one optimiser step, for the rows of that step.

        Args:
            part: the objective, or one of its passes.
            rows: of verl's batch.
            policy: "log_probs" and "entropy" of these rows under the current policy, nested like their responses.
        """
        index = torch.as_tensor(rows)
        live = self.live[index]
        numbers = (self.live.cumsum(0) - 1)[index[live]]
        width = self.rollouts.mask.shape[1]
        views = {ours: padded(policy[theirs])[live] for ours, theirs in _VIEWS.items() if theirs in policy}
        views = {name: torch.nn.functional.pad(values, (0, width - values.shape[1])) for name, values in views.items()}
        rollouts, credit = self.rollouts.rows(numbers), self.credit.rows(numbers)
        batch = Batch(rollouts, credit, Policy(**views))
        observed = part.observe(batch, draws).credit
        new = Credit(observed.advantage, {k: v for k, v in observed.signals.items() if k not in credit.signals})
        lengths = self.response_mask.offsets().diff()[index]
        like = torch.nested.as_nested_tensor([torch.zeros(int(n)) for n in lengths], layout=torch.jagged)
        return TensorDict(self._signals(new, live, like), batch_size=len(index))

    def totals(self, length: int) -> Totals:
        """Of the whole rollout batch."""
        return Totals.of(self.rollouts, length)

    def _signals(self, credit: Credit, live: Tensor, like: Tensor) -> dict[str, Tensor]:
        names, dtype = signal_fields(self.objective), self.credit.advantage.dtype
        return {names[part]: spread(value.to(dtype), live, like) for part, value in credit.signals.items()}


_VIEWS = {"logprob": "log_probs", "entropy": "entropy"}


def minibatches(rows: int, ranks: int, size: int) -> list[list[int]]:
    """The rows of each optimiser step, as verl deals an unshuffled batch: each rank takes its share of each step."""
    share, part = rows // ranks, size // ranks
    return [
        [rank * share + start + offset for rank in range(ranks) for offset in range(part)]
        for start in range(0, share, part)
    ]
