"""Compares a host's own loss with the reference on one fixed batch, for every split of an optimiser step.

The reference is this package's objective, which is tested against an independent implementation of each paper. The
module of a host calls its functions as its trainer does, and lists what is compared.
"""

import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from tokenpo.core.objective import Objective
from tokenpo.core.trial import evaluate, example
from tokenpo.core.types import Policy, Rollouts
from tokenpo.methods import method

# Relative to the reference; a larger difference of loss or gradient is more than rounding.
TOLERANCE = 1e-6
# Values in padding, which must not enter any mean.
_PADDING = {"logprob": -1.0, "old_logprob": -2.0, "ref_logprob": -3.0, "rollout_logprob": -4.0, "entropy": 5.0}
HOSTS = {"trl": "trl", "verl": "verl", "skyrl": "skyrl", "prime-rl": "prime_rl"}  # host -> package, and module here


@dataclass(frozen=True, eq=False)
class Step:
    """One optimiser step as a host computes it; tensors are [N, T], float64."""

    rollouts: Rollouts
    policy: Policy  # leaves
    advantage: Tensor  # the reference's
    written: Tensor  # bool: the response, with a tool's tokens inside it
    ranks: tuple[tuple[Tensor, ...], ...]  # rows of each micro-batch of each rank
    length: int  # of the longest response allowed


@dataclass(frozen=True)
class Finding:
    """A case with both losses; `difference` is the larger relative difference of loss and gradient."""

    method: str
    settings: str
    case: str
    host: float
    reference: float
    difference: float
    agrees: bool
    why: str


@dataclass(frozen=True)
class Case:
    """How the batch is split and changed: ranks, micro-batches per rank, mask, added columns of padding."""

    ranks: int = 1
    pieces: int = 1
    mask: Callable[[Tensor], Tensor] = Tensor.clone
    wider: int = 0
    alone: bool = False  # the first response, a right one, is alone in its group


ONE, EMPTY, LONE = "in one piece", "an empty response", "alone with its prompt"
PIECES: tuple[str, ...] = ("four micro-batches", "two ranks")
CASES = {
    ONE: Case(),
    PIECES[0]: Case(pieces=4),
    PIECES[1]: Case(ranks=2, pieces=2),
    # The third response has no token that counts, like a truncated one that is masked.
    EMPTY: Case(mask=lambda mask: mask & (torch.arange(len(mask)) != 2)[:, None]),
    # Tokens 3 to 5 of every response are a tool's.
    "a tool's tokens inside": Case(mask=lambda mask: mask.index_fill(1, torch.tensor([2, 3, 4]), False)),
    "more padding": Case(wider=7),
    LONE: Case(alone=True),
}
# Cases for a host's own credit; all other cases use the reference's credit.
CREDIT = (ONE, LONE)


def taken(case: str, objective: Objective) -> tuple[Step, float, Tensor]:
    """The step of a case, with the reference's loss and gradient [N, T]."""
    split = CASES[case]
    inputs = example(0, moved_by=1.5)
    rows = {**inputs.rollouts, **inputs.policy}
    fields = {name: pad(rows[name].nan_to_num(x), (0, split.wider), value=x) for name, x in _PADDING.items()}
    group = rows["group"].clone()
    group[:1] += 4 * split.alone
    fields |= {"reward": rows["reward"], "group": group}
    written = pad(inputs.rollouts["mask"], (0, split.wider))
    policy = Policy(**{name: fields.pop(name) for name in ("logprob", "entropy")})
    rollouts = Rollouts(mask=split.mask(written), **fields)
    length = inputs.rollouts["mask"].shape[1]
    reference = evaluate(objective, rollouts.only(objective.needs), policy.only(objective.needs), length=length)
    leaves = Policy(*(x.clone().requires_grad_() for x in (policy.logprob, policy.need("entropy"))))
    advantage = reference.batch.credit.advantage
    ranks = tuple(share.chunk(split.pieces) for share in torch.arange(len(group)).chunk(split.ranks))
    step = Step(rollouts, leaves, advantage, written, ranks, length)
    return step, reference.loss.value.item(), reference.gradient


@dataclass(frozen=True)
class Compared:
    """A method and a host's settings for it, with the cases to compare; `why` explains a case's known difference."""

    method: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    why: Mapping[str, str] = field(default_factory=dict)
    cases: Collection[str] = tuple(case for case in CASES if not CASES[case].alone)


def once(method: str, options: Mapping[str, Any], settings: Mapping[str, Any], why: str) -> Compared:
    """A comparison in one case, for a difference that is the same in every case."""
    return Compared(method, options, settings, {ONE: why}, (ONE,))


def last(step: Step) -> Tensor:
    """Rewards [N, T], on the last token of each response's mask."""
    places = torch.arange(step.rollouts.mask.shape[1]) * step.rollouts.mask
    return step.rollouts.reward[:, None] * torch.zeros_like(step.advantage).scatter(
        1, places.amax(1, keepdim=True), 1.0
    )


def compared(own: Any, what: Compared, case: str) -> Finding:
    """Compares the host's loss and gradient with the reference's in one case."""
    step, value, gradient = taken(case, method(what.method, **what.options))
    theirs = own.loss(step, **what.settings)
    (their_gradient,) = torch.autograd.grad(theirs, step.policy.logprob)
    difference = max(
        abs(float(theirs.detach()) - value) / max(abs(value), 1e-12),
        float((their_gradient - gradient).abs().max() / gradient.abs().max()),
    )
    settings = ", ".join(f"{key}={x}" for key, x in what.settings.items()) or "defaults"
    options = "".join(f":{key}={x}" for key, x in what.options.items())
    agrees = difference < TOLERANCE
    why = "" if agrees else what.why.get(case, "")
    return Finding(what.method + options, settings, case, float(theirs.detach()), value, difference, agrees, why)


def findings(host: str) -> tuple[str, list[Finding]]:
    """The host with its version, and a finding for every method and case; ImportError if it cannot be imported."""
    package = HOSTS[host]
    own = import_module(f".{package}", __name__)
    return f"{host} {_version(package)}", [compared(own, what, case) for what in own.COMPARED for case in what.cases]


def unknown(host: str) -> list[str]:
    """A line for each difference that no `why` explains, and for each `why` without a difference."""
    _, found = findings(host)
    own = import_module(f".{HOSTS[host]}", __name__)
    lines = [f"{one.method} | {one.settings} | {one.case}" for one in found if not one.agrees and not one.why]
    explained = sum(len(what.why) for what in own.COMPARED)
    gone = explained - sum(bool(one.why) for one in found)
    return lines + [f"{gone} known differences do not show"] * bool(gone)


def _version(package: str) -> str:
    """The release of an installed package, or the commit of a clone."""
    try:
        return version(package)
    except PackageNotFoundError:
        spec = find_spec(package)
        place = next(iter(spec.submodule_search_locations or ()), ".") if spec else "."
        command = ["git", "-C", place, "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        return f"at {commit}" if commit else "from a clone"


def verdict(name: str, found: list[Finding]) -> str:
    """The sentence at the end of the table."""
    different = [one for one in found if not one.agrees]
    if not different:
        return f"{name} gives the reference's loss and gradient in all {len(found)} cases."
    unknown = sum(not one.why for one in different)
    known = f"{unknown} of these differences are not known yet" if unknown else "each of these differences is known"
    return f"{name} differs from the reference in {len(different)} of {len(found)} cases; {known}."
