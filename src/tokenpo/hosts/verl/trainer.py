"""verl's V1 sync trainer with our objective: phase one in the driver, phase two in the workers.

For objectives that observe the policy over a whole step, or make several passes, the driver calls steps one by one.
"""

# pyright: reportMissingImports=false
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils import hf_tokenizer
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics
from verl.workers.utils.padding import response_from_nested

from ...base.errors import TokenPOError, present, refuse
from ...base.files import write_whole
from ...base.user_code import FROM_FILE
from ...core.learner import Learner
from ...core.objective import Objective
from ...core.on_policy import RatioCheck
from ...core.parts import walk
from ...core.request_temperature import extra_args
from ...records.metrics import credit_metrics
from ...records.trace import require_same_tokens
from . import temperature
from .configure import Settings, configure
from .layout import Rows, credit_fields, dealt, fields, in_order, rollouts_of, session, taught
from .loss import DRIFT, WorkerLoss
from .record import ZERO, Record
from .settings import steps_alone

NAME = "tokenpo"
TOLERANCE = 0.05  # nats, the largest mean |log-ratio| before the first update
FILE = "tokenpo.json"  # the learner, next to verl's checkpoint
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
        self.tokenpo_record: Record | None = None
        super().__init__(config)

    @property
    def objective(self) -> Objective:
        return self.learner.objective

    def on_init_end(self) -> None:
        if "teacher_logprob" in self.objective.needs:
            for teacher in self.config.distillation.teacher_models.values():
                if path := teacher.model_path:  # empty in the entry for a single teacher if there are several
                    place = "distillation.teacher_models"
                    require_same_tokens(place, path, hf_tokenizer(path), self.tokenizer)
        self.send_loss()
        super().on_init_end()

    def send_loss(self, part: int = 0) -> None:
        for name in {type(one).__module__ for one in walk(self.objective)}:
            if name.startswith(FROM_FILE):  # a user's file, which workers cannot import: send its code
                ray.cloudpickle.register_pickle_by_value(sys.modules[name])
        heat = float(self.config.actor_rollout_ref.rollout.temperature)
        self.actor_rollout_wg.set_loss_fn(WorkerLoss(self.objective, self.learner.length, heat, part))

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        batch = super()._next_train_batch(num_prompts)
        temperature.use_loop(self.objective, batch)
        if numbers := extra_args(self.objective, self.learner.memory):
            tu.assign_non_tensor_data(batch, temperature.FIELD, json.dumps(numbers))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        """Phase one on the whole step batch, in place of verl's estimators."""
        sessions = None
        if len({*map(session, batch.keys)}) < len(batch.keys):
            refuse(several_outputs(self.objective))
            batch.reorder(in_order(batch.keys))
            sessions = [*map(session, batch.keys)]
        if "teacher_logprob" in self.objective.needs:
            put(batch, taught(get(batch, ["teacher_logprobs", "response_mask"])))
        data, plan = get(batch, fields(self.objective)), self._plan(len(batch))
        heat = float(self.config.actor_rollout_ref.rollout.temperature)
        rollouts, where = rollouts_of(data, self.objective, heat, sessions)
        step, self.tokenpo_rows = self.learner.begin(rollouts), where
        for part, numbers in self.learner.memory.items():
            metrics |= {f"tokenpo/{type(part).__name__}/{name}": float(x) for name, x in numbers.items()}
        metrics[ZERO] = credit_metrics(rollouts, step.credit)["zero_advantage_groups"]
        if rollouts.teacher_logprob is not None:
            metrics["teacher_kl"] = step.metrics()["teacher_kl"]
        return put(batch, credit_fields(self.objective, rollouts, step.credit, where, plan))

    def _plan(self, rows: int) -> list[list[int]]:
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        return dealt(rows, ranks, actor.ppo_mini_batch_size * rollout.n)

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        plan, passes = self._plan(len(batch)), len(self.objective.split())
        minibatches: list[list[int]] = plan * self.config.actor_rollout_ref.actor.ppo_epochs
        if not steps_alone(self.objective):
            batch = super()._update_actor(batch, metrics)
        else:
            of_steps: dict[str, list[float]] = {}
            for number, (part, rows) in enumerate(itertools.product(range(passes), minibatches)):
                if passes > 1 and number % len(minibatches) == 0:
                    self.send_loss(part)
                minibatch, of_step = self._observed(batch, rows, part, number), dict[str, Any]()
                with _single_step(self.config.actor_rollout_ref, len(rows)):
                    super()._update_actor(minibatch, of_step)
                for name, value in of_step.items():
                    of_steps.setdefault(name, []).append(float(value))
            metrics.update(reduce_metrics(of_steps))
        self.learner.updates += passes * len(minibatches)
        self._check(metrics)
        return batch

    def _observed(self, batch: Any, rows: list[int], part: int, number: int) -> Any:
        """These rows of verl's batch, with the signals of a whole step if the objective has them."""
        step, where = present(self.learner.step, "the step"), present(self.tokenpo_rows, "the rows of the step")
        minibatch, update = some(batch, rows), step.update(where.numbers(rows), part, step.first + number)
        if update.observes:
            selected, known = where.some(rows), update.credit.signals
            update.observe(selected.policy(self._current(minibatch, first=not number), update.rollouts.mask.shape[1]))
            put(minibatch, selected.signals(step.objective, update.credit, known))
        return minibatch

    def _current(self, minibatch: Any, *, first: bool) -> TensorDict:
        """log_probs and entropy of the current policy; before the `first` update it is the old policy."""
        old, size = get(minibatch, ["old_log_probs", "entropy"]), len(minibatch)
        if first:
            return TensorDict({"log_probs": old["old_log_probs"], "entropy": old["entropy"]}, [size])
        actor, view = self.config.actor_rollout_ref.actor, some(minibatch, range(size))
        heat = self.config.actor_rollout_ref.rollout.temperature
        view.extra_info |= {"calculate_entropy": True, "compute_loss": False, "temperature": heat}
        if not actor.use_dynamic_bsz:  # the rollout batch's size may not divide an optimiser step
            view.extra_info["micro_batch_size_per_gpu"] = actor.ppo_micro_batch_size_per_gpu
        self.actor_rollout_wg.compute_log_prob(view)  # overwrites the field of the old entropies, restored below
        data = get(minibatch, ["log_probs", "entropy", "response_mask"])
        put(minibatch, TensorDict({"entropy": old["entropy"]}, [size]))
        mask = data["response_mask"]
        return TensorDict({name: response_from_nested(data[name], mask) for name in ("log_probs", "entropy")}, [size])

    def _check(self, metrics: dict) -> None:
        """Raises if the first update was off-policy, or a gradient was not finite."""
        self.learner.compare(mean=metrics[f"actor/{DRIFT}"])
        norm = metrics["actor/grad_norm"]  # mean over updates: not finite if one is not
        if self.tokenpo.keys.nonfinite == "stop" and not math.isfinite(norm):
            raise TokenPOError(
                f"step {self.global_steps}: the gradient norm is {norm} in verl, which skipped the update; the run "
                "can go on from its last checkpoint: find what made it, or set +algorithm.tokenpo.nonfinite=skip"
            )

    def _validate(self) -> dict[str, float]:
        metrics = super()._validate()
        # From step 1 on verl adds it to the step's metrics; for step 0 it only reaches verl's own logger.
        if self.tokenpo_record is not None and not self.global_steps:
            self.tokenpo_record.log(0, metrics)
        return metrics

    def _compute_metrics(self, batch: Any, metrics: dict, timing_raw: dict, global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        if self.tokenpo_record is not None:
            self.tokenpo_record.log(global_steps, metrics)
            if global_steps >= self.total_training_steps:
                self.tokenpo_record.warn()

    def _save_checkpoint(self) -> None:
        # Written before verl's own files, so that every checkpoint that verl calls complete has it.
        file = checkpoint(self.config, self.global_steps) / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(self.learner.state_dict(), indent=1) + "\n")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            resume(self.learner, checkpoint(self.config, self.global_steps, resumed=True) / FILE)
        if (path := self.tokenpo.keys.report) is None:
            return
        config, keys, objective = self.config, self.tokenpo.keys, self.objective
        summary = {
            "method": {"name": objective.name, **keys.options},
            # verl's own setting may be null: its epochs then decide.
            "train": {"steps": self.total_training_steps},
            "model": {"path": config.actor_rollout_ref.model.path},
            "verl": OmegaConf.to_container(config, resolve=True),
        }
        greedy = config.actor_rollout_ref.rollout.val_kwargs.temperature == 0
        self.tokenpo_record = Record(Path(path), self.global_steps, summary, str(objective), greedy=greedy)


