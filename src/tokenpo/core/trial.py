"""Random inputs for any objective, its evaluation on them, and the comparison of two evaluations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from .facts import facts_of
from .objective import Objective, State
from .seeds import keyed_generator
from .types import EXTRA, FACTS, Batch, Credit, Loss, Policy, Rollouts, Totals, Trust

# The fields of the policy that carry a graph.
LEAVES = ("logprob", "entropy", "teacher_divergence")


@dataclass(frozen=True)
class Inputs:
    """All fields of `Rollouts` and `Policy`, as plain tensors by name."""

    rollouts: dict[str, Tensor]
    policy: dict[str, Tensor]

    def map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The inputs with `change` applied to every tensor."""
        return Inputs({k: change(x) for k, x in self.rollouts.items()}, {k: change(x) for k, x in self.policy.items()})

    def map_tokens(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The inputs with `change` applied to every [N, T] tensor."""
        shape = self.rollouts["mask"].shape
        return self.map(lambda x: change(x) if x.shape == shape else x)

    def without(self, *names: str) -> Inputs:
        """The inputs without some fields."""
        kept = ({k: x for k, x in fields.items() if k not in names} for fields in (self.rollouts, self.policy))
        return Inputs(*kept)

    def replace(self, **rollouts: Tensor) -> Inputs:
        """The inputs with some fields of the rollouts replaced."""
        return Inputs({**self.rollouts, **rollouts}, self.policy)

    def values(self) -> tuple[Rollouts, Policy]:
        """The rollouts, checked, and the policy, which `Batch` will check."""
        return Rollouts.of(self.rollouts), Policy(**self.policy)

    def cut(self, at: Tensor) -> tuple[Inputs, Tensor]:
        """Each row as a trajectory of several rows, cut before the tokens where `at` [N, T] is true; empty rows too.

        Also returns [M, T] int, the place of each token in the flattened whole rows, −1 for none.
        """
        (n, t) = at.shape
        piece, places = at.cumsum(1), torch.arange(n * t).view(n, t)
        order = [(k, row) for k in range(int(piece.max()) + 2) for row in range(n)]  # piece by piece
        index = torch.full((len(order), t), -1)
        for new, (k, row) in enumerate(order):
            chosen = places[row][(piece[row] == k) & self.rollouts["mask"][row]]
            index[new, : len(chosen)] = chosen
        row = torch.tensor([row for _, row in order])

        def rows(x: Tensor) -> Tensor:
            if x.shape != at.shape:
                return x[row]
            return torch.where(index >= 0, x.flatten()[index], x.new_full((), 0))

        return self.map(rows).replace(trajectory=(row * 7919 + 13) % 101), index

    def evaluate(self, objective: Any, splits: Sequence[Any] = (slice(None),), **known: Any) -> Evaluation:
        """`evaluate` on these inputs."""
        return evaluate(objective, *self.values(), splits, **known)


def example(
    seed: int = 0, *, groups: int = 4, size: int = 4, length: int = 9, moved_by: float = 0.4, columns: int = 3
) -> Inputs:
    """Random inputs in float64 with unequal lengths, NaN in the padding, mixed groups, and ratios beyond every clip.

    `moved_by` is the standard deviation of the log-ratios, nats, and `columns` the number of reward functions.
    """
    g, n = torch.Generator().manual_seed(seed), groups * size

    def normal(scale: float) -> Tensor:
        return torch.randn(n, length, generator=g, dtype=torch.float64) * scale

    mask = torch.arange(length) < torch.randint(1, length + 1, (n, 1), generator=g)
    reward = (torch.rand(n, generator=g, dtype=torch.float64) > 0.5).double()
    reward[::size], reward[1::size] = 1.0, 0.0
    old = -normal(max(1.0, moved_by)).abs()

    def drawn(name: str, scale: float | None = None) -> Tensor:
        """Random numbers around the input's neutral value, inside its range."""
        fact = FACTS[name]
        if fact.kind.whole:
            return torch.zeros(n, length, dtype=torch.long)
        if fact.kind.least == 0 and fact.kind.most == 1:
            return torch.rand(n, length, generator=g, dtype=torch.float64).clamp(min=0.01)
        centre = old if fact.neutral == "old_logprob" else fact.neutral if isinstance(fact.neutral, float) else 0.0
        x = centre + normal(fact.scale if scale is None else scale)
        return x.clamp(max=-1e-3) if fact.kind.most == 0 else x.abs() if fact.kind.least == 0 else x

    # A seed's numbers depend on the order of the draws, so a new input must be drawn after all others.
    policy = {"logprob": drawn("logprob", moved_by)}
    rollouts = {"mask": mask, "reward": reward, "group": torch.arange(n) // size, "old_logprob": old}
    rollouts |= {name: drawn(name) for name in ("old_entropy", "rollout_logprob", "ref_logprob", "temperature")}
    rollouts["token_ids"] = torch.randint(0, 50, (n, length), generator=g)
    policy |= {name: drawn(name) for name in ("entropy", "entropy_drift")}
    turn = (torch.rand(n, length, generator=g) < 0.3).cumsum(1)
    state = torch.randint(0, 2, (n, length + 1), generator=g)
    rewards = torch.stack([reward, normal(1.0)[:, 0], normal(1.0)[:, -1]], 1)
    rewards[2, 1] = torch.nan
    rollouts |= {"turn": turn, "anchor": state.gather(1, turn), "rewards": rewards}
    for name, fact in facts_of(Rollouts).items():
        if name not in rollouts and name != "trajectory":
            rollouts[name] = drawn(name) if fact.shape == "[N, T]" else drawn(name)[:, 0]
    rollouts["version"] = torch.randint(0, 2, (n,), generator=g)[:, None].expand(n, length)
    policy["teacher_divergence"] = drawn("teacher_divergence")
    rollouts["rewards"] = torch.cat([rewards, torch.randn(n, columns, generator=g).double()], 1)[:, :columns]
    for name, fact in EXTRA.items():
        g = keyed_generator(seed, name)
        rollouts[name] = drawn(name) if fact.shape == "[N, T]" else drawn(name)[:, 0]
    inputs = Inputs(rollouts, policy)
    return inputs.map_tokens(lambda x: x.masked_fill(~mask, torch.nan) if x.is_floating_point() else x)


def fitting(objective: Any, seed: int = 0, **shape: Any) -> Inputs:
    """`example` with as many reward functions as the objective's credit takes."""
    return example(seed, columns=columns_of(objective, 3), **shape)


def columns_of(objective: Any, usual: int) -> int:
    """The number of columns of `Rollouts.rewards` for the objective's credit; `usual` if any number suits it."""
    return getattr(getattr(objective, "credit", None), "columns", 0) or usual


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of an objective.

    Args:
        loss: detached; its terms are those of the first split.
        batch, totals: the batch after `observe` and its denominators.
        gradient, entropy_gradient, teacher_gradient: [N, T], to log-probabilities, entropies and divergences.
    """

    loss: Loss
    batch: Batch
    totals: Totals
    gradient: Tensor
    entropy_gradient: Tensor
    teacher_gradient: Tensor

    def at(self, index: Any) -> Evaluation:
        """The evaluation with its gradients indexed by `index`."""
        gradients = ("gradient", "entropy_gradient", "teacher_gradient")
        return dataclasses.replace(self, **{name: getattr(self, name)[index] for name in gradients})


def counted(objective: Any, rollouts: Rollouts) -> Rollouts:
    """The rollouts that the objective's denominators count; all of them for an objective that leaves none out."""
    return objective.counted(rollouts) if hasattr(objective, "counted") else rollouts


def evaluate(
    objective: Any,
    rollouts: Rollouts,
    policy: Policy,
    splits: Sequence[Any] = (slice(None),),
    *,
    state: State | None = None,
    length: float | None = None,
    draws: torch.Generator | None = None,
) -> Evaluation:
    """One whole optimiser step: `prepare`, `counted`, `observe`, the loss and its gradients.

    `counted` and `observe` are called if the objective has them. `splits` are the rows of each loss; losses are summed.
    """
    credit = objective.prepare(rollouts, *(() if state is None else (state,)))
    rollouts = counted(objective, rollouts)
    if hasattr(objective, "observe"):
        batch = Batch(rollouts, credit, policy)
        credit = objective.observe(batch, *(() if draws is None else (draws,))).credit
    return differentiate(objective, rollouts, credit, policy, Totals.of(rollouts, length), splits)


@torch.enable_grad()
def differentiate(
    objective: Any,
    rollouts: Rollouts,
    credit: Credit,
    policy: Policy,
    totals: Totals,
    splits: Sequence[Any] = (slice(None),),
) -> Evaluation:
    """Phase two alone: the loss of any rows and its gradients, from the credit after `observe`."""
    leaves = {
        name: x.detach().clone().requires_grad_()
        for name, x in vars(policy).items()
        if x is not None and name in LEAVES
    }
    batch = Batch(rollouts, credit, dataclasses.replace(policy, **leaves))
    losses = [objective.loss(batch.rows(rows), totals) for rows in splits]
    value = torch.stack([loss.value for loss in losses]).sum()
    grads = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values()), allow_unused=True), strict=True))
    gradients = (x if (x := grads.get(name)) is not None else torch.zeros_like(leaves["logprob"]) for name in LEAVES)
    return Evaluation(Loss(value.detach(), losses[0].terms), batch, totals, *gradients)


