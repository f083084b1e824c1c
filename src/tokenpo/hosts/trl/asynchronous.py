"""TRL's asynchronous GRPO trainer with an objective in place of its loss; credit and staleness are TRL's.

A rollout worker makes advantages from rewards; the loss gets them and the sampler's log-probabilities, which stand for
the old policy too. One method is overridden: `compute_loss`, which calls TRL's for its pass and its metrics.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from trl.experimental import async_grpo as theirs  # pyright: ignore

from ...base.errors import refuse
from ...core.objective import Objective
from ...core.ops.masked import inside, unpacked
from ...core.parts import GroupAdvantage
from ...core.types import Batch, Policy, Totals
from ...methods import method as built
from ..advantage_only import bare, credited, remedy, sampler_alone, unaged, unfit

HOST = "TRL's AsyncGRPOTrainer"
PROVIDES = frozenset({"rollout_logprob", "entropy"})


def faults(objective: Objective) -> Iterator[str]:
    """Yields a sentence for each reason why the objective is another one in TRL's asynchronous trainer."""
    yield from unfit(objective, PROVIDES, HOST)
    if isinstance(objective.credit, GroupAdvantage) and not objective.credit.std:
        yield f"{objective.name} does not divide by the deviation of rewards, and {HOST} does: {remedy(objective)}"
    yield from unaged(objective, HOST)
    yield from sampler_alone(objective, HOST)


def require(objective: Objective) -> None:
    """Raises Unsupported with all `faults`, or if the objective makes its own credit."""
    refuse(faults(objective))
    one = torch.zeros(1, 1)
    credited(objective, bare(one == 0, one, rollout_logprob=one).only(objective.needs), one)


class AsyncGRPOTrainer(theirs.AsyncGRPOTrainer):
    """TRL's `AsyncGRPOTrainer` with another objective.

    Args:
        given, named: TRL's.
        method: the name of a method, or an `Objective`.

    Raises:
        Unsupported: with everything that the objective reads and TRL does not hand over.
    """

    _tag_names: ClassVar[list[str]] = ["trl", "tokenpo"]

    def __init__(self, *given: Any, method: str | Objective, **named: Any) -> None:
        self.policy_objective = method if isinstance(method, Objective) else built(method)
        require(self.policy_objective)
        super().__init__(*given, **named)
        low, high = self.args.epsilon, self.args.epsilon_high
        told = (
            f"epsilon = {low} and epsilon_high = {high} are bounds of TRL's own loss, which the method replaces: leave "
            "them out, and give the method its own, such as method=tokenpo.method('dapo', high=0.3)"
        )
        refuse([None if (low, high) == (0.2, None) else told])

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """The loss of a micro-batch, divided by its tokens or responses on all ranks."""
        passes: list[Any] = []

        def recorded(**given: Any) -> Any:
            passes.append(model(**given))
            return passes[-1]

        super().compute_loss(recorded, inputs)
        metrics = self._metrics["train"]
        for name in [name for name in metrics if name.startswith("clip_ratio/")]:  # of TRL's bounds
            del metrics[name]
        (out,), parts = passes, self.current_gradient_accumulation_steps
        value = self._objective_loss(out, inputs) * self.accelerator.num_processes / parts
        return value + self.router_aux_loss_coef * out.aux_loss / parts if self.aux_loss_enabled else value

    def _objective_loss(self, out: Any, inputs: Any) -> Tensor:
        """This rank's share of the loss; `inputs` are flat lists of response tokens, response after response."""
        counted = inputs["token_index"] >= 0
        place, old, advantage, response = (
            inputs[name][counted] for name in ("token_index", "old_log_probs", "advantages", "segment_id")
        )
        lengths = response.unique_consecutive(return_counts=True)[1]
        sequences = float(self.accelerator.reduce(torch.tensor(float(len(lengths)), device=place.device)))
        if not len(lengths):
            return out.log_probs.sum() * 0.0
        mask = inside(lengths)
        logprob, entropy = (unpacked(x.flatten()[place], mask) for x in (out.log_probs, out.entropy))
        old = unpacked(old, mask)
        objective = self.policy_objective
        rollouts = bare(mask, old, rollout_logprob=old).only(objective.needs)
        policy = Policy(logprob, entropy if objective.entropy_gradient else entropy.detach()).only(objective.needs)
        batch = Batch(rollouts, credited(objective, rollouts, unpacked(advantage, mask)), policy)
        totals = Totals(float(inputs["global_n_tokens"][0]), sequences, self.args.max_completion_length)
        return objective.loss(batch, totals).value
