"""One training step: sample and score responses, compute credit, update the model, record everything.

Read `Run.step` first. `embedded` holds models and task, `rollout` samples and scores, `updates` trains. The loop over
steps is `loop`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from ...base.errors import NotFinite, TokenPOError, enough_memory
from ...base.terminal import Interrupt
from ...core.learner import Step
from ...core.statistics import Statistics
from ...core.types import TAUGHT, Policy, Rollouts
from ...records import Response, Tracer, responses, step_file, write_lines
from ...records.log import Watch
from ...records.metrics import credit_metrics, entropy_metrics
from ...records.run import Rollout, in_words
from ..models import Vocabulary
from ..recipe.plan import Plan
from . import checkpoint
from .checkpoint import Progress
from .directory import OpenRun
from .embedded import Local
from .evaluation import Evaluation
from .rollout import Draw, Experience, mixed_groups, reward_names

SHORTER = "rollout.max_new_tokens"
FEWER = f"rollout.prompts, rollout.group_size or {SHORTER}"
SMALLER = f"train.micro_rows, train.micro_tokens or {SHORTER}"
REMEDY = (
    'the run can go on from its last checkpoint: find what made it, or set train.nonfinite = "skip" to leave such '
    "updates out and count them"
)
PAID = 3  # the number of first steps whose rewarded responses are shown, and of these in each


class View:
    """Called by the loop; this one shows nothing."""

    def start(self, about: Sequence[str], directory: Path, step: int, notes: Sequence[str]) -> None:
        """Begins a run after `step`; `about` are lines on model, task and objective."""
        self.say(f"resuming {directory} after step {step}" if step else f"run {directory}")
        for line in (*about, *(f"warning: {note}" for note in notes)):
            self.say(line)

    def say(self, text: str) -> None: ...

    def step(self, metrics: Mapping[str, float], total: int) -> None:
        """Shows a line of metrics.jsonl."""


class Run:
    """A run between two steps: its model, its records, and how far it is."""

    def __init__(self, model: Local, plan: Plan, records: OpenRun, view: View, progress: Progress) -> None:
        self.model, self.plan, self.records, self.view = model, plan, records, view
        self.config, self.learner = plan.config, model.learner
        self.number, self.cursor, self.sizes = progress.step, progress.cursor, progress.sizes
        self.unlogged = progress.unlogged
        self.interrupt = Interrupt()
        self.watch = Watch(progress.step, rewarded=plan.objective.needs.isdisjoint(TAUGHT))

    def step(self) -> None:
        """Samples a rollout batch, computes credit, makes the updates and records everything."""
        clock, number = Clock(), self.number + 1
        try:
            with clock.part("rollout"), self.room(f"while sampling for step {number}", FEWER):
                experience = self.model.collect(self.cursor)
        except NotFinite as error:
            self.skip(error, clock)
            return
        except TokenPOError:
            if self.number:  # nothing has changed since
                self.rescue({})
            raise
        if self.interrupt.asked:
            return  # nothing has changed yet: a resumed run draws the same responses
        every = self.config.output.trace_every
        traced = every > 0 and (number == 1 or _due(number, every))
        tracer = Tracer(self.config.output.trace_rollouts if traced else 0)
        with clock.part("update"), self.room(f"in the update of step {number}", SMALLER):
            step = self.learn(experience, tracer)
        self.number, self.cursor = number, experience.cursor
        self.write(experience, step, tracer)
        self.end({**rollout_metrics(experience), **step_metrics(step)}, clock)

    def learn(self, experience: Experience, tracer: Tracer) -> Step | None:
        """Computes credit once, on whole groups, then updates; None if no group is left to learn from."""
        kept, rollouts, options = experience.kept, experience.rollouts, self.config.train
        everything = experience.everything() if self.learner.memory else None
        if kept is None or rollouts is None:
            if everything is not None:
                self.learner.remember(everything)
            return None
        try:
            rollouts = self.model.complete(rollouts, kept)
            rollouts = self.learner.dated(rollouts, options.epochs * options.minibatches)
            step = self.learner.begin(rollouts, drawn=everything)
            self.model.improve(step, kept, tracer)
        except NotFinite as error:
            raise NotFinite(f"step {self.number + 1}, {error}; {REMEDY}") from error
        for why in step.statistics.skipped:
            self.view.say(f"step {self.number + 1}: skipped {why}")
        return step

    def write(self, experience: Experience, step: Step | None, tracer: Tracer) -> None:
        """Writes responses, traces and, if due, the whole batch with the policy's scores after the updates."""
        number, words, kept = self.number, self.model.lm, experience.kept
        if _due(number, self.config.output.rollouts_every) and kept is not None and step is not None:
            policy = self.model.judge(step.rollouts, kept)
            records = rollout_records(number, words, kept, step.rollouts, policy)
            write_lines(step_file(self.records.path, number), records)
        samples = list(sample_records(number, experience.drawn[0], self.config.output.samples))
        for record in samples:
            self.records.samples.write(record)
        for line in paid_lines(samples) if number <= PAID else ():
            self.view.say(line)
        for record in trace_records(number, words, kept, tracer) if kept is not None else ():
            self.records.trace.write(record)

    def skip(self, error: NotFinite, clock: Clock) -> None:
        """Skips a rollout batch whose sampling or rewards were not finite, unless the recipe says to stop."""
        self.number, train = self.number + 1, self.config.train
        if train.nonfinite == "stop":
            raise NotFinite(f"step {self.number}, rollouts: {error}; {REMEDY}") from error
        self.view.say(f"step {self.number}: skipped the rollout batch: {error}")
        self.cursor += self.config.rollout.prompts
        unknown = dict.fromkeys(("reward", "accuracy", "entropy", "length"), math.nan)
        self.end({**unknown, **step_metrics(None), "skipped_updates": train.epochs * train.minibatches}, clock)

    def end(self, metrics: dict[str, float], clock: Clock) -> None:
        """Ends a step, trained or skipped: evaluation if due, metrics, checkpoint if due."""
        config, number = self.config, self.number
        metrics = {"step": number, "seconds_update": 0.0, **metrics}
        if config.evaluate.problems and (number == config.train.steps or _due(number, config.evaluate.every)):
            try:
                with clock.part("evaluation"):
                    metrics |= self.evaluate().metrics()
            except TokenPOError as error:
                if not isinstance(error, NotFinite):
                    self.rescue(metrics | clock.summary())
                raise
        metrics |= clock.summary()
        self.records.log(metrics)
        self.view.step(metrics, config.train.steps)
        self.warn(self.watch(metrics))
        if _due(number, config.output.checkpoint_every) and number < config.train.steps:
            self.save()

    def evaluate(self) -> Evaluation:
        with self.room(f"in the evaluation after step {self.number}", f"evaluate.rows, evaluate.samples or {SHORTER}"):
            return self.model.evaluate()

    def room(self, doing: str, settings: str) -> AbstractContextManager[None]:
        """Context manager: if memory runs out, the error names the settings to lower."""
        go_on = f"tokenpo train --resume {self.records.path} --accept-changes --set ..."
        return enough_memory(doing, f"lower {settings}, and go on from the last checkpoint with {go_on}")

    def save(self, unlogged: Mapping[str, float] = {}) -> None:
        state, records = self.learner.state_dict(), self.records
        progress = Progress(self.number, self.cursor, state, records.sizes(), self.plan.settings, unlogged)
        self.model.save(records.path, progress)
        checkpoint.prune(records.path, self.config.output.keep, self.number)

    def rescue(self, unlogged: Mapping[str, float]) -> None:
        """Saves before an error ends the run."""
        self.save(unlogged)
        self.view.say(f"saved after step {self.number}; go on with: tokenpo train --resume {self.records.path}")

    def warn(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.view.say(f"warning: {text}")


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


class Clock:
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
    """Statistics of all drawn responses, discarded groups included; entropy in nats, length in tokens."""
    drawn = experience.drawn
    scores = [score for piece in drawn for score in piece.scores]
    reward = torch.cat([piece.reward() for piece in drawn]).double()
    groups, mixed = sum(len(piece.problems) for piece in drawn), sum(len(mixed_groups(piece)) for piece in drawn)
    length = torch.cat([piece.mask.sum(1) for piece in drawn]).float()
    entropy = torch.cat([piece.entropy[piece.mask] for piece in drawn]).float()
    kept = [(x >= 0).sum(2)[piece.mask] for piece in drawn if (x := piece.kept_ids) is not None]
    heat = torch.cat([piece.temperature[piece.mask] for piece in drawn]).float()
    finished = torch.cat([piece.finished for piece in drawn]).float()
    notes = Counter(score.note for score in scores if score.note)
    return {
        "reward": sum(score.reward for score in scores) / len(scores),
        "reward_std": float(reward.std()) if len(scores) > 1 else math.nan,
        "accuracy": sum(score.correct for score in scores) / len(scores),
        **entropy_metrics(entropy),
        "length": float(length.mean()),
        "length_min": float(length.min()),
        "length_max": float(length.max()),
        "truncated": 1 - float(finished.mean()),
        "equal_reward_groups": 1 - mixed / groups,
        "discarded_groups": experience.discarded,
        "continued_tokens": experience.continued,
        "temperature_mean": float(heat.mean()),
        **({"kept_tokens": float(torch.cat(kept).float().mean())} if kept else {}),
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
    """Yields a line on each of the first rewarded responses: a person sees in a minute that an echo is rewarded."""
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
