"""What goes with a trainer's steps: the run directory OUTPUT_DIR/tokenpo, which `tokenpo report` reads, and the
learner's state in TRL's checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object  # pyright: ignore[reportMissingImports]
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ...base.errors import TokenPOError
from ...base.files import aside
from ...base.jsonl import Lines, cut
from ...core.learner import Step
from ...core.statistics import Statistics
from ...core.types import Rollouts
from ...models.tokens import pieces
from ...runs.directory import describe_foreign
from ...runs.records import credit_metrics, entropy_metrics, in_words
from ...runs.rollouts import Response, drop_after, responses, step_file, write_lines
from .rollout_batch import RolloutBatch, plain
from .updates import policy_now

FILES = ("metrics.jsonl", "trace.jsonl")
PACKAGES = ("trl", "accelerate", "datasets")


class TokenPOCallback(TrainerCallback, ExportableState):
    """Closes every rollout batch with a line of metrics; its state goes into `trainer_state.json` of a checkpoint.

    A checkpoint is taken between two rollout batches or not at all: within one, what is left of it would be lost.

    Attributes:
        described: settings for config.json beside those of TRL.
        before: metrics of the line for step 0; none writes no such line.
        at_end: called on every rank after the last update; what it returns joins the last line.
    """

    def __init__(self, trainer: Any, directory: Path) -> None:
        self._trainer, self._directory = trainer, directory
        self.described: Mapping[str, Any] = {}
        self.before: Mapping[str, float] = {}
        self.at_end: Callable[[], Mapping[str, float]] = dict
        self._at_end = self.at_end
        self._recorder: Recorder | None = None
        self._batches = 0
        self._rate = float("nan")
        self._started = time.perf_counter()
        self._drawing = 0.0

    def wants_trace(self) -> bool:
        """Whether the rollout batch that begins is to be traced: the first, and every `trace_every`-th."""
        every = self._trainer.args.trace_every
        return every > 0 and (self._batches == 0 or (self._batches + 1) % every == 0)

    def begin(self, seconds: float) -> None:
        """A rollout batch was drawn and scored in that time."""
        self._started, self._drawing = time.perf_counter(), seconds
        if self._recorder is not None:
            self._recorder.flush()

    def state(self) -> dict[str, Any]:
        """Called where a checkpoint is written."""
        trainer, sizes = self._trainer, {} if self._recorder is None else self._recorder.sizes()
        mine = {"batches": self._batches, "sizes": sizes, "cursor": trainer.refill.cursor}
        return {"args": {}, "attributes": {**trainer.learner.state_dict(), **mine}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, updates = self._trainer, self._trainer.cycle.updates
        self._at_end = self.at_end
        _require_boundaries(args, state, updates)
        saved = state.stateful_callbacks.get(type(self).__name__)
        self._batches, sizes = 0, {}
        trainer.learner, trainer.refill.cursor = trainer.fresh_learner(), 0
        if state.global_step:
            sizes = self._restore(state, saved)
        state.stateful_callbacks[type(self).__name__] = self.state()
        if trainer.accelerator.is_main_process:
            config = {**_described(trainer, state.max_steps // updates), **self.described}
            objective = str(trainer.policy_objective)
            self._recorder = Recorder.begin(self._directory, sizes, config, objective)
            drop_after(self._directory, self._batches)
            if self.before and not sizes:
                self._recorder.add({"step": 0, **self.before}, [])

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.current.settle()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs.get("optimizer")
        if optimizer is not None:
            self._rate = optimizer.param_groups[0]["lr"]
        self._trainer.current.settle()
        self._trainer.current.check(self._rate)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._trainer.cycle.updates == 0:
            self._close(state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._recorder is not None and logs and "grad_norm" in logs:
            self._recorder.amend(grad_norm=float(logs["grad_norm"]))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        last_metrics = self._ended()
        if self._recorder is not None:
            self._recorder.amend(**last_metrics)
            self._recorder.close()
            self._recorder = None

    def _close(self, state: Any) -> None:
        """The end of a rollout batch, on every rank; the first writes it down."""
        seconds = round(time.perf_counter() - self._started, 4)
        trainer, current = self._trainer, self._trainer.current
        self._batches += 1
        self._record_rollouts(current.batch, current.step)
        # Before TRL saves its last checkpoint, which knows how long the records are.
        last = self._ended() if state.global_step >= state.max_steps else {}
        if self._recorder is None:
            return
        statistics = Statistics() if current.step is None else current.step.statistics
        summary = statistics.summary()
        del summary["grad_norm"]  # TRL's own log has it
        line = {"step": self._batches, "update": state.global_step}
        line |= batch_metrics(trainer, current.batch, current.step)
        line |= summary
        line |= {"lr": self._rate, "seconds_rollout": round(self._drawing, 4), "seconds_update": seconds, **last}
        self._recorder.add(line, traces(trainer, self._batches, current.batch, current.tracer.found))

    def _record_rollouts(self, batch: RolloutBatch, step: Step | None) -> None:
        """The whole batch, where it is due, on every rank; the first writes it down."""
        every = self._trainer.args.rollouts_every
        if every == 0 or self._batches % every or step is None:
            return
        found = recorded(self._trainer, batch, step, self._batches)
        if self._recorder is not None:
            write_lines(step_file(self._directory, self._batches), found)

    def _ended(self) -> Mapping[str, float]:
        """What `at_end` says, once a training."""
        work, self._at_end = self._at_end, dict
        return work()

    def _restore(self, state: Any, saved: Any) -> dict[str, int]:
        trainer = self._trainer
        if saved is None:
            raise TokenPOError(
                f"the checkpoint of step {state.global_step} was not written by a TokenPOTrainer: begin anew from its "
                "weights, with model= its directory and no resume_from_checkpoint"
            )
        attributes = saved["attributes"]
        trainer.learner.load_state_dict(attributes)
        self._batches, trainer.refill.cursor = attributes["batches"], attributes["cursor"]
        return attributes["sizes"]


class Recorder:
    """Appends one line of metrics for each rollout batch, and traces of single tokens.

    A line stays open until the next thing happens, so that TRL's log of its last update can still add to it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pending: dict[str, Any] | None = None
        self._lines = [Lines(directory / name) for name in FILES]

    @staticmethod
    def begin(directory: Path, sizes: Mapping[str, int], config: Mapping[str, Any], objective: str) -> Recorder:
        """A new run, or one that goes on where a checkpoint knew the sizes of its files.

        Another run's directory is moved aside, never written over.
        """
        if not sizes and directory.exists():
            directory.rename(aside(directory))
        going_on = bool(sizes) and directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        for name, size in sizes.items() if going_on else ():
            cut(directory / name, size)
        describe_foreign(directory, config, objective, PACKAGES)
        return Recorder(directory)

    def add(self, metrics: Mapping[str, Any], traces: Sequence[Mapping[str, Any]]) -> None:
        self.flush()
        self._pending = dict(metrics)
        for record in traces:
            self._lines[1].write(record)

    def amend(self, **values: float) -> None:
        """Adds to the line of the last rollout batch, while it is open."""
        if self._pending is not None:
            self._pending |= values

    def flush(self) -> None:
        if self._pending is not None:
            self._lines[0].write(self._pending)
            self._pending = None

    def sizes(self) -> dict[str, int]:
        self.flush()
        return {lines.path.name: lines.sync() for lines in self._lines}

    def close(self) -> None:
        self.flush()
        for lines in self._lines:
            lines.close()


