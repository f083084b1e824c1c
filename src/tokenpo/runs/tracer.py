"""The loss's own tensors of a few responses, kept for the per-token report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..core.learner import Step
from ..core.ops import kl
from ..core.types import Batch, Loss


class Tracer:
    """Keeps tensors of at most `most` responses; docs/report.md explains each."""

    NAMES: Sequence[str] = ("advantage", "weight", "ratio", "clipped", "low", "high", "penalty", "coefficient", "loss")

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: dict[int, Mapping[str, list[float]]] = {}
        self.wanted: frozenset[int] = frozenset()
        self.known: dict[int, dict[str, list[float]]] = {}  # of each wanted row, before any update

    def choose(self, rows: Tensor, step: Step) -> None:
        """Wants the best and the worst response of one group after the other, groups with an advantage first.

        Args:
            rows: places in the rollout batch; groups are taken in the order in which theirs come first.
        """
        if not self.most:
            return
        rollouts, advantage = step.rollouts, step.credit.advantage
        live = {row: bool((advantage[row] != 0).any()) for row in rows.tolist()}
        reward, group = rollouts.reward.tolist(), rollouts.group.tolist()
        members: dict[int, list[int]] = {group[row]: [] for row in live}
        for row in sorted(live, key=lambda row: (-reward[row], row)):
            members[group[row]].append(row)
        taken = sorted(members.values(), key=lambda m: not any(live[row] for row in m))
        self.want(list(dict.fromkeys(row for m in taken for row in (m[0], m[-1])))[: self.most])
        heat = step.sampled_at()
        if heat is not None:
            known = {row: heat[row][rollouts.mask[row]].float().tolist() for row in self.wanted}
            self.known = {row: {"temperature": values} for row, values in known.items()}

    def want(self, rows: Sequence[int]) -> None:
        """Wants these rows of the rollout batch and no others."""
        self.wanted = frozenset(rows)

    def watch(self, rows: Tensor, batch: Batch) -> None:
        """Before the backward pass: keeps the gradient at the log-probabilities of a micro-batch with a wanted row."""
        if batch.policy.logprob.requires_grad and not self.wanted.isdisjoint(rows.tolist()):
            batch.policy.logprob.retain_grad()

    @torch.no_grad()
    def add(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        """After the backward pass: takes the wanted rows, in place of those of an earlier update.

        Args:
            rows: [M] places in the rollout batch.
        """
        wanted = [(place, row) for place, row in enumerate(rows.tolist()) if row in self.wanted]
        shown = self._shown(batch, loss) if wanted else {}
        for place, row in wanted:
            kept = batch.mask[place]
            of_row = {name: x[place][kept].float().tolist() for name, x in shown.items()}
            self.found[row] = of_row | self.known.get(row, {})

    def _shown(self, batch: Batch, loss: Loss) -> dict[str, Tensor]:
        policy, facts = batch.policy, batch.rollouts
        logprob, old = policy.logprob.detach(), facts.old_logprob
        shown = {name: loss.terms[name] for name in self.NAMES if name in loss.terms}
        shown |= {"logprob": logprob, "old_logprob": old, "kl": kl.k3(logprob - old)}
        # Of another tensor than a leaf, it would have to be asked for (`watch`).
        if (policy.logprob.is_leaf or policy.logprob.retains_grad) and policy.logprob.grad is not None:
            share = loss.terms["coefficient"]
            # A coefficient of 0 leaves a token out of the loss.
            shown["effective"] = torch.where(share == 0, 0.0, -policy.logprob.grad / share)
        if facts.ref_logprob is not None:
            shown["kl_ref"] = kl.k3(facts.ref_logprob - logprob)
        if facts.old_entropy is not None:
            shown["entropy"] = facts.old_entropy
        return shown
