"""Writes the run directory OUTPUT_DIR/tokenpo, and stores the learner's state in TRL's checkpoints."""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object  # pyright: ignore[reportMissingImports]
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ...base.errors import TokenPOError, refuse
from ...core.learner import Step
from ...core.statistics import Statistics
from ...core.types import TAUGHT, Rollouts
from ...records import Response, RunLog, drop_after, responses, step_file, write_lines
from ...records.metrics import credit_metrics, entropy_metrics
from ...records.run import Rollout, in_words
from ...records.trace import pieces
from .rollout_batch import RolloutBatch, plain
from .settings import named
from .updates import policy_now

PACKAGES = ("trl", "accelerate", "datasets")
JUDGES = ("correct", "correctness", "accuracy_reward")  # the last is TRL's


class TokenPOCallback(TrainerCallback, ExportableState):
    """Writes a line of metrics per rollout batch; its state is stored in `trainer_state.json` of a checkpoint."""

    def __init__(self, trainer: Any, directory: Path) -> None:
        self._trainer, self._directory = trainer, directory
        self._records: Records | None = None  # in the first process, during training
        self._batches = 0
        self._rate = math.nan
        self._scaled: list[tuple[dict[str, Any], Any]] = []  # optimiser group, TRL's rate
        self._started = time.perf_counter()
        self._drawing = 0.0

    def wants_trace(self) -> bool:
        """Whether to trace the rollout batch that begins: the first, and every `trace_every`-th."""
        every = self._trainer.args.trace_every
        return every > 0 and (self._batches == 0 or (self._batches + 1) % every == 0)

    def begin(self, seconds: float) -> None:
        """Called when a rollout batch is drawn and scored, which took `seconds`."""
        self._started, self._drawing = time.perf_counter(), seconds
        if self._records is not None:
            self._records.flush()

    def state(self) -> dict[str, Any]:
        if self._records is not None:
            self._records.sync()
        mine = {"batches": self._batches, "cursor": self._trainer.refill.cursor}
        return {"args": {}, "attributes": {**self._trainer.learner.state_dict(), **mine}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, updates, name = self._trainer, self._trainer.cycle.updates, type(self).__name__
        _require_boundaries(args, state, updates)
        trainer.learner = trainer.fresh_learner()
        saved = {"batches": 0, "cursor": 0}
        if state.global_step:
            if name not in state.stateful_callbacks:
                raise TokenPOError(
                    f"the checkpoint of step {state.global_step} was not written by a TokenPOTrainer: begin anew from "
                    "its weights, with model= its directory and no resume_from_checkpoint"
                )
            saved = state.stateful_callbacks[name]["attributes"]
            trainer.learner.load_state_dict(saved)
        self._batches, trainer.refill.cursor = saved["batches"], saved["cursor"]
        state.stateful_callbacks[name] = self.state()
        if trainer.accelerator.is_main_process:
            config = _described(trainer, state.max_steps // updates)
            objective = trainer.policy_objective
            rewarded = objective.needs.isdisjoint(TAUGHT)
            self._records = Records(self._directory, self._batches, config, str(objective), PACKAGES, rewarded=rewarded)
            drop_after(self._directory, self._batches)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.current.settle()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, *, optimizer: Any, **kwargs: Any) -> None:
        trainer, groups = self._trainer, optimizer.param_groups
        held = trainer.learner.kl is not None
        self._scaled = [(group, group["lr"]) for group in groups] if held else []
        for group, lr in self._scaled:
            group["lr"] = lr * trainer.learner.rate
        self._rate = groups[0]["lr"]
        trainer.current.settle()
        if not trainer.current.check(self._rate):
            optimizer.zero_grad()  # an optimiser skips weights without a gradient

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # TRL's schedule and TRL's checkpoint need TRL's own rate.
        for group, lr in self._scaled:
            group["lr"] = lr

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._trainer.cycle.updates == 0:
            self._close(state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._records is not None and logs and "grad_norm" in logs:
            self._records.amend(grad_norm=float(logs["grad_norm"]))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._records is not None:
            self._records.sync()
            self._records.warn()
            self._records = None

    def _close(self, state: Any) -> None:
        """Ends a rollout batch, on every rank; the first writes the records."""
        seconds = round(time.perf_counter() - self._started, 4)
        trainer, current = self._trainer, self._trainer.current
        batch, step, every = current.batch, current.step, trainer.args.rollouts_every
        self._batches += 1
        current.end()
        made = {} if step is None else step.metrics()
        held = {name: x for name, x in made.items() if name.startswith(("kl_", "teacher_"))}
        for name, value in held.items():
            trainer._metrics["train"][name].append(value)
        if every and self._batches % every == 0 and step is not None:
            whole = recorded(trainer, batch, step, self._batches)
            if self._records is not None:
                write_lines(step_file(self._directory, self._batches), whole)
        if self._records is None:
            return
        line = {"step": self._batches, "update": state.global_step, **batch_metrics(trainer, batch, step)}
        line |= (Statistics() if step is None else step.statistics).summary() | held
        del line["grad_norm"]  # TRL's own log has it
        line |= {"lr": self._rate, "seconds_rollout": round(self._drawing, 4), "seconds_update": seconds}
        self._records.add(line)
        for trace in traces(trainer, self._batches, batch, current.tracer.found):
            self._records.trace.write(trace)


class Records(RunLog):
    """A line of metrics stays open until the next one, so that TRL's log of its last update can add to it."""

    open_line: Mapping[str, Any] = {}

    def add(self, metrics: Mapping[str, Any]) -> None:
        self.flush()
        self.open_line = metrics

    def amend(self, **values: float) -> None:
        if self.open_line:
            self.open_line = {**self.open_line, **values}

    def flush(self) -> None:
        if self.open_line:
            self.write(self.open_line)
            self.open_line = {}

    def sync(self) -> None:
        """Writes all records to disk, before a checkpoint is saved."""
        self.flush()
        self.metrics.sync()
        self.trace.sync()


def batch_metrics(trainer: Any, batch: RolloutBatch, step: Step | None) -> dict[str, float]:
    """Metrics over all drawn responses, named as by the embedded engine."""
    rows, names = batch.drawn, trainer.reward_func_names
    each, length = rows["rewards"], rows["length"].float()
    reward = rows["reward"][~each.isnan().all(1)]
    metrics = {
        "reward": float(reward.mean()),
        "reward_std": float(reward.double().std()) if len(reward) > 1 else math.nan,
        **{f"rewards/{name}": float(each[:, i].nanmean()) for i, name in enumerate(names)},
        "length": float(length.mean()),
        "length_min": float(length.min()),
        "length_max": float(length.max()),
        "truncated": float(rows["truncated"].float().mean()),
        "equal_reward_groups": batch.equal,
        "discarded_groups": batch.equal if trainer.args.dynamic_sampling else 0.0,
    }
    if (judge := judging(names, each)) is not None:
        metrics["accuracy"] = metrics[f"rewards/{names[judge]}"]
    if (drawn := batch.everything) is not None:
        metrics |= entropy_metrics(drawn.need("old_entropy")[drawn.mask])
        metrics["temperature_mean"] = float(rows["sampled_at"][drawn.mask].mean())
    if step is None:
        return metrics | {"groups": 0, "zero_advantage_groups": 1.0}
    return metrics | credit_metrics(step.rollouts.rows(batch.trained), step.credit.rows(batch.trained))


def recorded(trainer: Any, batch: RolloutBatch, step: Step, number: int) -> list[Response]:
    """The responses of a trained batch with the objective's inputs and the policy after it; all ranks must call it."""
    micro, width = trainer.args.per_device_train_batch_size, step.rollouts.mask.shape[1]
    policy = policy_now(trainer, trainer.model, [batch.output], width, micro)
    prompts = gather_object([in_words(plain(prompt)) for prompt in batch.prompts])
    rollouts = step.rollouts.rows(batch.trained)
    # Those that nobody scored stay out of the group whose credit `tokenpo explain` computes.
    rollouts = dataclasses.replace(rollouts, mask=rollouts.mask & ~batch.rows["unscored"][batch.trained])
    tokens = [_pieces(trainer, rollouts, row) for row in range(len(rollouts))]
    more = {"prompts": prompts[batch.trained], "correct": verdicts(trainer, batch)[batch.trained], "step": number}
    names = trainer.reward_func_names
    return [*responses(rollouts, tokens, **more, policy=policy.rows(batch.trained), reward_names=names)]


def traces(trainer: Any, step: int, batch: RolloutBatch, terms_by_row: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
    """One record for each traced response of this rank, as the embedded engine writes them."""
    rollouts, correct = batch.rollouts, verdicts(trainer, batch)
    if rollouts is None:
        return
    if trainer.args.method is None:  # terms of responses that nobody scored too
        rollouts = batch.with_unscored
    for row, terms in sorted(terms_by_row.items()):
        prompt, tokens = plain(batch.prompts[row - batch.mine.start]), _pieces(trainer, rollouts, row)
        group, reward = int(rollouts.group[row]), float(rollouts.reward[row])
        yield vars(Rollout(step, row, group, prompt, tokens, reward, correct[row], "", terms))


def verdicts(trainer: Any, batch: RolloutBatch) -> list[bool | None]:
    """[N] whether the judging reward function gave a response 1; None where it gave nothing, or there is none."""
    each = batch.rows["rewards"]
    judge = judging(trainer.reward_func_names, batch.drawn["rewards"])
    if judge is None:
        return [None] * len(each)
    return [None if math.isnan(value) else value == 1.0 for value in each[:, judge].tolist()]


def judging(names: Sequence[str], each: Tensor) -> int | None:
    """The reward function that judges: `accuracy`; else one of JUDGES or the only one, if it gives 0 and 1 alone.

    `each` [N, F] are the rewards of a batch; NaN where a function gave nothing.
    """
    if "accuracy" in names:
        return names.index("accuracy")
    found = [i for i, name in enumerate(names) if name in JUDGES or len(names) == 1]
    return next((i for i in found if bool(((each[:, i] == 0) | (each[:, i] == 1) | each[:, i].isnan()).all())), None)


def _pieces(trainer: Any, rollouts: Rollouts, row: int) -> list[str]:
    return pieces(trainer._tokenizer, rollouts.need("token_ids")[row][rollouts.mask[row]].tolist())


def _require_boundaries(args: Any, state: Any, updates: int) -> None:
    """Raises TokenPOError for a run that would save a checkpoint, end or resume inside a rollout batch."""
    # TRL saves a checkpoint at the end too, and an unfinished rollout batch would be in no record.
    saves = str(getattr(args.save_strategy, "value", args.save_strategy))
    steps = {"max_steps": state.max_steps, "the step to resume from": state.global_step}
    steps |= {"save_steps": state.save_steps} if saves in ("steps", "best") else {}
    steps |= {"eval_steps": state.eval_steps} if saves == "best" else {}
    refuse(
        (
            f"{name} = {number} lies within a rollout batch of {updates} updates (steps_per_generation x "
            f"num_iterations / gradient_accumulation_steps): make it a multiple of {updates}"
            for name, number in steps.items()
            if number and number % updates
        ),
        TokenPOError,
    )


def _described(trainer: Any, batches: int) -> dict[str, Any]:
    """The run's settings, under the names that reports look for."""
    args, objective = trainer.args, trainer.policy_objective
    return {
        "engine": "trl",
        "seed": args.seed,
        "model": {"path": trainer.model.config._name_or_path},
        "task": {"name": ", ".join(trainer.reward_func_names)},
        "method": {"name": objective.name, **named(args)[1]},
        "train": {"steps": batches, "processes": trainer.accelerator.num_processes},
        "trl": args.to_dict(),
    }
