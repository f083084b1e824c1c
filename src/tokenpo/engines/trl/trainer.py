"""`TokenPOTrainer`: TRL's GRPO trainer with an objective of ours.

Four methods are overridden, each around TRL's own or in its place: `_calculate_rewards` (TRL keeps the raw rewards to
itself), `_generate_and_score_completions` (phase one, the last moment with whole groups in order), `_prepare_inputs`
(the order of the rows, where groups are to stay whole) and `_compute_loss` (phase two). Everything else is TRL's.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import time
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset  # pyright: ignore[reportMissingImports]
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore

from ...base.errors import TokenPOError, Unsupported
from ...core.negotiation import schedule_notes
from ...core.objective import Objective
from ...core.seeds import keyed_generator
from ...core.types import Batch, Credit, Rollouts
from ...methods import METHODS, paper
from ...runs.tally import Tally, Tracer
from ..embedded.step import HALF_TOLERANCE
from . import contract
from .callback import TokenPOCallback
from .chosen import chosen, with_reference
from .config import TokenPOConfig
from .cycle import Cycle
from .forward import Forward
from .learned import by_policy, in_head, require_finite
from .metrics import measured
from .order import by_groups, require_whole_groups
from .phase_one import Drawn, Scored, facts, over_ranks
from .phase_two import RolloutBatch, Step, evaluated, rows_of, step_of
from .refill import Draw, Refill, carried
from .served import require_server, with_processor
from .temperature import of_draw

logger = logging.getLogger(__name__)


class TokenPOTrainer(GRPOTrainer):
    """TRL's `GRPOTrainer`, with its constructor, and `method`.

    Args:
        model, reward_funcs, args, ...: as TRL's; `args` is a `TokenPOConfig`.
        method: the name of a method, or an `Objective`; None takes `args.method`.

    Attributes:
        policy_objective: the objective that trains.
        memory: what the objective's memories hold.

    Raises:
        Unsupported: TRL cannot honour what the method or the settings ask for.
        TokenPOError: a method or setting that does not fit.
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
        **named: Any,
    ) -> None:
        bound = inspect.signature(GRPOTrainer.__init__).bind(self, model, reward_funcs, args, *rest, **named).arguments
        args = _settings(args, model, method)
        own = any(bound.get(name) for name in ("rollout_func", "tools", "environment_factory"))
        self.policy_objective = chosen(args, method, own_rollouts=own, reported=bool(bound.get("rollout_func")))
        args = with_reference(args, self.policy_objective)
        if args.dynamic_sampling and (own or not isinstance(bound.get("train_dataset"), Dataset)):
            raise Unsupported(
                "dynamic_sampling draws further prompts from the train_dataset of TRL's trainer: give a "
                "datasets.Dataset, and no rollout_func, tools or environment_factory, or leave it False"
            )
        self.cycle = Cycle.of(
            args.gradient_accumulation_steps, args.steps_per_generation, args.num_iterations, self.policy_objective
        )
        if args.minibatch_by == "groups":
            require_whole_groups(self.cycle, args.per_device_train_batch_size, args.num_generations)
        _require_reference(self.policy_objective, model, bound.get("peft_config"))
        with with_processor(self.policy_objective, args):
            super().__init__(model, reward_funcs, args, *rest, **named)
        contract.check_instance(self)
        require_server(self, self.policy_objective)
        if self.aux_loss_enabled:
            raise Unsupported(
                f"{self.policy_objective.name} replaces TRL's loss, and with it the auxiliary loss of a mixture of "
                "experts: set router_aux_loss_coef=0.0"
            )
        self.forward_passes = Forward.of(self, self.policy_objective)
        self.memory = self.policy_objective.start()
        self.signal_keys: list[Any] = []
        self.current: RolloutBatch | None = None
        self.refill = Refill(self.train_dataset, args.seed, args.max_extra_batches)
        self._scored: Scored | None = None
        self._compared = False
        self._name = f"TokenPO ({self.policy_objective.name})"
        self._paper = _citation(self.policy_objective.name)
        self.bookkeeping = TokenPOCallback(self, Path(args.output_dir) / "tokenpo")
        self.add_callback(self.bookkeeping)
        more_updates = "set num_iterations or steps_per_generation higher"
        one_update = "set num_iterations=1 and steps_per_generation to gradient_accumulation_steps"
        for note in schedule_notes(self.policy_objective, self.cycle.updates, more_updates, one_update):
            logger.warning(note)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(
            inputs=inputs, prompts=prompts, completions=completions, completion_ids_list=completion_ids_list
        )
        self._scored = Scored(rewards, prompts, completion_ids_list)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        started, train = time.perf_counter(), self.model.training
        size = self.num_generations if train else self.num_generations_eval
        draw = self._draw(inputs, size)
        if train and self.args.dynamic_sampling:
            output, drawn = self.refill.filled(self, draw, size)
        else:
            output, drawn = draw.output, draw.alone(self.accelerator.process_index, size)
        # What samples of an evaluation say is not remembered: it is no part of the training.
        if drawn.rollouts is not None:
            credit = self.policy_objective.prepare(drawn.rollouts, self.memory)
            self.signal_keys = list(credit.signals)
            self._show_advantages(drawn.rollouts, credit)
            drawn = dataclasses.replace(drawn, credit=credit)
        if train:
            self._begin(drawn, time.perf_counter() - started)
        return output | drawn.travelling(output["completion_ids"].shape[1], output["completion_ids"])

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        buffer = self._buffered_inputs
        if self.args.minibatch_by == "rows" or not self.model.training or buffer is before:
            return inputs
        # A new rollout batch, which TRL has shuffled row by row.
        draws = keyed_generator(self.args.seed, "minibatches", self.state.global_step)
        buffer[:] = by_groups(buffer, self.num_generations, draws)
        return buffer[self._step % len(buffer)]

    def _draw(self, inputs: Any, size: int) -> Draw:
        """TRL's own draw and rewards for these rows of this rank, and what is known of them over all ranks."""
        temperature = of_draw(self)
        with temperature.sampling():
            output = super()._generate_and_score_completions(inputs=inputs)
        scored = self._scored
        if scored is None or len(scored.prompts) != len(output["completion_ids"]):
            raise contract.moved("GRPOTrainer did not score all rows of a rollout batch in one call")
        local = facts(self, self.forward_passes, output, scored, temperature.tokens(output))
        temperature.check(local)
        if self.args.dynamic_sampling and self.model.training:
            local |= carried(output)
        return Draw(output, over_ranks(self, local, scored, size), scored.prompts)

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        train, current = self.model.training, self.current
        if train:
            assert current is not None  # TRL evaluates no loss before it has drawn
            step = step_of(self, self.cycle, current, model, inputs)
        else:
            step = evaluated(self, self.policy_objective, model, inputs)
        score = in_head if train and self.forward_passes.in_head else by_policy
        scored = score(self.forward_passes, model, inputs, step, self.signal_keys)
        batch, loss = scored.batch, scored.loss
        for name, value in measured(self.accelerator, batch, loss, scored.entropy).items():
            self._metrics["train" if train else "eval"][name].append(value)
        if train and current is not None and batch is not None and loss is not None:
            require_finite(step, batch, loss)
            if not self._compared:
                self._compared = True
                _compare(self.policy_objective, batch)
            self._keep(current, step, inputs, batch, loss)
        # Gradients are averaged over ranks, and losses of ranks add up.
        return scored.value * self.accelerator.num_processes

    def _begin(self, drawn: Drawn, seconds: float) -> None:
        """A new rollout batch: the memories move on, once a batch, after its credit, by all that was drawn."""
        if drawn.everything is not None:
            self.memory = self.policy_objective.after(self.memory, drawn.everything)
        traced = self.bookkeeping.wants_trace() and self.accelerator.is_main_process
        self.current = RolloutBatch(drawn, Tally(), Tracer(self.args.trace_rollouts if traced else 0))
        self.bookkeeping.begin(seconds)

    def _keep(self, current: RolloutBatch, step: Step, inputs: Any, batch: Any, loss: Any) -> None:
        current.tally.add(batch, loss)
        rollouts, credit = current.drawn.rollouts, current.drawn.credit
        if step.update is None or step.update < self.cycle.updates - 1 or rollouts is None or credit is None:
            return
        if step.micro == 0:
            parts = [self._buffered_inputs[chunk] for chunk in self.cycle.chunks_of(step.update)]
            current.tracer.choose(rows_of(parts).unique(), rollouts, credit)
        current.settle(self.accelerator.num_processes)
        current.tracer.watch(rows_of([inputs]), batch)
        current.traced = (rows_of([inputs]), batch, loss)

    def _show_advantages(self, rollouts: Rollouts, credit: Credit) -> None:
        """TRL's table of completions shows the mean advantage of a response that trains, not that of TRL's own loss."""
        mean = credit.advantage.where(rollouts.mask, 0.0).sum(1) / rollouts.mask.sum(1).clamp(min=1)
        shown = self._logs["advantages"]
        for _ in range(min(len(mean), len(shown))):
            shown.pop()
        shown.extend(mean.tolist())


