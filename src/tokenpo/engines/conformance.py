"""A host's own loss beside the reference, on one fixed batch, in every way that a host may cut an optimiser step up.

The reference is the objective of this package, which its tests hold to an independent implementation of each paper.
A host has a file `own_loss`, which calls the host's functions as its trainer does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.errors import TokenPOError, UnknownName, nearest
from ..core.objective import Objective
from ..core.trial import evaluate, example
from ..core.types import Policy, Rollouts
from ..methods import method

# Beyond this, relative to the reference, a loss or a gradient differs by more than a host's rounding.
TOLERANCE = 1e-6
# Padding holds other numbers, which no mean may see.
_PADDING = {"logprob": -1.0, "old_logprob": -2.0, "ref_logprob": -3.0, "rollout_logprob": -4.0, "entropy": 5.0}


@dataclass(frozen=True)
class Framework:
    """Where its functions are called, what is imported of it, and how it comes onto a machine."""

    file: str
    package: str
    remedy: str


FRAMEWORKS = {
    "trl": Framework("trl.own_loss", "trl", "pip install 'tokenpo[trl]'"),
    "verl": Framework("verl.own_loss", "verl", "pip install 'tokenpo[verl]'"),
    "skyrl": Framework("skyrl.own_loss", "skyrl", "put a clone of NovaSky-AI/SkyRL, and its skyrl-gym, on PYTHONPATH"),
    "prime-rl": Framework(
        "prime_rl.own_loss", "prime_rl",
        "put src and packages/prime-rl-configs/src of a clone of PrimeIntellect-ai/prime-rl on PYTHONPATH",
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Step:
    """One optimiser step as a host meets it; tensors are [N, T], float64."""

    rollouts: Rollouts
    policy: Policy  # leaves
    advantage: Tensor  # the reference's
    written: Tensor  # bool: the response and, inside of it, what a tool has written
    ranks: tuple[tuple[Tensor, ...], ...]  # rows of each micro-batch of each rank
    length: int  # of the longest response allowed


@dataclass(frozen=True)
class Finding:
    """A case, with the loss of host and reference, and the largest of the relative differences of loss and gradient."""

    method: str
    settings: str
    case: str
    host: float
    reference: float
    difference: float
    agrees: bool
    why: str


def _split(ranks: int, pieces: int, rows: int = 16) -> tuple[tuple[Tensor, ...], ...]:
    return tuple(share.chunk(pieces) for share in torch.arange(rows).chunk(ranks))


@dataclass(frozen=True)
class Case:
    """How the batch is cut up and changed: ranks, micro-batches of each, the mask, columns of padding behind it."""

    ranks: int = 1
    pieces: int = 1
    mask: Callable[[Tensor], Tensor] = Tensor.clone
    wider: int = 0
    alone: bool = False  # the first response, which is right, is the only one to its prompt


TOOL = torch.tensor([2, 3, 4])
ONE, EMPTY, LONE = "in one piece", "an empty response", "alone with its prompt"
PIECES: tuple[str, ...] = ("four micro-batches", "two ranks")
CASES = {
    ONE: Case(),
    PIECES[0]: Case(pieces=4),
    PIECES[1]: Case(ranks=2, pieces=2),
    # The third response is without a token that counts, as one that was cut off and is masked.
    EMPTY: Case(mask=lambda mask: mask & (torch.arange(len(mask)) != 2)[:, None]),
    # Tokens 3 to 5 of every response are a tool's.
    "a tool's tokens inside": Case(mask=lambda mask: mask & ~torch.isin(torch.arange(mask.shape[1]), TOOL)),
    "more padding": Case(wider=7),
    LONE: Case(alone=True),
}
# Of a host's own credit; all others are of its loss, with the reference's credit.
CREDIT = (ONE, LONE)


def taken(case: str, objective: Objective) -> tuple[Step, float, Tensor]:
    """The step of a case, with the reference's loss and gradient [N, T]."""
    how = CASES[case]
    inputs = example(0, moved_by=1.5)
    rows = {**inputs.rollouts, **inputs.policy}
    fields = {name: pad(rows[name].nan_to_num(x), (0, how.wider), value=x) for name, x in _PADDING.items()}
    group = rows["group"].clone()
    group[:1] += 4 * how.alone
    fields |= {"reward": rows["reward"], "group": group}
    written = pad(inputs.rollouts["mask"], (0, how.wider))
    policy = Policy(**{name: fields.pop(name) for name in ("logprob", "entropy")})
    rollouts = Rollouts(mask=how.mask(written), **fields)
    seen, facts = policy.only(objective.needs), rollouts.only(objective.needs)
    reference = evaluate(objective, facts, seen, length=inputs.rollouts["mask"].shape[1])
    leaves = Policy(*(x.clone().requires_grad_() for x in (policy.logprob, policy.need("entropy"))))
    advantage = reference.batch.credit.advantage
    step = Step(rollouts, leaves, advantage, written, _split(how.ranks, how.pieces), int(reference.totals.length))
    return step, reference.loss.value.item(), reference.gradient


