"""Forward passes over the tokens of rollouts, in parts that fit a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....core.head.teacher import Teacher as TeacherHead
from ....core.types import Batch, Loss, Policy, Rollouts
from ....core.update import Update
from ...models import LanguageModel, score
from ...models.device import precision
from ...models.score import Predictions, has_plain_head, predictions
from .critic import Critic

Taught = Callable[[Tensor], TeacherHead]  # rows of the step -> the teacher on their tokens


@dataclass(frozen=True)
class Forward:
    """Forward passes of a model over sampled tokens."""

    lm: LanguageModel
    micro_rows: int  # largest number of rows of one pass
    micro_tokens: int  # largest number of tokens of one pass: rows x (longest prompt + longest response)
    drift: bool = False  # also Policy.entropy_drift
    autocast: bool = False  # bf16 on a GPU
    entropy_grad: bool = False  # keep the graph of the entropy
    critic: Critic | None = None

    def splits(self, rollouts: Rollouts, prompts: Sequence[Sequence[int]], rows: Tensor) -> list[Tensor]:
        """Splits `rows` [M] into parts that fit the budget, longest first; a single row always fits."""
        length, group = torch.stack([rollouts.mask.sum(1), rollouts.group]).tolist()
        prompt = [len(prompts[one]) for one in group]
        order = sorted(rows.tolist(), key=lambda row: -(prompt[row] + length[row]))
        parts: list[list[int]] = []
        widest = (0, 0)
        for row in order:
            wider = max(widest[0], prompt[row]), max(widest[1], length[row])
            size = len(parts[-1]) + 1 if parts else 0
            if parts and size <= self.micro_rows and size * sum(wider) <= self.micro_tokens:
                parts[-1].append(row)
                widest = wider
            else:
                parts.append([row])
                widest = prompt[row], length[row]
        return [torch.tensor(part, device=rows.device) for part in parts]

    def policy(self, rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Policy:
        """Log-prob, with graph unless gradients are off, and entropy [M, T]; `group` is an index into `prompts`."""
        more = {"drift": self.drift, "entropy_grad": self.entropy_grad, "max_tokens": self.micro_tokens}
        with precision(self.lm.device, self.autocast):
            return score(self.lm, *texts(rollouts, prompts), **more)

    def learn(
        self, update: Update, rows: Tensor, prompts: Sequence[Sequence[int]], taught: Taught | None = None
    ) -> Iterator[tuple[Tensor, Batch, Loss]]:
        """Adds the gradient of these rows' loss to the parameters' `.grad`; yields rows, batch and loss of each pass.

        If the head is plain, loss and head are evaluated together and no logits are kept.
        """
        rollouts, _ = update.of(rows)
        head = self.lm.model.get_output_embeddings()
        if not has_plain_head(self.lm):
            batch, loss = update.evaluate(self.policy(rollouts, prompts), rows)
            batch.policy.logprob.retain_grad()
            loss.value.backward()
            yield rows, batch, loss
            return
        for seen in self.passes(rollouts, prompts):
            part = rows[seen.row.unique_consecutive()]  # in the order of their tokens
            with precision(self.lm.device, self.autocast):
                batch, fused = update.evaluate_head(
                    seen.out, head.weight, part, bias=head.bias, in_place=True, teacher=taught and taught(part)
                )
            whole = fused.loss.value
            if self.critic is not None:
                whole = whole + self.critic.loss(update, part, seen.out)
            if whole.requires_grad:
                whole.backward()
            yield part, batch, fused.loss

    def learn_value(self, critic: Critic, update: Update, rows: Tensor, prompts: Sequence[Sequence[int]]) -> None:
        """Adds the gradient of the critic's loss on these rows to `.grad` of its head only."""
        with torch.no_grad():
            seen = [(rows[x.row.unique_consecutive()], x.out) for x in self.passes(update.of(rows)[0], prompts)]
        for part, hidden in seen:
            critic.loss(update, part, hidden).backward()

    @torch.no_grad()
    def value(self, critic: Critic, rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Tensor:
        """[N, T] the current critic's value before each token; 0 outside the mask."""
        table = torch.zeros(rollouts.mask.shape, device=self.lm.device)
        for seen in self.passes(rollouts, prompts):
            table[seen.row, seen.column] = critic.head(seen.out).float()
        return table

    def passes(self, rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Iterator[Predictions]:
        """The forward passes of some rows; autocast covers only the passes, not the caller's work between them."""
        passes = predictions(self.lm, *texts(rollouts, prompts), self.micro_tokens)
        while True:
            with precision(self.lm.device, self.autocast):
                seen = next(passes, None)
            if seen is None:
                return
            yield seen


def texts(
    rollouts: Rollouts, prompts: Sequence[Sequence[int]]
) -> tuple[list[list[int]], Tensor, Tensor, Tensor, Tensor]:
    """(prompts in use, number of each row's prompt, token ids, mask and temperature [N, T])."""
    used, of_row = torch.unique(rollouts.group, return_inverse=True)
    mine = [list(prompts[group]) for group in used.tolist()]
    mask, heat = rollouts.mask, rollouts.need("temperature")
    return mine, of_row, rollouts.need("token_ids"), mask, heat.where(mask, 1.0)
