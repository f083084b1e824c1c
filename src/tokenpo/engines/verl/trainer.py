"""verl's V1 sync trainer with our objective: phase one in the driver, phase two in the workers.

What `TokenPOTrainer` does not override is verl's.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils import tensordict_utils as tu

from ...base.errors import TokenPOError, Unsupported, present
from ...base.files import write_whole
from ...base.user_code import FROM_FILE
from ...core.learner import Learner
from ...core.objective import Objective
from ...core.parts import walk
from ...core.ratio_check import RatioCheck
from ...models.request_temperature import extra_args
from ...runs.directory import describe_foreign
from . import steps, temperature
from .configure import Settings, configure
from .layout import Rows, credit_fields, dealt, fields, rollouts_of
from .loss import DRIFT, WorkerLoss
from .record import Record, marks
from .replenish import Refills
from .settings import steps_alone

NAME = "tokenpo"
TOLERANCE = 0.05  # nats, the largest mean |log-ratio| before the first update
FILE = "tokenpo.json"  # the learner, beside verl's checkpoint
REMEDY = (
    "give the actor's log-prob pass and its update the same precision and attention, or raise "
    "+algorithm.tokenpo.ratio_tolerance"
)


@register_trainer(NAME)
class TokenPOTrainer(PPOTrainerSync):
    """verl's sync trainer, for `trainer.v1.trainer_mode=tokenpo`."""

    def __init__(self, config: DictConfig) -> None:
        self.tokenpo: Settings = configure(config)  # changes verl's config before verl reads it
        print(f"tokenpo is active in verl's trainer.\n{self.tokenpo.objective}", flush=True)
        for note in self.tokenpo.notes:
            print(f"tokenpo: {note}", flush=True)
        self.learner = learner_of(self.tokenpo, config)
        self.tokenpo_rows: Rows | None = None
        self.tokenpo_refills = Refills.of(config)
        self.tokenpo_record: Record | None = None
        super().__init__(config)

    @property
    def objective(self) -> Objective:
        return self.learner.objective

    def on_init_end(self) -> None:
        self.send_loss()
        super().on_init_end()

    @property
    def temperature(self) -> float:
        return float(self.config.actor_rollout_ref.rollout.temperature)

    def send_loss(self, part: int = 0) -> None:
        """Sends every worker the loss of this pass."""
        for name in {type(one).__module__ for one in walk(self.objective)}:
            if name.startswith(FROM_FILE):  # a file of the user's, which no worker can import: its code travels along
                ray.cloudpickle.register_pickle_by_value(sys.modules[name])
        report = None if self.tokenpo.report is None else str(self.tokenpo.report)
        loss = WorkerLoss(self.objective, self.learner.length, self.temperature, part, report)
        self.actor_rollout_wg.set_loss_fn(loss)

    def _build_replay_buffer(self) -> Any:
        return self.tokenpo_refills.watch(super()._build_replay_buffer())

    def on_sample_begin(self) -> None:
        self.tokenpo_refills.begin()
        super().on_sample_begin()

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        allowed = self.tokenpo_refills.take(num_prompts)
        return super()._add_prompts_to_generate(allowed) if allowed else 0

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = super()._next_train_batch(num_prompts)
        temperature.use_loop(self.objective, batch)
        if numbers := extra_args(self.objective, self.learner.memory):
            tu.assign_non_tensor_data(batch, temperature.FIELD, json.dumps(numbers))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """Phase one on the whole step batch, in place of verl's estimators."""
        one_output_each(batch.keys)
        data, plan = steps.get(batch, fields(self.objective)), self._plan(len(batch))
        rollouts, where = rollouts_of(data, self.objective, self.temperature)
        step, self.tokenpo_rows = self.learner.begin(rollouts), where
        for part, numbers in self.learner.memory.items():
            metrics |= {f"tokenpo/{type(part).__name__}/{name}": float(x) for name, x in numbers.items()}
        out = credit_fields(self.objective, rollouts, step.credit, where, plan)
        record = self.tokenpo_record
        if record is not None and record.wants(self.global_steps):
            columns = steps.get(batch, ["prompts", "responses", "reward_model"])
            out.update(marks(step, where, self.global_steps, plan, record.most, columns, self.tokenizer))
        return steps.put(batch, out)

    def _plan(self, rows: int) -> list[list[int]]:
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        return dealt(rows, ranks, actor.ppo_mini_batch_size * rollout.n)

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        plan, passes = self._plan(len(batch)), len(self.objective.split())
        if steps_alone(self.objective):
            step, where = present(self.learner.step, "the step"), present(self.tokenpo_rows, "the rows of the step")
            steps.one_by_one(self, step, where, batch, metrics, plan)
        else:
            batch = super()._update_actor(batch, metrics)
        self.learner.updates += passes * self.config.actor_rollout_ref.actor.ppo_epochs * len(plan)
        self._check(metrics)
        if self.tokenpo_record is not None:
            self.tokenpo_record.gather()
        return batch

    def update_rows(self, batch: Any, metrics: dict) -> Any:
        """verl's own update."""
        return super()._update_actor(batch, metrics)

    def _check(self, metrics: dict) -> None:
        """Requires that our loss was called, on-policy before the first update, and gave a finite gradient."""
        drift = metrics.get(f"actor/{DRIFT}")
        if drift is None:
            raise Unsupported(
                f"verl's update did not call tokenpo's loss (its metrics hold no actor/{DRIFT}): something replaced "
                "it after the start, remove what calls set_loss_fn"
            )
        self.learner.compare(mean=drift)
        norm = metrics["actor/grad_norm"]  # the mean over updates: not finite if one of them is not
        if self.tokenpo.recipe.train.nonfinite == "stop" and not math.isfinite(norm):
            raise TokenPOError(
                f"step {self.global_steps}: the gradient norm is {norm} in verl, which skipped the update; the run "
                "can go on from its last checkpoint: find what made it, or set +algorithm.tokenpo.nonfinite=skip"
            )

    def _validate(self) -> dict[str, float]:
        metrics = super()._validate()
        # After step 0 verl puts it among the step's metrics; before, it goes to verl's own logger alone.
        if self.tokenpo_record is not None and not self.global_steps:
            self.tokenpo_record.log(0, metrics)
        return metrics

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        if self.tokenpo_record is not None:
            self.tokenpo_record.log(global_steps, metrics)

    def _save_checkpoint(self) -> None:
        # Before verl's own files: a checkpoint that verl calls complete has it.
        file = checkpoint(self.config, self.global_steps) / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(self.learner.state_dict(), indent=1) + "\n")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            resume(self.learner, checkpoint(self.config, self.global_steps, resumed=True) / FILE)
        self.tokenpo_record = _record(self.tokenpo, self.config, self.global_steps)