@dataclass(frozen=True)
class Compared:
    """A method beside a host's settings of it, in some cases; `why` tells the difference that a case is known for."""

    method: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    why: Mapping[str, str] = field(default_factory=dict)
    cases: Collection[str] = tuple(case for case in CASES if not CASES[case].alone)


def once(method: str, options: Mapping[str, Any], settings: Mapping[str, Any], why: str) -> Compared:
    """One case is enough: it differs in every one for this reason."""
    return Compared(method, options, settings, {ONE: why}, (ONE,))


def last(step: Step) -> Tensor:
    """Rewards [N, T] on the last token that counts of each response."""
    places = torch.arange(step.rollouts.mask.shape[1]) * step.rollouts.mask
    return step.rollouts.reward[:, None] * torch.zeros_like(step.advantage).scatter(
        1, places.amax(1, keepdim=True), 1.0
    )


def compared(own: Any, what: Compared, case: str) -> Finding:
    """One row: the host's loss and gradient beside the reference's."""
    step, value, gradient = taken(case, method(what.method, **what.options))
    theirs = own.loss(step, **what.settings)
    (pulled,) = torch.autograd.grad(theirs, step.policy.logprob)
    apart = max(
        abs(float(theirs.detach()) - value) / max(abs(value), 1e-12),
        float((pulled - gradient).abs().max() / gradient.abs().max()),
    )
    named = ", ".join(f"{key}={x}" for key, x in what.settings.items()) or "defaults"
    options = "".join(f":{key}={x}" for key, x in what.options.items())
    agrees = apart < TOLERANCE
    why = "" if agrees else what.why.get(case, "")
    return Finding(what.method + options, named, case, float(theirs.detach()), value, apart, agrees, why)


def findings(host: str) -> tuple[str, list[Finding]]:
    """The host with its version, and a finding for every method and case.

    Raises:
        UnknownName: of the host.
        TokenPOError: it, or a package that it imports, is not installed, or does not import.
    """
    if host not in FRAMEWORKS:
        raise UnknownName(f"no host is called {host!r}: {nearest(host, FRAMEWORKS)}")
    known = FRAMEWORKS[host]
    if (spec := find_spec(known.package)) is None:
        raise TokenPOError(f"{host} is not installed: {known.remedy}")
    try:
        own = import_module(f".{known.file}", __package__)
    except ModuleNotFoundError as error:
        raise TokenPOError(f"{host} needs {error.name}, which is not installed: pip install it") from error
    except Exception as error:  # what a framework's import runs into, on another Python for instance
        why = str(error).partition("\n")[0]
        raise TokenPOError(f"{host} cannot be imported here: {type(error).__name__}: {why}") from error
    return f"{host} {_version(known.package, spec)}", [
        compared(own, what, case) for what in own.COMPARED for case in what.cases
    ]


def _version(package: str, spec: ModuleSpec) -> str:
    """Of an installed package its release, of a clone its commit."""
    try:
        return version(package)
    except PackageNotFoundError:
        place = next(iter(spec.submodule_search_locations or ()), ".")
        asked = ["git", "-C", place, "rev-parse", "--short", "HEAD"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        return f"at {said}" if said else "from a clone"


def verdict(name: str, found: list[Finding]) -> str:
    """The sentence at the end of the table."""
    apart = [one for one in found if not one.agrees]
    if not apart:
        return f"{name} gives the reference's loss and gradient in all {len(found)} cases."
    unknown = sum(not one.why for one in apart)
    known = f"{unknown} of these differences are not known yet" if unknown else "each of these differences is known"
    return f"{name} differs from the reference in {len(apart)} of {len(found)} cases; {known}."
