"""The library and the oracles, run on the same `Sample`."""

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tokenpo
from oracles import ORACLES

from .batches import INDEX_FIELDS, NAMES, ROW_FIELDS, TOKEN_FIELDS, Sample, holed, ragged

POLICY_FIELDS = ("logprob", "entropy", "entropy_drift", "teacher_divergence")
OPTIONAL = tuple(name for name in NAMES if name not in ("mask", "reward", "group", "old_logprob", "logprob"))


@dataclass(frozen=True, eq=False)
class Outcome:
    """A loss, its gradients to the log-probabilities and the entropies [N, T], and (from the library) the terms."""

    value: float
    gradient: np.ndarray
    terms: dict[str, np.ndarray]
    entropy_gradient: np.ndarray


def batches(name: str, *seeds: int) -> list[Sample]:
    """Of `seeds` (0, 1, 2 and 3): right and wrong answers, graded ones, and at 3 also tokens that a tool has written.

    An oracle that is defined for some batches only makes such ones of them.
    """
    suited = ORACLES[name].suited
    return [suited(holed(seed) if seed == 3 else ragged(seed, binary=seed % 2 == 0)) for seed in seeds or range(4)]


def score(name: str, sample: Sample, **options: Any) -> Outcome:
    """The oracle of `name` on `sample`."""
    value, gradient, *of_entropy = ORACLES[name](sample, **options)
    none = np.zeros(sample.mask.shape)
    return Outcome(float(value), none + gradient, {}, none + (of_entropy[0] if of_entropy else 0))


def tensors(
    sample: Sample, dtype: torch.dtype = torch.float64, padding: float = float("nan")
) -> dict[str, torch.Tensor]:
    """Every field as a tensor; the [N, T] ones hold `padding` where there is no token."""
    fill = dict.fromkeys(TOKEN_FIELDS, padding) | dict.fromkeys(INDEX_FIELDS, -1)
    out = {name: torch.tensor(getattr(sample, name)) for name in ("mask", *ROW_FIELDS)}
    out |= {name: torch.tensor(np.where(sample.mask, getattr(sample, name), x)) for name, x in fill.items()}
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in out.items()}


def facts(sample: Sample) -> tokenpo.Rollouts:
    """The sample as rollouts with the old policy's entropies."""
    field = tensors(sample)
    return tokenpo.Rollouts(field["mask"], field["reward"], field["group"], field["old_logprob"], field["old_entropy"])


@dataclass(frozen=True, eq=False)
class Step:
    """One optimiser step, ready for `objective.loss`: gradients go to the log-probabilities and entropies."""

    batch: Any
    totals: Any
    logprob: torch.Tensor
    entropy: torch.Tensor


def assemble(
    objective: Any, field: dict[str, torch.Tensor], *, seed: int = 0, inputs: Collection[str] | None = None,
    advantage: np.ndarray | None = None, state: Any = None,
) -> Step:  # fmt: skip
    """Phase one, and the look at the whole step where the objective asks for it.

    `inputs` are the optional inputs handed over, by default those that the objective says it needs; `advantage` [N, T]
    takes the place of the prepared one; `state` is that of the objective's memories.
    """
    inputs = objective.needs if inputs is None else inputs
    lp, entropy = field["logprob"].clone().requires_grad_(), field["entropy"].clone().requires_grad_()
    chosen = {name: entropy if name == "entropy" else field[name] for name in OPTIONAL if name in inputs}
    policy = tokenpo.Policy(logprob=lp, **{k: v for k, v in chosen.items() if k in POLICY_FIELDS})
    facts = {k: v for k, v in chosen.items() if k not in POLICY_FIELDS}
    plain = {name: field[name] for name in ("mask", "reward", "group", "old_logprob")}
    rollouts = tokenpo.Rollouts.of(plain | facts)
    credit = objective.prepare(rollouts, state)
    if advantage is not None:
        credit = tokenpo.Credit(torch.tensor(advantage, dtype=lp.dtype), credit.signals)
    rollouts = objective.counted(rollouts)
    batch = tokenpo.Batch(rollouts=rollouts, credit=credit, policy=policy)
    if objective.scope == "batch":
        batch = objective.observe(batch, torch.Generator().manual_seed(seed))
    return Step(batch, tokenpo.Totals.of(rollouts), lp, entropy)


def run(
    objective: Any, sample: Sample, *, padding: float = float("nan"), pieces: Collection[Any] | None = None, **how: Any
) -> Outcome:
    """The library on `sample`, in `pieces` (rows) whose losses and gradients add up; `how` goes to `assemble`."""
    step = assemble(objective, tensors(sample, padding=padding), **how)
    batches = [step.batch] if pieces is None else [step.batch.rows(rows) for rows in pieces]
    losses = [objective.loss(batch, step.totals) for batch in batches]
    total = torch.stack([loss.value for loss in losses]).sum()
    gradient, of_entropy = torch.autograd.grad(total, (step.logprob, step.entropy), allow_unused=True)
    of_entropy = torch.zeros_like(gradient) if of_entropy is None else of_entropy
    terms = {k: v.numpy() for k, v in losses[0].terms.items()} if pieces is None else {}
    return Outcome(float(total.detach()), gradient.numpy(), terms, of_entropy.numpy())


def close(one: Outcome, other: Outcome, rtol: float = 1e-10) -> None:
    """Values and gradients agree; the floor only covers exact zeros."""
    np.testing.assert_allclose(one.value, other.value, rtol=rtol, atol=1e-14)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=rtol, atol=1e-14)
    np.testing.assert_allclose(one.entropy_gradient, other.entropy_gradient, rtol=rtol, atol=1e-14)


def agrees(name: str, sample: Sample, *, oracle: dict[str, Any] | None = None, **options: Any) -> Outcome:
    """Asserts that the library's `name` is its oracle; `oracle` tells that one what was drawn or remembered."""
    got = run(tokenpo.method(name, **options), sample)
    close(got, score(name, sample, **options, **(oracle or {})))
    assert not got.gradient[~sample.mask].any(), "padding has a gradient"
    return got


def outcome(name: str, sample: Sample, *, advantage: Any = None, **options: Any) -> Outcome:
    """The library's `name` with `options` on `sample`."""
    return run(tokenpo.method(name, **options), sample, advantage=advantage)


def moves(
    name: str, sample: Sample, value: float | None, gradient: Any, *, unit: float = 1.0, **options: Any
) -> Outcome:
    """Asserts a loss and a gradient worked out by hand, in units of `unit`; zeros on the right may be left out."""
    got = outcome(name, sample, **options)
    if value is not None:
        np.testing.assert_allclose(got.value, value * unit, rtol=1e-12, atol=1e-15)
    width = got.gradient.shape[1]
    rows = [[*np.ravel(row), *[0.0] * (width - np.size(row))] for row in gradient]
    np.testing.assert_allclose(got.gradient, np.array(rows) * unit, rtol=1e-12)
    return got


def worked(*given: Any, **more: Any) -> functools.partial[Outcome]:
    """`moves` of these, for a table of examples."""
    return functools.partial(moves, *given, **more)
