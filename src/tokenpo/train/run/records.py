"""The records of a step: its line of metrics, a few responses, and traces of single tokens."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ...core.learner import Step
from ...core.statistics import Statistics
from ...core.types import Policy, Rollouts
from ...records import Response, Tracer, responses
from ...records.metrics import credit_metrics, entropy_metrics
from ...records.run import Rollout, in_words
from ..models import Vocabulary
from .rollout import Draw, Experience, mixed_groups, reward_names

PAID = 3  # the number of first steps whose rewarded responses are shown, and of these in each


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


def step_metrics(step: Step | None) -> dict[str, float]:
    """Statistics of a step's credit and updates; None means a step without a group to learn from."""
    if step is None:
        return {"groups": 0, "zero_advantage_groups": 1.0, **Statistics().summary()}
    return {**credit_metrics(step.rollouts, step.credit), **step.metrics()}


def sample_records(step: int, piece: Draw, count: int) -> Iterator[Mapping[str, Any]]:
    """The first response to each of the first `count` problems; in the first steps, also the first rewarded ones."""
    size, paid = piece.group_size, dict[int, int]()
    rows = [group * size for group in range(min(count, len(piece.problems)))]
    for row, score in enumerate(piece.scores):
        if score.reward > 0:
            paid.setdefault(row // size, row)
    if step <= PAID and count:
        rows += [row for row in list(paid.values())[:PAID] if row not in rows]
    for row in rows:
        group, score = row // size, piece.scores[row]
        yield {
            "step": step, "position": piece.start + group, "prompt": piece.question(group),
            "completion": piece.completions[row], "answer": piece.problems[group].reference, "reward": score.reward,
            "correct": score.correct, "note": score.note, "length": int(piece.mask[row].sum()),
            "finished": bool(piece.finished[row]),
        }  # fmt: skip


def paid_lines(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line on each of the first rewarded responses: a person sees in a minute that an echo is paid."""
    for record in [record for record in records if record["reward"] > 0][:PAID]:
        prompt = record["prompt"] if isinstance(record["prompt"], str) else record["prompt"][-1]["content"]
        expected = f", expected {record['answer']!r:.20}" if record["answer"] else ""
        yield f"rewarded {record['reward']:g}: {_short(str(prompt))!r} -> {_short(record['completion'])!r}{expected}"


def _short(text: str, most: int = 44) -> str:
    """The text without its middle, as an answer stands at the end."""
    return text if len(text) <= most else f"{text[: most // 2 - 2]}...{text[2 - most // 2 :]}"


def trace_records(step: int, lm: Vocabulary, kept: Draw, tracer: Tracer) -> Iterator[Mapping[str, Any]]:
    """One record for each traced response, with one number per token in every list of `terms`."""
    for row, terms in sorted(tracer.found.items()):
        score, group = kept.scores[row], row // kept.group_size
        tokens = lm.pieces(kept.token_ids[row][kept.mask[row]].tolist())
        prompt, answer = kept.question(group), kept.problems[group].reference
        yield vars(Rollout(step, row, group, prompt, tokens, score.reward, score.correct, answer, terms))


def rollout_records(step: int, lm: Vocabulary, kept: Draw, rollouts: Rollouts, policy: Policy) -> Iterator[Response]:
    """The whole trained batch with every input of the objective, and the policy after the updates."""
    prompts = [in_words(kept.question(group)) for group in range(len(kept.problems)) for _ in range(kept.group_size)]
    tokens = [lm.pieces(ids[mask].tolist()) for ids, mask in zip(kept.token_ids, kept.mask, strict=True)]
    correct = [score.correct for score in kept.scores]
    names = reward_names(kept)
    return responses(rollouts, tokens, prompts=prompts, correct=correct, step=step, policy=policy, reward_names=names)
