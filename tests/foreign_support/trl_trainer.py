"""TRL's own loss and its own advantages on our batches, without a model."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from oracle_support import Outcome, Sample

from .required import need

MISSING = "trl is not installed: none of its losses and advantages was compared with ours"
GRPOTrainer = need("trl.trainer.grpo_trainer", MISSING).GRPOTrainer
GRPOConfig = need("trl", MISSING).GRPOConfig
own_loss = need("conformance.trl", MISSING)

WHOLE = (slice(None),)


class Trainer(own_loss.Trainer):
    """One that makes rollout batches, too, of what `model.sample` holds."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._logs = defaultdict(list, rewards=defaultdict(list))
        self._pending_extra_logs, self._pending_metrics = {}, {}
        self._tokenizer = SimpleNamespace(pad_token_id=0)
        self.environment_factories = self.environments = self.tools = None
        self.reward_funcs, self.reward_func_names = [None], ["reward"]
        self.reward_weights = None

    def _generate(self, prompts: list) -> tuple:
        """The rollouts of `model.sample`, as lists; the engine that sampled them reported `rollout_logprob`."""
        sample = self.model.sample
        lengths = sample.mask.sum(1)
        ids = [[1] * int(length) for length in lengths]
        reported = [row[:length].tolist() for row, length in zip(sample.rollout_logprob, lengths, strict=True)]
        return [[1]] * len(ids), ids, None, [""] * len(ids), reported if self.use_vllm else None, {}, None, []

    def _calculate_rewards(self, *rollouts: Any) -> torch.Tensor:
        sample = self.model.sample
        return torch.tensor(sample.reward)[:, None] if len(self.reward_funcs) == 1 else torch.tensor(sample.rewards)


def loss(
    sample: Sample,
    advantage: np.ndarray,
    *,
    pieces: Collection[Any] = WHOLE,
    tokens: int | None = None,
    correction: np.ndarray | None = None,
    sampled: bool = False,
    trainer: Trainer | None = None,
    **settings: Any,
) -> Outcome:
    """TRL's loss of one optimiser step and its gradients to the log-probabilities and the entropies.

    Args:
        sample: the rows of the step.
        advantage: [N, T].
        pieces: the micro-batches of the step, as rows; TRL accumulates over that many.
        tokens: what TRL believes the generation batch holds; None counts the sample.
        correction: [N, T] or [N, 1], the importance weight of the engine that sampled.
        sampled: TRL is told the log-probabilities of the engine that sampled.
        trainer: one that remembers earlier steps; None takes a fresh one with the `settings`.
    """
    with own_loss.float64():
        theirs = trainer or Trainer(gradient_accumulation_steps=len(pieces), **settings)
        lp, entropy = (torch.tensor(x, requires_grad=True) for x in (sample.logprob, sample.entropy))
        fields = {
            "completion_mask": torch.tensor(sample.mask, dtype=torch.int64),
            "advantages": torch.tensor(advantage),
            "old_per_token_logps": torch.tensor(sample.old_logprob),
            "ref_per_token_logps": torch.tensor(sample.ref_logprob),
            "num_items_in_batch": torch.tensor(int(sample.mask.sum()) if tokens is None else tokens),
        }
        if correction is not None:
            fields["importance_sampling_ratio"] = torch.tensor(correction)
        if sampled:
            fields["sampling_per_token_logps"] = torch.tensor(sample.rollout_logprob)
        total = torch.stack([own_loss.of_rows(theirs, fields, lp, entropy, rows) for rows in pieces]).sum()
        gradient, of_entropy = torch.autograd.grad(total, (lp, entropy), allow_unused=True, materialize_grads=True)
    return Outcome(float(total.detach()), gradient.numpy(), {}, of_entropy.numpy())


def rollouts(sample: Sample, weights: Sequence[float] = (1.0,), **settings: Any) -> dict[str, np.ndarray]:
    """What TRL makes of a generation batch: groups are consecutive rows, as many as `num_generations`. It computes
    advantages in the type of the rewards, which in a run is float32.

    Args:
        weights: of the reward functions; of more than one, the columns of `sample.rewards` are what they gave.
    """
    with own_loss.float64():
        theirs = Trainer(per_device_train_batch_size=len(sample.reward), **settings)
        theirs.reward_funcs, theirs.reward_func_names = [None] * len(weights), [f"r{k}" for k in range(len(weights))]
        theirs.model.sample, theirs.reward_weights = (
            sample,
            torch.tensor(weights, dtype=torch.tensor(sample.reward).dtype),
        )
        theirs.model.logprob, theirs.model.entropy = torch.tensor(sample.old_logprob), None
        theirs.model.is_gradient_checkpointing = False
        out = theirs._generate_and_score_completions([{"prompt": ""} for _ in sample.reward])
    return {name: value.numpy() for name, value in out.items() if torch.is_tensor(value)}
