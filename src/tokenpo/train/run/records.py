"""The records of a step: its line of metrics, a few responses, and traces of single tokens."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...core.learner import Step
from ...core.ops import kl, ranked
from ...core.statistics import Statistics
from ...core.types import Batch, Credit, Loss, Policy, Rollouts
from ..models.vocabulary import Tokenized
from .read import Rollout, in_words
from .rollouts import Response, responses
from .rollouts.draw import Draw
from .rollouts.experience import Experience, mixed_groups, reward_names


class Tracer:
    """Keeps the loss terms of at most `most` responses per token; docs/report.md explains each term."""

    NAMES: Sequence[str] = ("advantage", "weight", "ratio", "clipped", "low", "high", "penalty", "coefficient", "loss")

    def __init__(self, most: int) -> None:
        self.most = most
        self.found: dict[int, Mapping[str, list[float]]] = {}
        self.wanted: frozenset[int] = frozenset()
        self.known: dict[int, dict[str, list[float]]] = {}  # terms of wanted rows that are known before any update

    def choose(self, rows: Tensor, step: Step) -> None:
        """Chooses the best and the worst response of each group in turn, groups with an advantage first.

        Args:
            rows: row numbers in the rollout batch; groups are taken in the order in which they first appear here.
        """
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
        shown |= {"logprob": logprob, "old_logprob": old, "kl": kl.k3(logprob - old)}
        # A tensor that is not a leaf has a gradient only if `watch` asked for it.
        if (policy.logprob.is_leaf or policy.logprob.retains_grad) and policy.logprob.grad is not None:
            share = loss.terms["coefficient"]
            # A coefficient of 0 leaves a token out of the loss.
            shown["effective"] = torch.where(share == 0, 0.0, -policy.logprob.grad / share)
        if facts.ref_logprob is not None:
            shown["kl_ref"] = kl.k3(facts.ref_logprob - logprob)
        if facts.old_entropy is not None:
            shown["entropy"] = facts.old_entropy
        return shown


class Clock:
    """Measures wall-clock seconds by part of a step."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._parts: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._parts[name] = self._parts.get(name, 0.0) + time.perf_counter() - start

    def summary(self) -> dict[str, float]:
        """seconds_NAME of each part; seconds_other is the rest of the time since the clock was made."""
        whole = time.perf_counter() - self._start
        parts = {f"seconds_{name}": round(seconds, 4) for name, seconds in self._parts.items()}
        return parts | {"seconds_other": round(whole - sum(self._parts.values()), 4)}


def rollout_metrics(experience: Experience) -> dict[str, float]:
    """Statistics of all drawn responses, discarded groups included; entropy in nats if known, length in tokens."""
    drawn = experience.drawn
    scores = [score for piece in drawn for score in piece.scores]
    reward = torch.cat([piece.reward() for piece in drawn]).double()
    groups, mixed = sum(len(piece.problems) for piece in drawn), sum(len(mixed_groups(piece)) for piece in drawn)
    length = torch.cat([piece.mask.sum(1) for piece in drawn]).float()
    known = [piece.entropy[piece.mask] for piece in drawn if piece.entropy is not None]
    heat = torch.cat([piece.temperature[piece.mask] for piece in drawn]).float()
    finished = torch.cat([piece.finished for piece in drawn]).float()
    notes = Counter(score.note for score in scores if score.note)
    return {
        "reward": sum(score.reward for score in scores) / len(scores),
        "reward_std": float(reward.std()) if len(scores) > 1 else math.nan,
        "accuracy": sum(score.correct for score in scores) / len(scores),
        **(entropy_metrics(torch.cat(known).float()) if known else {}),
        "length": float(length.mean()),
        "length_min": float(length.min()),
        "length_max": float(length.max()),
        "truncated": 1 - float(finished.mean()),
        "equal_reward_groups": 1 - mixed / groups,
        "discarded_groups": experience.discarded,
        "continued_tokens": experience.continued,
        "temperature_mean": float(heat.mean()),
        **{f"note/{note}": count / len(scores) for note, count in sorted(notes.items())},
    }


def entropy_metrics(entropy: Tensor) -> dict[str, float]:
    """Mean and quantiles of the entropy over tokens [M], nats."""
    quantiles = {f"entropy_q{q}": float(ranked.quantile(entropy, q / 100)) for q in (10, 50, 90)}
    return {"entropy": float(entropy.mean()), **quantiles}


def credit_metrics(rollouts: Rollouts, credit: Credit) -> dict[str, float]:
    """Statistics of the groups that are trained on."""
    live = ((credit.advantage != 0) & rollouts.mask).any(1)
    groups = int(rollouts.group.max()) + 1
    alive = torch.zeros(groups, dtype=torch.bool, device=live.device).index_put((rollouts.group[live],), live[live])
    return {"groups": groups, "zero_advantage_groups": 1 - float(alive.float().mean())}


def step_metrics(step: Step | None) -> dict[str, float]:
    """Statistics of a step's credit and updates; None means a step without a group to learn from."""
    if step is None:
        return {"groups": 0, "zero_advantage_groups": 1.0, **Statistics().summary()}
    return {**credit_metrics(step.rollouts, step.credit), **step.metrics()}


def sample_records(step: int, piece: Draw, count: int) -> Iterator[Mapping[str, Any]]:
    """The first response to each of the first `count` problems."""
    for group, problem in enumerate(piece.problems[:count]):
        row = group * piece.group_size
        score = piece.scores[row]
        yield {
            "step": step, "position": piece.start + group, "prompt": piece.question(group),
            "completion": piece.completions[row], "answer": problem.reference, "reward": score.reward,
            "correct": score.correct, "note": score.note, "length": int(piece.mask[row].sum()),
            "finished": bool(piece.finished[row]),
        }  # fmt: skip


def trace_records(step: int, lm: Tokenized, kept: Draw, tracer: Tracer) -> Iterator[Mapping[str, Any]]:
    """One record for each traced response, with one number per token in every list of `terms`."""
    for row, terms in sorted(tracer.found.items()):
        score, group = kept.scores[row], row // kept.group_size
        tokens = lm.pieces(kept.token_ids[row][kept.mask[row]].tolist())
        prompt, answer = kept.question(group), kept.problems[group].reference
        yield vars(Rollout(step, row, group, prompt, tokens, score.reward, score.correct, answer, terms))


def rollout_records(step: int, lm: Tokenized, kept: Draw, rollouts: Rollouts, policy: Policy) -> Iterator[Response]:
    """The whole trained batch with every input of the objective, and the policy after the updates."""
    prompts = [in_words(kept.question(group)) for group in range(len(kept.problems)) for _ in range(kept.group_size)]
    tokens = [lm.pieces(ids[mask].tolist()) for ids, mask in zip(kept.token_ids, kept.mask, strict=True)]
    correct = [score.correct for score in kept.scores]
    names = reward_names(kept)
    return responses(rollouts, tokens, prompts=prompts, correct=correct, step=step, policy=policy, reward_names=names)