def batch_metrics(trainer: Any, batch: RolloutBatch, step: Step | None) -> dict[str, float]:
    """Over every response that was drawn; the names are those of the embedded engine."""
    rows, names = batch.drawn, trainer.reward_func_names
    each = rows["rewards"]
    reward = rows["reward"][~each.isnan().all(1)]
    length = rows["length"].float()
    metrics = {
        "reward": float(reward.mean()) if len(reward) else torch.nan,
        "reward_std": float(reward.double().std()) if len(reward) > 1 else torch.nan,
        **{f"rewards/{name}": float(each[:, i].nanmean()) for i, name in enumerate(names)},
        "length": float(length.mean()),
        "length_min": float(length.min()),
        "length_max": float(length.max()),
        "truncated": float(rows["truncated"].float().mean()),
        "equal_reward_groups": batch.equal,
        "discarded_groups": batch.equal if trainer.args.dynamic_sampling else 0.0,
    }
    if "accuracy" in names:
        metrics["accuracy"] = metrics["rewards/accuracy"]
    if (every := batch.everything) is not None:
        assert every.old_entropy is not None
        metrics |= entropy_metrics(every.old_entropy[every.mask])
        metrics["temperature_mean"] = float(rows["sampled_at"][every.mask].mean())
    if step is None:
        return metrics | {"groups": 0, "zero_advantage_groups": 1.0}
    trained = slice(0, batch.kept * batch.size)
    return metrics | credit_metrics(step.rollouts.rows(trained), step.credit.rows(trained))