def get(batch: Any, names: Sequence[str]) -> TensorDict:
    """Fields of every row of verl's batch, as far as they are filled."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))


def put(batch: Any, new: TensorDict) -> Any:
    """Writes fields of every row; returns the updated batch of verl."""
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=new)


def some(batch: Any, rows: Sequence[int]) -> Any:
    """Some rows of verl's batch, in this order."""
    keys, tags = ([of_rows[row] for row in rows] for of_rows in (batch.keys, batch.tags))
    return type(batch)(keys=keys, tags=tags, partition_id=batch.partition_id, extra_info=dict(batch.extra_info))


@contextmanager
def _single_step(config: Any, rows: int) -> Iterator[None]:
    """Context manager: verl's update makes one optimiser step of all its rows."""
    actor = config.actor
    before = actor.ppo_epochs, actor.ppo_mini_batch_size
    actor.ppo_epochs, actor.ppo_mini_batch_size = 1, rows // config.rollout.n
    try:
        yield
    finally:
        actor.ppo_epochs, actor.ppo_mini_batch_size = before


def learner_of(settings: Settings, config: DictConfig) -> Learner:
    return Learner(
        settings.objective,
        length=config.data.max_response_length,
        seed=config.actor_rollout_ref.actor.data_loader_seed,
        ratio=RatioCheck("verl", REMEDY, settings.keys.ratio_tolerance or TOLERANCE, over="mean"),
    )


def several_outputs(objective: Objective) -> Iterator[str]:
    """Yields what the objective lacks where an agent loop returns several outputs for a session: one trajectory."""
    obstacles = {
        "reads whole responses in its loss": bool(objective.of_response),
        "looks at whole updates, or makes several passes": steps_alone(objective),
        **{f"needs {name}": name in objective.needs for name in ("teacher_logprob", "token_reward")},
    }
    for obstacle in (words for words, applies in obstacles.items() if applies):
        yield (
            f"{objective.name} {obstacle}, and verl's agent loop gave several outputs for a session, which verl's "
            "micro-batches and rewards hold apart: let the loop return one output, or choose a method such as dapo"
        )


def checkpoint(config: DictConfig, step: int, *, resumed: bool = False) -> Path:
    """verl's checkpoint directory of this step; `resumed`: the one that the run starts from."""
    trainer = config.trainer
    if resumed and trainer.resume_mode == "resume_path":
        return Path(trainer.resume_from_path)
    return Path(trainer.default_local_dir) / f"global_step_{step}"


def resume(learner: Learner, file: Path) -> None:
    """Restores the learner; an objective without memories also resumes from another's checkpoint."""
    try:
        learner.load_state_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:  # TokenPOError among them
        if learner.objective.memories:
            raise
        print(f"tokenpo: nothing is remembered, and {file} is not taken up: {error}", flush=True)
