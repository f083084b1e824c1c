"""Traces: the texts of single tokens and the terms of their losses."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.learner import Step
from ..core.ops.ratio import k3
from ..core.types import Batch, Loss


class Tracer:
    """Keeps the loss terms of at most `most` responses per token; docs/report.md explains each term."""

    NAMES: Sequence[str] = ("advantage", "weight", "ratio", "clipped", "low", "high", "penalty", "coefficient", "loss")

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: dict[int, Mapping[str, list[float]]] = {}
        self.wanted: frozenset[int] = frozenset()
        self.known: dict[int, dict[str, list[float]]] = {}  # terms of wanted rows that are known before any update

    def choose(self, rows: Tensor, step: Step) -> None:
        """Chooses the best and the worst response of each group in turn, groups with an advantage first."""
        if not self.most:
            return
        rollouts, advantage = step.rollouts, step.credit.advantage
        alive = (advantage != 0).any(1).tolist()
        live = {row: alive[row] for row in rows.tolist()}
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
        """Traces exactly these rows of the rollout batch."""
        self.wanted = frozenset(rows)

    def watch(self, rows: Tensor, batch: Batch) -> None:
        """Before the backward pass: keeps the gradient in the log-probabilities if a wanted row is among `rows`."""
        if batch.policy.logprob.requires_grad and not self.wanted.isdisjoint(rows.tolist()):
            batch.policy.logprob.retain_grad()

    @torch.no_grad()
    def add(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        """After the backward pass: stores the terms of wanted rows among `rows` [M], replacing earlier updates'."""
        wanted = [(place, row) for place, row in enumerate(rows.tolist()) if row in self.wanted]
        if not wanted:
            return
        shown = self._shown(batch, loss)
        places = [place for place, _ in wanted]
        # Read from the device once, not for each row and name.
        mask, *tables = torch.stack([x[places].float() for x in (batch.mask, *shown.values())]).cpu()
        for i, (_, row) in enumerate(wanted):
            kept = mask[i] > 0
            of_row = {name: x[i][kept].tolist() for name, x in zip(shown, tables, strict=True)}
            self.found[row] = of_row | self.known.get(row, {})

    def _shown(self, batch: Batch, loss: Loss) -> dict[str, Tensor]:
        policy, facts = batch.policy, batch.rollouts
        logprob, old = policy.logprob.detach(), facts.old_logprob
        shown = {name: loss.terms[name] for name in self.NAMES if name in loss.terms}
        shown |= {"logprob": logprob, "old_logprob": old, "kl": k3(logprob - old)}
        # A tensor that is not a leaf has a gradient only if `watch` asked for it.
        if (policy.logprob.is_leaf or policy.logprob.retains_grad) and policy.logprob.grad is not None:
            share = loss.terms["coefficient"]
            # A coefficient of 0 leaves a token out of the loss.
            shown["effective"] = torch.where(share == 0, 0.0, -policy.logprob.grad / share)
        if facts.ref_logprob is not None:
            shown["kl_ref"] = k3(facts.ref_logprob - logprob)
        if facts.old_entropy is not None:
            shown["entropy"] = facts.old_entropy
        return shown


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One string per token, special tokens included, by a tokenizer of transformers."""
    texts = []
    for i in ids:
        text = tokenizer.decode([i], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        raw = tokenizer.convert_ids_to_tokens(i)
        # SentencePiece drops a leading space when a token is decoded alone.
        texts.append(f" {text}" if raw and raw.startswith("▁") and not text.startswith(" ") else text)
    return texts


def require_same_tokens(setting: str, teacher: object, theirs: Any, policy: Any) -> None:
    """Raises TokenPOError, naming the setting, if two tokenizers number their tokens differently."""
    if theirs.get_vocab() != policy.get_vocab():
        raise TokenPOError(f"{setting}: the tokens of {teacher} are not those of the policy: take another teacher")