def _compare(objective: Objective, batch: Batch) -> None:
    """Before the first update of a run the policy is the one that was scored: says so where two passes disagree."""
    apart = (batch.policy.logprob.detach() - batch.rollouts.old_logprob).abs()[batch.mask]
    if not apart.mean() <= HALF_TOLERANCE:
        logger.warning(
            f"{objective.name}: before the first update the ratio of new to old policy is not 1: two forward passes "
            f"over the same tokens differ by {float(apart.mean()):.2g} nats a token (mean); where it is dropout, set "
            "disable_dropout=True, or lora_dropout=0"
        )


def _settings(args: Any, model: Any, method: str | Objective | None) -> TokenPOConfig:
    if args is None:
        name = model if isinstance(model, str) else model.config._name_or_path
        chosen_name = method.name if isinstance(method, Objective) else method or "grpo"
        return TokenPOConfig(f"{name.rstrip('/').split('/')[-1]}-{chosen_name}")
    if not isinstance(args, TokenPOConfig):
        kind = "TRL's GRPOConfig" if isinstance(args, GRPOConfig) else f"a {type(args).__name__}"
        raise TokenPOError(f"TokenPOTrainer(args=...) is {kind}, expected a TokenPOConfig: it takes the same settings")
    if args.dynamic_sampling and args.log_completions:
        raise Unsupported(
            "TRL's log_completions would show the last draw of dynamic_sampling, which is not what is trained on: "
            "leave one of them False; traces of what is trained on are in OUTPUT_DIR/tokenpo"
        )
    if args.restore_callback_states_from_checkpoint:
        raise Unsupported(
            "TRL's restore_callback_states_from_checkpoint would replace the callback that holds the run's records: "
            "leave it False, the method's own numbers are restored without it"
        )
    return args


def _require_reference(objective: Objective, model: Any, peft_config: Any) -> None:
    """TRL loads the reference from where the model came from; under LoRA it is the model without its adapter."""
    if "ref_logprob" not in objective.needs or isinstance(model, str) or peft_config is not None:
        return
    if hasattr(model, "peft_config") or model.config._name_or_path:
        return
    raise Unsupported(
        f"{objective.name} needs ref_logprob, and TRL loads the reference from the directory of the model, which this "
        "one, made in memory, does not have: save it with save_pretrained and give the path"
    )


def _citation(name: str) -> dict[str, str]:
    if name not in METHODS:
        return {}
    source = paper(name)
    lines = [f"@article{{{name}", f"    title  = {{{{{source.title}}}}}", f"    eprint = {{arXiv:{source.arxiv}}}"]
    return {"title": source.title, "id": source.arxiv, "citation": ",\n".join(lines) + ",\n}"}
