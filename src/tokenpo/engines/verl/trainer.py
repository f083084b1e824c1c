"""verl's V1 sync trainer with our objective: phase one in the driver, phase two in the workers.

Overridden: the constructor (settings), `on_init_end` (our loss), `_next_train_batch` (the adaptive temperature's
numbers), `_build_replay_buffer`, `on_sample_begin` and `_add_prompts_to_generate` (a cap on refills),
`_compute_advantage` (phase one), `_update_actor` (optimiser steps that need a look at the whole), `_validate` and
`_compute_metrics` (the report), `_save_checkpoint` and `_load_checkpoint` (memories, the report's files). Everything
else is verl's.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils import tensordict_utils as tu

from ...base.errors import TokenPOError, Unsupported
from ...base.user_code import FROM_FILE
from ...core.objective import Objective
from ...core.parts import walk
from . import credit, memory, queue, steps, temperature, trace
from .layout import signal_fields
from .loss import DRIFT, objective_loss
from .refill import Refills
from .settings import Settings, configure

NAME = "tokenpo"


@register_trainer(NAME)
class TokenPOTrainer(PPOTrainerSync):
    """verl's sync trainer, for `trainer.v1.trainer_mode=tokenpo`."""

    def __init__(self, config: DictConfig) -> None:
        self.tokenpo: Settings = configure(config)  # sets verl's config, so it comes first
        _announce(self.tokenpo)
        self.tokenpo_step: credit.Step | None = None
        self.tokenpo_state = self.objective.start()
        self.tokenpo_refills = Refills.of(config)
        self.tokenpo_checked = False
        self.tokenpo_record: trace.Record | None = None
        self.tokenpo_updates = 0  # keys what an objective draws
        super().__init__(config)

    @property
    def objective(self) -> Objective:
        return self.tokenpo.objective

    def on_init_end(self) -> None:
        self.set_objective(self.objective)
        super().on_init_end()

    def set_objective(self, part: Objective) -> None:
        """Every worker's loss from now on; `part` is the objective or one of its passes."""
        data, rollout = self.config.data, self.config.actor_rollout_ref.rollout
        _take_along(part)
        loss = partial(
            objective_loss,
            objective=part,
            length=data.max_response_length,
            temperature=float(rollout.temperature),
            fields=signal_fields(self.objective),
            report=self.tokenpo.report,
        )
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
        numbers = temperature.sampler_numbers(self.objective, self.tokenpo_state)
        if numbers is not None:
            tu.assign_non_tensor_data(batch, temperature.FIELD, numbers)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """Phase one on the whole step batch; replaces verl's estimators."""
        queue.one_output_each(batch.keys)
        data = queue.get(batch, credit.fields(self.objective))
        heat = float(self.config.actor_rollout_ref.rollout.temperature)
        step = credit.Step.of(self.objective, data, heat, self.tokenpo_state)
        self.tokenpo_state = self.objective.after(self.tokenpo_state, step.rollouts)
        self.tokenpo_step = step
        metrics.update(memory.metrics(self.tokenpo_state))
        plan = self._plan(len(batch))
        fields = step.outputs()
        fields.update(step.sequences(plan))
        if self.tokenpo_record is not None and self.tokenpo_record.wants(self.global_steps):
            columns = queue.get(batch, ["prompts", "responses", "reward_model"])
            most = self.tokenpo.trace_rollouts
            facts = trace.traced_rows(step, self.global_steps, plan[-1], most, columns, self.tokenizer)
            fields.update(trace.marks(range(len(batch)), facts))
        return queue.put(batch, fields)

    def _plan(self, rows: int) -> list[list[int]]:
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        return credit.minibatches(rows, ranks, actor.ppo_mini_batch_size * rollout.n)

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        if self.objective.scope == "row" and len(self.objective.split()) == 1:
            batch = super()._update_actor(batch, metrics)
        else:
            steps.one_by_one(self, batch, metrics, self._plan(len(batch)))
        self._check(metrics)
        if self.tokenpo_record is not None:
            self.tokenpo_record.gather()
        return batch

    def _validate(self) -> dict[str, float]:
        metrics = super()._validate()
        # Before the first step verl gives it to its own logger alone; later it is among the step's metrics.
        if self.tokenpo_record is not None and not self.global_steps:
            self.tokenpo_record.log(0, metrics)
        return metrics

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        if self.tokenpo_record is not None:
            self.tokenpo_record.log(global_steps, metrics)

    def update_rows(self, batch: Any, metrics: dict) -> Any:
        """verl's own update, of one optimiser step's rows."""
        return super()._update_actor(batch, metrics)

    def _check(self, metrics: dict) -> None:
        """Our loss was the one called, and before the first update the policy was the one that sampled."""
        drift = metrics.get(f"actor/{DRIFT}")
        if drift is None:
            raise Unsupported(
                f"verl's update did not call tokenpo's loss (its metrics hold no actor/{DRIFT}): something replaced "
                "it after the start, remove what calls set_loss_fn"
            )
        if not self.tokenpo_checked and not drift <= self.tokenpo.tolerance:
            raise Unsupported(
                f"{self.objective.name}: before the first update the ratio of new to old policy is not 1 in verl: the "
                f"mean |log-prob - old log-prob| is {drift:.2g} nats, above {self.tokenpo.tolerance:g}: give the "
                "actor's log-prob pass and its update the same precision and attention, or raise "
                "+algorithm.tokenpo.ratio_tolerance"
            )
        self.tokenpo_checked = True
        norm = metrics["actor/grad_norm"]  # a mean over the updates, so one that is not finite shows
        if self.tokenpo.nonfinite == "stop" and not math.isfinite(norm):
            raise TokenPOError(
                f"step {self.global_steps}: the gradient norm is {norm} in verl, which skipped the update; the run "
                "can go on from its last checkpoint: find what made it, or set +algorithm.tokenpo.nonfinite=skip"
            )

    def _save_checkpoint(self) -> None:
        path = memory.folder(self.config, self.global_steps)
        memory.save(path, self.objective, self.tokenpo_state, self.tokenpo_updates)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            path = memory.folder(self.config, self.global_steps, resumed=True)
            self.tokenpo_state, self.tokenpo_updates = memory.load(path, self.objective)
        self.tokenpo_record = _record(self.tokenpo, self.config, self.global_steps)


def _record(settings: Settings, config: DictConfig, step: int) -> trace.Record | None:
    if settings.report is None:
        return None
    greedy = config.actor_rollout_ref.rollout.val_kwargs.temperature == 0
    record = trace.Record.begin(
        Path(settings.report), step, settings.trace_every, settings.trace_rollouts, greedy=greedy
    )
    verl_config: Any = OmegaConf.to_container(config, resolve=True)
    summary = {"method": {"name": settings.objective.name}, "train": {"steps": config.trainer.total_training_steps}}
    record.describe(
        {**summary, "model": {"path": config.actor_rollout_ref.model.path}, "verl": verl_config},
        str(settings.objective),
    )
    return record


def _announce(settings: Settings) -> None:
    print(f"tokenpo is active in verl's trainer.\n{settings.objective}", flush=True)
    for note in settings.notes:
        print(f"tokenpo: {note}", flush=True)


def _take_along(objective: Objective) -> None:
    """Parts that a file of the user's defines travel with their code: workers have no module of that name."""
    for name in {type(part).__module__ for part in walk(objective)}:
        if name.startswith(FROM_FILE):
            ray.cloudpickle.register_pickle_by_value(sys.modules[name])