def recorded(trainer: Any, batch: RolloutBatch, step: Step, number: int) -> list[Response]:
    """The whole batch that was trained on, as the objective was given it, and what the policy says of it now.

    All ranks call it, as each scores its own rows.
    """
    kept, micro = slice(0, batch.kept * batch.size), trainer.args.per_device_train_batch_size
    policy = policy_now(trainer, trainer.model, [batch.output], [step.rollouts.rows(batch.mine)], micro)
    prompts = gather_object([in_words(plain(prompt)) for prompt in batch.prompts])
    rollouts = step.rollouts.rows(kept)
    found = responses(
        rollouts,
        [_pieces(trainer, rollouts, row) for row in range(len(rollouts))],
        prompts=prompts[kept],
        correct=verdicts(trainer, batch)[kept],
        step=number,
        policy=policy.rows(kept),
        reward_names=trainer.reward_func_names,
    )
    return [*found]


def traces(trainer: Any, step: int, batch: RolloutBatch, terms_by_row: Mapping[int, Any]) -> list[dict]:
    """One record for each traced response of this rank, as the embedded engine writes them."""
    rollouts, correct = batch.rollouts, verdicts(trainer, batch)
    if rollouts is None:
        return []
    return [
        {
            "step": step,
            "row": row,
            "group": int(rollouts.group[row]),
            "prompt": plain(batch.prompts[row - batch.mine.start]),
            "tokens": _pieces(trainer, rollouts, row),
            "reward": float(rollouts.reward[row]),
            "correct": correct[row],
            "terms": terms,
        }
        for row, terms in sorted(terms_by_row.items())
    ]


def verdicts(trainer: Any, batch: RolloutBatch) -> list[bool | None]:
    """[N] whether a response is right: where a reward function called `accuracy` gave 1; None where none did."""
    each = batch.rows["rewards"]
    if "accuracy" not in trainer.reward_func_names:
        return [None] * len(each)
    given = each[:, trainer.reward_func_names.index("accuracy")].tolist()
    return [None if math.isnan(value) else value == 1.0 for value in given]


def _pieces(trainer: Any, rollouts: Rollouts, row: int) -> list[str]:
    return pieces(trainer._tokenizer, rollouts.need("token_ids")[row][rollouts.mask[row]].tolist())


def _require_boundaries(args: Any, state: Any, updates: int) -> None:
    """Refuses a run whose checkpoints or end would fall into a rollout batch, or that goes on from such a one.

    Raises:
        TokenPOError: naming the nearest settings that do not.
    """
    if state.global_step % updates:
        raise TokenPOError(
            f"the checkpoint of step {state.global_step} lies within a rollout batch of {updates} updates, the rest of "
            f"which is lost: resume from one at a multiple of {updates}"
        )
    # At the end TRL takes a checkpoint too, and what is left of a rollout batch would be in no record.
    saves = str(getattr(args.save_strategy, "value", args.save_strategy))
    for counts, name, steps, what in (
        (saves in ("steps", "best"), "save_steps", state.save_steps, "take TRL's checkpoints"),
        (saves == "best", "eval_steps", state.eval_steps, "take TRL's checkpoints"),
        (True, "max_steps", state.max_steps, "end TRL's training"),
    ):
        if counts and steps and steps % updates:
            nearest = max(1, round(steps / updates)) * updates
            raise TokenPOError(
                f"{name} = {steps} would {what} within a rollout batch of {updates} updates "
                f"(steps_per_generation x num_iterations / gradient_accumulation_steps): set {name}={nearest}"
            )


def _described(trainer: Any, batches: int) -> dict[str, Any]:
    """The run's settings, under the names that reports look for."""
    args, objective = trainer.args, trainer.policy_objective
    return {
        "engine": "trl",
        "seed": args.seed,
        "model": {"path": trainer.model.config._name_or_path},
        "task": {"name": ", ".join(trainer.reward_func_names)},
        "method": {"name": objective.name, **(args.method_options or {})},
        "train": {"steps": batches, "processes": trainer.accelerator.num_processes},
        "trl": args.to_dict(),
    }
