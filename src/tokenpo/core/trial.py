"""A trial of an objective: random inputs for everything it may ask for, one evaluation on them, and how two compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .objective import State
from .types import Batch, Loss, Policy, Rollouts, Totals

# The inputs that an objective may declare in `needs`, by the value that holds them.
OPTIONAL: dict[type, tuple[str, ...]] = {
    owner: tuple(field.name for field in dataclasses.fields(owner) if field.default is None)
    for owner in (Rollouts, Policy)
}
_LEAVES = ("logprob", "entropy")


@dataclass(frozen=True)
class Inputs:
    """Everything an objective may ask for, as plain tensors by field name."""

    rollouts: dict[str, Tensor]
    policy: dict[str, Tensor]

    def map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same inputs with every tensor changed alike."""
        return Inputs({k: change(x) for k, x in self.rollouts.items()}, {k: change(x) for k, x in self.policy.items()})

    def map_tokens(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same inputs with every [N, T] tensor changed alike."""
        shape = self.rollouts["mask"].shape
        return self.map(lambda x: change(x) if x.shape == shape else x)

    def without(self, name: str) -> Inputs:
        """The same inputs without one field."""
        drop = {k: x for k, x in self.rollouts.items() if k != name}
        return Inputs(drop, {k: x for k, x in self.policy.items() if k != name})

    def replace(self, **rollouts: Tensor) -> Inputs:
        """The same inputs with some rollout fields replaced."""
        return Inputs({**self.rollouts, **rollouts}, self.policy)


def example(seed: int = 0, *, groups: int = 4, size: int = 4, length: int = 9, moved_by: float = 0.4) -> Inputs:
    """Ragged random inputs in float64 with NaN in the padding: mixed groups, ratios far enough to meet every clip.

    Args:
        moved_by: spread of the log-ratios of the current policy to the old one, nats; probabilities make room for it.
    """
    g = torch.Generator().manual_seed(seed)
    n = groups * size

    def normal(scale: float) -> Tensor:
        return torch.randn(n, length, generator=g, dtype=torch.float64) * scale

    mask = torch.arange(length) < torch.randint(1, length + 1, (n, 1), generator=g)
    reward = (torch.rand(n, generator=g, dtype=torch.float64) > 0.5).double()
    reward[::size], reward[1::size] = 1.0, 0.0
    old = -normal(max(1.0, moved_by)).abs()

    def moved(scale: float) -> Tensor:
        return (old + normal(scale)).clamp(max=-1e-3)

    logprob = moved(moved_by)
    rollouts = {
        "mask": mask, "reward": reward, "group": torch.arange(n) // size, "old_logprob": old,
        "old_entropy": normal(0.7).abs(), "rollout_logprob": moved(0.01), "ref_logprob": moved(0.3),
        "temperature": 1 + normal(0.05), "token_ids": torch.randint(0, 50, (n, length), generator=g),
        "version": torch.zeros(n, length, dtype=torch.long),
    }  # fmt: skip
    rollouts |= {
        "prompt_logprob": old[::size, 0].repeat_interleave(size), "influence": normal(1.0),
        "divergence": normal(1.0).abs()[::size].repeat_interleave(size, 0),
    }  # fmt: skip
    policy = {"logprob": logprob, "entropy": normal(0.7).abs(), "entropy_drift": normal(0.1)}
    turn = (torch.rand(n, length, generator=g) < 0.3).cumsum(1)
    state = torch.randint(0, 2, (n, length + 1), generator=g)
    rollouts |= {
        "rewards": torch.stack([reward, normal(1.0)[:, 0], normal(1.0)[:, -1]], 1), "token_reward": normal(0.3),
        "turn": turn, "anchor": state.gather(1, turn),
        "old_collision": torch.rand(n, length, generator=g, dtype=torch.float64).clamp(min=0.01),
        "gain": normal(0.5),
    }  # fmt: skip
    rollouts["rewards"][2, 1] = torch.nan
    inputs = Inputs(rollouts, policy)
    return inputs.map_tokens(lambda x: x.masked_fill(~mask, torch.nan) if x.is_floating_point() else x)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of an objective: the loss and its gradients at the log-probabilities and the entropies [N, T]."""

    loss: Loss
    gradient: Tensor
    entropy_gradient: Tensor


def evaluate(
    objective: Any, inputs: Inputs, splits: tuple[Any, ...] = (slice(None),), *, state: State | None = None
) -> Evaluation:
    """Loss and gradients of the step, its rows evaluated in the given splits and added up; terms of the first split.

    Args:
        state: what the objective's memories hold; None is nothing.
    """
    rollouts = Rollouts(**inputs.rollouts)
    leaves = {name: inputs.policy[name].clone().requires_grad_() for name in _LEAVES if name in inputs.policy}
    policy = Policy(**{**inputs.policy, **leaves})
    credit = objective.prepare(rollouts, *(() if state is None else (state,)))
    rollouts = counted(objective, rollouts)
    batch = Batch(rollouts=rollouts, credit=credit, policy=policy)
    if hasattr(objective, "observe"):
        batch = objective.observe(batch)
    totals = Totals.of(rollouts)
    losses = [objective.loss(batch.rows(rows), totals) for rows in splits]
    value = torch.stack([loss.value for loss in losses]).sum()
    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    gradients = [torch.zeros_like(leaves["logprob"]) if x is None else x for x in (*found, None)]
    return Evaluation(Loss(value.detach(), losses[0].terms), gradients[0], gradients[1])


def counted(objective: Any, rollouts: Rollouts) -> Rollouts:
    """What phase two is given; a method that is no `Objective` may have no say in it."""
    return objective.counted(rollouts) if hasattr(objective, "counted") else rollouts


def same(seen: Evaluation, expected: Evaluation, said: str = "") -> None:
    """Equal losses and gradients, but for the rounding of float64.

    Raises:
        AssertionError: beginning with `said`.
    """
    close(seen.loss.value, expected.loss.value, said or "the loss differs")
    close(seen.gradient, expected.gradient, said or "the gradient differs")
    close(seen.entropy_gradient, expected.entropy_gradient, said or "the gradient in the entropy differs")


def close(seen: Tensor, expected: Tensor, said: str = "") -> None:
    """Equal but for the rounding of float64.

    Raises:
        AssertionError: beginning with `said`.
    """
    assert seen.shape == expected.shape, f"{said}: shape {list(seen.shape)} in place of {list(expected.shape)}"
    assert seen.dtype == expected.dtype, (
        f"{said}: {seen.dtype} in place of {expected.dtype}: a part that rounds loses what float64 inputs carry"
    )
    torch.testing.assert_close(seen, expected, rtol=1e-11, atol=1e-14, msg=lambda text: f"{said}: {text}")
