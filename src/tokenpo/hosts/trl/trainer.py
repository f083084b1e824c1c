"""`TokenPOTrainer`: TRL's GRPO trainer with another objective.

Three methods are overridden: `_calculate_rewards` (TRL does not return the raw rewards),
`_generate_and_score_completions` (credit: the last call with whole groups in order) and `_compute_loss`.
"""

import copy
import dataclasses
import inspect
import logging
import time
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
import trl  # pyright: ignore
from torch import Tensor

from ...base.errors import TokenPOError, present, refuse
from ...core.learner import Learner, Step
from ...core.negotiation import schedule_notes
from ...core.objective import Objective
from ...core.on_policy import HALF_TOLERANCE, RatioCheck
from ...core.types import Rollouts
from ...core.update import Update
from ...methods import METHODS, paper
from ...records import Tracer
from .checks import CHECKS, apart, unmoved
from .config import DEFAULTS, TokenPOConfig
from .forward import ROW, Forward, by_policy, in_head, measured, place, replaced, require_finite
from .objective import chosen, with_reference
from .records import TokenPOCallback
from .rollout_batch import Refill, RolloutBatch, carried, local_rows, over_ranks, pictures
from .settings import touched
from .teacher import Teacher
from .temperature import of_draw, with_vllm
from .updates import Cycle, InFlightBatch, policy_of

logger = logging.getLogger(__name__)
REMEDY = (
    "where it is dropout, set disable_dropout=True, or lora_dropout=0; where it is precision, train in float32 "
    "(bf16=False), or set a larger ratio_tolerance"
)