def hold(condition: Any, sentence: str) -> None:
    """Raises AssertionError if the condition is false, also under `python -O`, which removes `assert`."""
    if not condition:
        raise AssertionError(sentence)


def same(actual: Evaluation, expected: Evaluation, prefix: str = "") -> None:
    """Requires losses and gradients to be equal up to the rounding of float64; `prefix` starts the message."""
    close(actual.loss.value, expected.loss.value, prefix or "the loss differs")
    for name in ("gradient", "entropy_gradient", "teacher_gradient"):
        close(getattr(actual, name), getattr(expected, name), prefix or f"the {name} differs")


def close(actual: Tensor, expected: Tensor, prefix: str = "") -> None:
    """Requires tensors to be equal up to the rounding of float64; `prefix` starts the message."""
    hold(actual.shape == expected.shape, f"{prefix}: shape {list(actual.shape)} in place of {list(expected.shape)}")
    rounds = "a part that rounds loses what float64 inputs carry"
    hold(actual.dtype == expected.dtype, f"{prefix}: {actual.dtype} in place of {expected.dtype}: {rounds}")
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-14, msg=lambda text: f"{prefix}: {text}")


def leaving_inputs_alone(objective: Objective) -> Objective:
    """The objective, whose parts must not write into their arguments, which later parts and updates read again."""

    def call(slot: str, part: Any, *given: Any, **method: str) -> Any:
        before = [(name, x, x._version) for name, x in _tensors(given)]
        result = objective.call(slot, part, *given, **method)
        for name, x, version in before:
            if x._version != version:
                raise TokenPOError(f"{slot} {part!r} changed {name} in place: let it work on a clone()")
        return result

    return objective.called_by(call)


def _tensors(given: tuple[Any, ...]) -> Iterator[tuple[str, Tensor]]:
    for x in given:
        if isinstance(x, Batch):
            yield from _tensors((x.rollouts, x.policy, {"the advantage": x.credit.advantage}, x.credit.signals))
        elif isinstance(x, Rollouts | Policy | Trust | Mapping):
            fields = x if isinstance(x, Mapping) else vars(x)
            yield from ((str(name), value) for name, value in fields.items() if isinstance(value, Tensor))
        elif isinstance(x, Tensor):
            yield "an argument", x