def learner_of(settings: Settings, config: DictConfig) -> Learner:
    """The learner of a run, with the seed of the actor's data loader."""
    return Learner(
        settings.objective,
        length=config.data.max_response_length,
        seed=config.actor_rollout_ref.actor.data_loader_seed,
        ratio=RatioCheck("verl", REMEDY, settings.recipe.train.ratio_tolerance or TOLERANCE, over="mean"),
    )


def one_output_each(keys: list[str]) -> None:
    """
    Raises:
        Unsupported: a session has several outputs; they share one reward, so none of them is a member of a group.
    """
    if several := [key for key in keys if not key.endswith("_0")]:
        raise Unsupported(
            f"verl's agent loop gave more than one output for a session ({several[0]}), and tokenpo compares one "
            "response a session: let the loop return one output"
        )


def checkpoint(config: DictConfig, step: int, *, resumed: bool = False) -> Path:
    """verl's directory of the checkpoint after this step; `resumed` for the one that the run starts from."""
    trainer = config.trainer
    if resumed and trainer.resume_mode == "resume_path":
        return Path(trainer.resume_from_path)
    return Path(trainer.default_local_dir) / f"global_step_{step}"


def resume(learner: Learner, file: Path) -> None:
    """Restores the learner from a checkpoint; an objective without memories resumes from any checkpoint.

    Raises:
        TokenPOError: the objective has memories, and the checkpoint is not of this objective.
    """
    try:
        learner.load_state_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:  # TokenPOError among them
        if learner.objective.memories:
            raise TokenPOError(
                f"{file} cannot be taken up, and {learner.objective.name} needs what it remembered: resume from a "
                "checkpoint of this method and its options that tokenpo wrote, or start anew with "
                f"trainer.resume_mode=disable ({error})"
            ) from error
        print(f"tokenpo: nothing is remembered, and {file} is not taken up: {error}", flush=True)


def _record(settings: Settings, config: DictConfig, step: int) -> Record | None:
    if settings.report is None:
        return None
    greedy, out = config.actor_rollout_ref.rollout.val_kwargs.temperature == 0, settings.recipe.output
    begun = Record.begin(settings.report, step, out.trace_every, out.trace_rollouts, greedy=greedy)
    summary = {
        "method": {"name": settings.objective.name},
        "train": {"steps": config.trainer.total_training_steps},
        "model": {"path": config.actor_rollout_ref.model.path},
        "verl": OmegaConf.to_container(config, resolve=True),
    }
    describe_foreign(begun.path, summary, str(settings.objective), ("verl", "ray"))
    return begun