class TokenPOTrainer(trl.GRPOTrainer):
    """TRL's `GRPOTrainer` with another objective.

    Args:
        model, reward_funcs, args, ...: as TRL's; `args` is a `TokenPOConfig`.
        method: the name of a method, or an `Objective`; None takes `args.method`.
        teacher_model: for a method that reads one: a directory, a hub id, or a model, with the policy's tokenizer.

    Attributes:
        policy_objective: the objective that trains.
        learner: its memory, updates and statistics.
        current: the rollout batch that is trained on; None before the first.

    Raises:
        Unsupported: with everything about method, settings, data and model that TRL cannot do.
        TokenPOError: two methods, or an option of the wrong kind.
    """

    _tag_names: ClassVar[list[str]] = ["trl", "tokenpo"]
    _name = "TokenPO"

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: TokenPOConfig | None = None,
        *rest: Any,
        method: str | Objective | None = None,
        teacher_model: Any = None,
        **named: Any,
    ) -> None:
        signature = inspect.signature(trl.GRPOTrainer.__init__)
        bound = signature.bind(self, model, reward_funcs, args, *rest, **named).arguments
        args = _settings(args, model, method)
        self.policy_objective = chosen(args, method, {**bound, "teacher_model": teacher_model})
        args = cast(TokenPOConfig, with_reference(args, self.policy_objective))
        self.cycle = Cycle.of(args, self.policy_objective)
        with with_vllm(self, self.policy_objective, args):
            super().__init__(model, reward_funcs, args, *rest, **named)
        refuse(fault for check in CHECKS for fault in check(self))
        for policy in (self.model, self.ref_model):
            if policy is not None:
                place(self.accelerator.unwrap_model(policy))
        self.forward_passes = Forward.of(self, self.policy_objective)
        self.teacher = Teacher.of(self, teacher_model)
        self.learner = self.fresh_learner()
        self.current: InFlightBatch | None = None
        self.refill = Refill(self.train_dataset, args.seed, args.max_extra_batches)
        self._rewarded: tuple[Tensor, list[Any]] | None = None
        self._looked: Step | None = None
        self._name = f"TokenPO ({self.policy_objective.name})"
        if self.policy_objective.name in METHODS:
            source = paper(self.policy_objective.name)
            self._paper = {"title": source.title, "id": source.arxiv if source.arxiv[0].isdigit() else None}
        self.bookkeeping = TokenPOCallback(self, Path(args.output_dir) / "tokenpo")
        self.add_callback(self.bookkeeping)
        self._warn()

    def _warn(self) -> None:
        """Warns of settings that are allowed but unlikely to be meant."""
        more_updates = "set num_iterations or steps_per_generation higher"
        one_update = "set num_iterations=1 and steps_per_generation to gradient_accumulation_steps"
        notes = schedule_notes(self.policy_objective, self.cycle.updates, more_updates, one_update)
        for note in (*notes, *unmoved(self)):
            logger.warning(note)

    def fresh_learner(self) -> Learner:
        tolerance = HALF_TOLERANCE if self.args.ratio_tolerance is None else self.args.ratio_tolerance
        ratio = RatioCheck("TRL", REMEDY, tolerance, "mean")
        length = self.max_completion_length
        kl = self.args.kl_hold()
        return Learner(self.policy_objective, length=length, seed=self.args.seed, ratio=ratio, kl=kl)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(
            inputs=inputs, prompts=prompts, completions=completions, completion_ids_list=completion_ids_list
        )
        self._rewarded = rewards, prompts
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        started, train = time.perf_counter(), self.model.training
        batch = self.drawn(inputs, self.num_generations if train else self.num_generations_eval)
        if train and self.args.dynamic_sampling:
            batch = self.refill.filled(self, batch)
        step = self._credited(batch, train=train)
        if step is not None:
            # TRL's table of completions shows these in place of its own advantages.
            mask, shown = step.rollouts.mask, self._logs["advantages"]
            mean = step.credit.advantage.where(mask, 0.0).sum(1) / mask.sum(1).clamp(min=1)
            for _ in range(min(len(mean), len(shown))):
                shown.pop()
            shown.extend(mean.tolist())
        self._looked = None if train else step
        if train:
            traced = self.bookkeeping.wants_trace() and self.accelerator.is_main_process
            self.current = InFlightBatch(self, batch, step, Tracer(self.args.trace_rollouts if traced else 0))
            self.bookkeeping.begin(time.perf_counter() - started)
        device = batch.output["completion_ids"].device
        return batch.output | {ROW: torch.arange(batch.mine.start, batch.mine.stop, device=device)}

    def drawn(self, inputs: Any, size: int) -> RolloutBatch:
        """TRL's own draw and rewards for these inputs of this rank, over all ranks; `size` rows are a group."""
        temperature, self._rewarded = of_draw(self), None
        # Truncated responses must stay until they are compared with their group; `_credited` masks them afterwards.
        with temperature.sampling(), replaced(self, "mask_truncated_completions", False):
            output = super()._generate_and_score_completions(inputs=inputs)
        output |= temperature.kept(output)
        count, rank = len(output["completion_ids"]), self.accelerator.process_index
        rewards, prompts = present(self._rewarded, "the rewards of a draw")
        unscored = rewards[rank * count : (rank + 1) * count].isnan().all(1)
        local = local_rows(self, self.forward_passes, output, unscored)
        local["sampled_at"] = temperature.of(local["old_entropy"])
        temperature.check(output, local)
        if self.model.training and self.current is None and not self.state.global_step:
            for note in apart(self, local):
                logger.warning(note)
        seen: list[dict[str, Any]] = []
        if self.args.dynamic_sampling and self.model.training:
            seen, local = pictures(output), local | carried(output)
        rows = over_ranks(self, local, rewards)
        return RolloutBatch(output, prompts, rows, rows, size, len(rows["mask"]) // size, rank, seen)

    def _credited(self, batch: RolloutBatch, *, train: bool) -> Step | None:
        """The learner's step; evaluations leave its memory alone."""
        learner, rollouts, step = self.learner, batch.rollouts, None
        if train:
            # TRL counts updates without a response too, and the learner never sees those.
            learner.updates = self.state.global_step
        if rollouts is not None and train:
            step = learner.begin(self._dated(rollouts), batch.everything)
        elif rollouts is not None:
            step = learner.look(rollouts)
        elif train and batch.everything is not None:
            learner.remember(batch.everything)
        if step is not None and self.args.method is None:
            # As in TRL: what nobody scored is in no baseline, and counts in the denominators without an advantage.
            advantage = step.credit.advantage.where(step.rollouts.mask, 0.0)
            step.credit = dataclasses.replace(step.credit, advantage=advantage)
            step.rollouts = self._dated(batch.with_unscored) if train else batch.with_unscored
        if step is None or not self.args.mask_truncated_completions:
            return step
        # As in TRL: a truncated response counts in its group's baseline, but none of its tokens is trained on.
        mask = step.rollouts.mask & ~batch.rows["truncated"][:, None]
        if not mask.any():
            return None
        step.rollouts = dataclasses.replace(step.rollouts, mask=mask)
        return step

    def _dated(self, rollouts: Rollouts) -> Rollouts:
        """With their version; the one that a rollout_func samples with is unknown."""
        return rollouts if self.rollout_func else self.learner.dated(rollouts, self.cycle.updates)

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        current = self.current if self.model.training else None
        update = self._evaluated(model, inputs) if current is None else current.update_of(model, inputs)
        score = in_head if self.forward_passes.in_head else by_policy
        scored = score(self.forward_passes, model, inputs, update)
        for name, value in measured(self.accelerator, scored, update).items():
            self._metrics["eval" if current is None else "train"][name].append(value)
        if current is not None and update is not None and scored.batch is not None and scored.loss is not None:
            require_finite(update, inputs[ROW], scored)
            current.watch(inputs[ROW], scored.batch, scored.loss)
        # DDP averages gradients over ranks, and their losses add up.
        value = scored.value * self.accelerator.num_processes
        if scored.aux is None:
            return value
        mode, parts = ("eval", 1) if current is None else ("train", self.current_gradient_accumulation_steps)
        self._metrics[mode]["aux_loss"].append(float(self.accelerator.gather(scored.aux.detach()).mean()))
        return value + self.router_aux_loss_coef * scored.aux / parts  # TRL's: a mean over micro-batches and ranks

    def _evaluated(self, model: Any, inputs: Any) -> Update | None:
        """An evaluation batch as an update of its own, on the whole objective."""
        step = self._looked
        if step is None:
            return None
        rows = torch.arange(len(step.rollouts), device=inputs[ROW].device)
        update = step.update(rows)
        update.objective = step.objective
        if update.observes:
            update.observe(policy_of(self, update, model, [inputs], rows))
        return update


GRPOConfig, GRPOTrainer = TokenPOConfig, TokenPOTrainer  # for `tokenpo.trl`


def _settings(args: Any, model: Any, method: str | Objective | None) -> TokenPOConfig:
    chosen_name = method.name if isinstance(method, Objective) else method
    if args is None:
        name = model if isinstance(model, str) else model.config._name_or_path
        args = TokenPOConfig(f"{name.rstrip('/').split('/')[-1]}-{chosen_name or 'GRPO'}")  # TRL's is MODEL-GRPO
    if not isinstance(args, TokenPOConfig):
        given = "TRL's GRPOConfig" if isinstance(args, trl.GRPOConfig) else f"a {type(args).__name__}"
        raise TokenPOError(
            f"TokenPOTrainer(args=...) is {given}, expected a TokenPOConfig, which is tokenpo.trl.GRPOConfig: it takes "
            "the same settings"
        )
    if args.method is None and method is not None:  # the method replaces TRL's loss
        refuse(touched(args, DEFAULTS))
        args = copy.copy(args)
        args.method = chosen_name
    return args
