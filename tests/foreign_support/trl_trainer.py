"""TRL 1.16's GRPO trainer without a model: its own loss and its own advantages on our batches.

Its arithmetic on settings and counts takes torch's default type, so everything here runs with float64 as the default:
what then differs from our numbers differs by meaning, not by rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from oracle_support import Outcome, Sample

from .required import need

MISSING = "trl is not installed: none of its losses and advantages was compared with ours"
GRPOTrainer = need("trl.trainer.grpo_trainer", MISSING).GRPOTrainer
GRPOConfig = need("trl", MISSING).GRPOConfig
Accelerator = need("accelerate", MISSING).Accelerator

WHOLE = (slice(None),)


class Trainer(GRPOTrainer):
    """The constructor takes settings only. What TRL's methods read and is not here is the setting of that name."""

    def __init__(self, **settings: Any) -> None:
        self.args = GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **settings)
        self.accelerator = Accelerator(cpu=True)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=0)
        self._metrics = {"train": defaultdict(list)}
        self._logs = defaultdict(list, rewards=defaultdict(list))
        self._pending_extra_logs, self._pending_metrics = {}, {}
        self._tokenizer = SimpleNamespace(pad_token_id=0)
        self.epsilon_low = self.args.epsilon
        self.epsilon_high = self.args.epsilon if self.args.epsilon_high is None else self.args.epsilon_high
        self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
        self.entropy_coef, self.aux_loss_enabled = self.args.entropy_coef, False
        self._entropy_bonus_enabled = self.entropy_coef != 0 or self.args.use_adaptive_entropy
        self._last_world_entropy, self._entropy_window_stats = float("inf"), None
        self.environment_factories = self.environments = self.tools = None
        self.reward_funcs, self.reward_func_names = [None], ["reward"]
        self.reward_weights = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.args, name)

    def _get_per_token_logps_and_entropies(self, model: Any, *rows: Any, **how: Any) -> tuple:
        return model.logprob, model.entropy, None

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


@contextmanager
def float64() -> Iterator[None]:
    """The default type while TRL runs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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
    with float64():
        theirs = trainer or Trainer(gradient_accumulation_steps=len(pieces), **settings)
        lp, entropy = (torch.tensor(x, requires_grad=True) for x in (sample.logprob, sample.entropy))
        fields = {
            "completion_mask": torch.tensor(sample.mask, dtype=torch.int64),
            "completion_ids": torch.zeros(sample.mask.shape, dtype=torch.int64),
            "prompt_ids": torch.zeros((len(sample.mask), 1), dtype=torch.int64),
            "prompt_mask": torch.ones((len(sample.mask), 1), dtype=torch.int64),
            "advantages": torch.tensor(advantage),
            "old_per_token_logps": torch.tensor(sample.old_logprob),
            "ref_per_token_logps": torch.tensor(sample.ref_logprob),
        }
        if correction is not None:
            fields["importance_sampling_ratio"] = torch.tensor(correction)
        if sampled:
            fields["sampling_per_token_logps"] = torch.tensor(sample.rollout_logprob)
        counted = torch.tensor(int(sample.mask.sum()) if tokens is None else tokens)
        total = torch.zeros(())
        for rows in pieces:
            policy = SimpleNamespace(logprob=lp[rows], entropy=entropy[rows])
            inputs = {name: field[rows] for name, field in fields.items()}
            total = total + theirs.compute_loss(policy, {**inputs, "num_items_in_batch": counted})
        gradient, of_entropy = torch.autograd.grad(total, (lp, entropy), allow_unused=True, materialize_grads=True)
    return Outcome(float(total.detach()), gradient.numpy(), {}, of_entropy.numpy())


def rollouts(sample: Sample, weights: Sequence[float] = (1.0,), **settings: Any) -> dict[str, np.ndarray]:
    """What TRL makes of a generation batch: groups are consecutive rows, as many as `num_generations`. It computes
    advantages in the type of the rewards, which in a run is float32.

    Args:
        weights: of the reward functions; of more than one, the columns of `sample.rewards` are what they gave.
    """
    with float64():
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
