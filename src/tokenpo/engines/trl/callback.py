"""What goes with a trainer's steps: the run's records, and the objective's memory in TRL's checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ...base.errors import TokenPOError
from .record import Recorder, batch_metrics, traces
from .rows import largest, summed


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
        self._updates = 0
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
        trainer = self._trainer
        memory = [dict(trainer.memory[part]) for part in trainer.policy_objective.memories]
        sizes = {} if self._recorder is None else self._recorder.sizes()
        named = {"objective": str(trainer.policy_objective), "memory": memory, "batches": self._batches, "sizes": sizes}
        return {"args": {}, "attributes": {**named, "cursor": trainer.refill.cursor}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, updates = self._trainer, self._trainer.cycle.updates
        self._at_end = self.at_end
        _require_boundaries(args, state, updates)
        saved = state.stateful_callbacks.get(type(self).__name__)
        self._batches, self._updates, sizes = 0, 0, {}
        trainer.memory, trainer.refill.cursor = trainer.policy_objective.start(), 0
        if state.global_step:
            sizes = self._restore(state, saved)
        state.stateful_callbacks[type(self).__name__] = self.state()
        if trainer.accelerator.is_main_process:
            config = {**_described(trainer, state.max_steps // updates), **self.described}
            objective = str(trainer.policy_objective)
            self._recorder = Recorder.begin(self._directory, sizes, config=config, objective=objective)
            if self.before and not sizes:
                self._recorder.add({"step": 0, **self.before}, [])

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs.get("optimizer")
        if optimizer is not None:
            self._rate = optimizer.param_groups[0]["lr"]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._updates += 1
        if self._updates % self._trainer.cycle.updates == 0:
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
        accelerator = trainer.accelerator
        current.settle(accelerator.num_processes)
        tally = current.tally.across(summed(accelerator), largest(accelerator), accelerator.device)
        self._batches += 1
        # Before TRL saves its last checkpoint, which knows how long the records are.
        last = self._ended() if state.global_step >= state.max_steps else {}
        if self._recorder is None:
            return
        drawn = current.drawn
        # The tally counts updates for means of what it adds up; TRL's own log has the gradient norm.
        summary = {name: value for name, value in tally.summary().items() if name != "grad_norm"}
        summary["loss"] /= trainer.cycle.updates
        line = {"step": self._batches, "update": state.global_step}
        line |= batch_metrics(drawn, trainer.reward_func_names, trainer.reward_weights, trainer.num_generations)
        line |= summary
        line |= {"lr": self._rate, "seconds_rollout": round(self._drawing, 4), "seconds_update": seconds, **last}
        self._recorder.add(line, traces(self._batches, drawn, current.tracer.found, trainer._tokenizer))

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
        memories = trainer.policy_objective.memories
        if attributes["objective"] != str(trainer.policy_objective):
            raise TokenPOError(
                f"the checkpoint of step {state.global_step} was trained with another objective than this run's: "
                f"resume it with the same, or begin anew from its weights. It was:\n{attributes['objective']}"
            )
        trainer.memory = dict(zip(memories, attributes["memory"], strict=True))
        self._batches, trainer.refill.cursor = attributes["batches"], attributes["cursor"]
        return attributes["sizes"]


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
