"""The conformance suite: laws that every method must obey; the first line of a law's docstring is its statement.

A method is any object with `needs`, `prepare(rollouts)` and `loss(batch, totals)`; also with `observe` and `scope` if
its loss reads the current policy over the whole step.
"""

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MissingInput, TokenPOError
from .culprit import SOUND, broken
from .objective import Objective
from .parts.part import walk
from .trial import Inputs, close, fitting, hold, leaving_inputs_alone, same
from .types import EXTRA, OPTIONAL, Batch, Rollouts, Totals, copied

# Spread of the log-ratios at which some ratios exceed 1,000 and some are below 1/1,000.
_FAR = 4.0
# (seed, spread of log-ratios, factor on the nats of nine tokens in ten): some parts act only on extreme ratios, or on
# certain tokens, or on rare ones among them.
_TRIALS = ((6, 0.4, 1.0), (61, _FAR, 1.0), (68, 0.4, 0.01))
_NATS = ("logprob", "entropy", "entropy_drift")

LAWS: list[Callable[[Any], None]] = []


class Nonconforming(AssertionError):
    """A method breaks laws; the message lists each broken law with its failure."""


def law(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Adds a law to `LAWS`."""
    LAWS.append(check)
    return check


def law_of_parts(check: Callable[[Objective], None]) -> Callable[[Any], None]:
    """Adds a law about the parts of an `Objective`; every other method passes it."""

    @functools.wraps(check)
    def checked(objective: Any) -> None:
        if isinstance(objective, Objective):
            check(objective)

    return law(checked)


@law
def rows_add_up(objective: Any) -> None:
    """Losses and gradients of disjoint rows add up: only a Signal or a BatchSignal may look beyond its rows."""
    for inputs in (fitting(objective, 1), fitting(objective, 1, groups=9, size=5)):
        whole = inputs.evaluate(objective)
        n = len(inputs.rollouts["reward"])
        for splits in (
            (slice(0, 3), slice(3, 4), slice(4, n)),
            (torch.arange(0, n, 2), torch.arange(1, n, 2)),
            tuple(slice(i, i + 1) for i in range(n)),
        ):
            same(inputs.evaluate(objective, splits), whole)


@law_of_parts
def trajectories_count_once(objective: Objective) -> None:
    """Cutting a response into several rows of one `trajectory` changes no loss, gradient or memory."""
    inputs = fitting(objective, 18)
    at = torch.rand(inputs.rollouts["mask"].shape, generator=torch.Generator().manual_seed(18)) < 0.3
    rows, places = inputs.cut(at)
    whole, cut = inputs.evaluate(objective), rows.evaluate(objective)
    close(cut.loss.value, whole.loss.value, "rows of a trajectory change the loss")
    for name in ("gradient", "entropy_gradient", "teacher_gradient"):
        expected = getattr(whole, name).flatten()[places].where(places >= 0, 0.0)
        close(getattr(cut, name), expected, f"rows of a trajectory change the {name}")
    memories = [objective.after(objective.start(), Rollouts.of(x.rollouts)) for x in (inputs, rows)]
    hold(memories[0] == memories[1], f"rows of a trajectory change the memory: {memories[1]}, not {memories[0]}")
    if not objective.of_response:
        apart = rows.evaluate(objective, torch.arange(len(places)).split(7))
        remedy = "put of_response = True into the class that reads other tokens of the response"
        same(apart, cut, f"a row of a trajectory without the others has another loss: {remedy}")


@law
def padding_is_inert(objective: Any) -> None:
    """Neither the content nor the amount of padding changes loss or gradient; padding gets no gradient."""
    inputs = fitting(objective, 2)
    mask = inputs.rollouts["mask"]
    whole = inputs.evaluate(objective)
    for gradient in (whole.gradient, whole.entropy_gradient, whole.teacher_gradient):
        hold(not gradient[~mask].any(), "padding has a gradient")
    same(inputs.map_tokens(lambda x: x.masked_fill(~mask, 0)).evaluate(objective), whole)

    wide = inputs.map_tokens(lambda x: torch.cat([x, torch.zeros_like(x)], 1)).evaluate(objective)
    same(wide.at((slice(None), slice(mask.shape[1]))), whole)


@law
def order_is_free(objective: Any) -> None:
    """The order of the rows and the ids of the groups change nothing (random draws excepted)."""
    if getattr(objective, "draws", False):
        return
    inputs = fitting(objective, 3)
    whole = inputs.evaluate(objective)
    order = torch.randperm(len(whole.gradient), generator=torch.Generator().manual_seed(0))
    shuffled = inputs.map(lambda x: x[order]).evaluate(objective)
    same(shuffled, whole.at(order))
    renamed = inputs.replace(group=(inputs.rollouts["group"] * 7919 + 13) % 101)
    same(renamed.evaluate(objective), whole)


@law
def groups_stand_alone(objective: Any) -> None:
    """The credit of a rollout depends on its own group alone, unless `across_groups` is declared."""
    parts = walk(objective) if isinstance(objective, Objective) else (objective,)
    if any(getattr(part, "across_groups", False) for part in parts):
        return
    rollouts = fitting(objective, 16).rollouts
    group = rollouts["group"]
    rollouts["reward"] = rollouts["reward"].masked_fill(group == 2, 1.0)  # some methods count groups of equal rewards
    credit = objective.prepare(Rollouts.of(rollouts)).advantage
    culprit = f": credit {objective.credit!r}" if isinstance(objective, Objective) else ""
    remedy = "compare within the group, or put across_groups = True into its class"
    for rest in (group != 1, group != 2):
        alone = objective.prepare(Rollouts.of({name: x[rest] for name, x in rollouts.items()})).advantage
        close(alone, credit[rest], f"without one of the groups the credit of the others changes{culprit}: {remedy}")


@law_of_parts
def weights_are_not_negative(objective: Objective) -> None:
    """Each weight is >= 0 on every response token: a weight must not change the sign of an advantage."""
    for inputs in (fitting(objective, 15), fitting(objective, 15, moved_by=_FAR)):
        for stage in objective.weights:
            alone = inputs.evaluate(dataclasses.replace(objective, weights=(stage,))).loss.terms["weight"]
            least = alone[inputs.rollouts["mask"]].min()
            hold(least >= 0, f"{stage!r} is {float(least):g}: a part that turns signs is a surrogate or the credit")


@law_of_parts
def gradient_at_ratio_one(objective: Objective) -> None:
    """Where the policy has not moved, the gradient is −weight · A · coefficient per token (penalties apart)."""
    inputs = fitting(objective, 4)
    anchor = "rollout_logprob" if getattr(objective, "bypass", False) else "old_logprob"
    still = {**inputs.policy, "logprob": inputs.rollouts[anchor]}
    _slope_is_the_ratio(objective, Inputs(inputs.rollouts, still))


@law_of_parts
def gradient_anywhere(objective: Objective) -> None:
    """Wherever the policy has moved, the gradient inside the bounds is −weight · A · ratio · coefficient per token."""
    if objective.surrogate.own_slope:
        return
    for moved_by in (0.01, 0.4, _FAR):
        _slope_is_the_ratio(objective, fitting(objective, 4, moved_by=moved_by))


@law_of_parts
def the_clip_is_pessimistic(objective: Objective) -> None:
    """A ratio beyond its bounds gets no gradient where that raises the objective, and all of it where it lowers it."""
    if objective.surrogate.own_slope:
        return
    for moved_by in (0.4, _FAR):
        inputs = fitting(objective, 17, moved_by=moved_by)
        t = inputs.evaluate(objective).loss.terms
        up, down = t["advantage"] > 0, t["advantage"] < 0
        gains = up & (t["ratio"] > t["high"]) | down & (t["ratio"] < t["low"])
        loses = up & (t["ratio"] < t["high"]) | down & (t["ratio"] > t["low"]) & (t["ratio"] < 1)
        for wrong, what in ((gains & ~t["clipped"], "has a gradient"), (loses & t["clipped"], "has none")):
            for place in (wrong & inputs.rollouts["mask"]).nonzero().tolist():
                ratio, low, high, sign = (float(t[name][*place]) for name in ("ratio", "low", "high", "advantage"))
                raise AssertionError(
                    f"surrogate {objective.surrogate!r}: a ratio of {ratio:.3g} with bounds {low:.3g} to {high:.3g} "
                    f"and an advantage {'above' if sign > 0 else 'below'} 0 {what}: take the smaller of r · A and "
                    "clip(r) · A, or put own_slope = True into its class"
                )


@law
def degenerate_batches_are_finite(objective: Any) -> None:
    """A group of one, equal rewards or no entropy give finite numbers; a row without tokens counts nowhere."""
    inputs = fitting(objective, 5)
    n, mask = len(inputs.rollouts["reward"]), inputs.rollouts["mask"].clone()
    mask[2] = False
    silent, sure = inputs.replace(mask=mask), torch.zeros(mask.shape, dtype=torch.float64)
    cases = {
        "a group of one": inputs.replace(group=torch.arange(n)),
        "equal rewards": inputs.replace(reward=torch.full((n,), 0.1)),
        "a row without tokens": silent,
        "zero entropy": Inputs(inputs.replace(old_entropy=sure).rollouts, {**inputs.policy, "entropy": sure}),
    }
    outcomes = {name: case.evaluate(objective) for name, case in cases.items()}
    for name, one in outcomes.items():
        hold(torch.isfinite(one.loss.value), f"{name}: the loss is {float(one.loss.value)}")
        hold(torch.isfinite(one.gradient).all(), f"{name}: the gradient is not finite")
        hold(not one.gradient[~cases[name].rollouts["mask"]].any(), f"{name}: padding has a gradient")
    rest = torch.arange(n) != 2
    whole, without = outcomes["a row without tokens"], silent.map(lambda x: x[rest]).evaluate(objective)
    same(without, whole.at(rest))
    reward = silent.rollouts["reward"].clone()
    reward[2] += 7.0
    same(silent.replace(reward=reward).evaluate(objective), whole, "the reward of a row without tokens counts")


@law
def rows_without_advantage_add_nothing(objective: Any) -> None:
    """If the method declares `follows_advantage`, rows whose advantage is 0 can be skipped."""
    if not getattr(objective, "follows_advantage", False):
        return
    inputs = fitting(objective, 11)
    dull = inputs.rollouts["group"] == 1
    inputs = inputs.replace(reward=inputs.rollouts["reward"].masked_fill(dull, 1.0))
    credit = objective.prepare(Rollouts.of(inputs.rollouts))
    empty = ~credit.advantage.any(1)
    whole = inputs.evaluate(objective)
    hold(not whole.gradient[empty].any(), "a row without advantage has a gradient")
    same(inputs.evaluate(objective, ((~empty).nonzero()[:, 0],)), whole)


@law
def needs_are_true(objective: Any) -> None:
    """An undeclared input changes nothing; a declared one does, and its absence raises an error that names it."""
    inputs = fitting(objective, 6)
    whole = inputs.evaluate(objective)
    same(inputs.without(*(OPTIONAL | EXTRA.keys()) - objective.needs).evaluate(objective), whole)
    unread = {part.gives for part in getattr(objective, "supplied", ()) if part.unread}
    for name in sorted(objective.needs):
        try:
            inputs.without(name).evaluate(objective)
        except MissingInput as error:
            hold(name in str(error), f"the error for a missing {name} does not name it: {error}")
        else:
            raise AssertionError(f"{name} is declared, but its absence goes unnoticed")
        trials = ((fitting(objective, seed, moved_by=far), sure) for seed, far, sure in _TRIALS)
        depends = name in unread or any(_reads(objective, name, *trial) for trial in trials)
        hold(depends, f"{name} is declared, but nothing depends on it: take it out of reads")


@law
def entropy_gradient_is_declared(objective: Any) -> None:
    """A gradient goes through the entropy only if `entropy_gradient` is declared: engines drop its graph otherwise."""
    gradient = fitting(objective, 12).evaluate(objective).entropy_gradient.any()
    hold(getattr(objective, "entropy_gradient", False) or not gradient, "the entropy has a gradient nobody declared")


@law
def credit_carries_no_gradient(objective: Any) -> None:
    """Phase one carries no graph, and terms are detached and of shape [N, T]."""
    inputs = fitting(objective, 7)
    attached = inputs.map(lambda x: x.clone().requires_grad_() if x.is_floating_point() else x)
    credit = objective.prepare(Rollouts.of(attached.rollouts))
    for x in (credit.advantage, *credit.signals.values()):
        hold(not x.requires_grad, "the credit has a gradient")
    for name, x in inputs.evaluate(objective).loss.terms.items():
        hold(not x.requires_grad and x.shape == inputs.rollouts["mask"].shape, f"term {name} is attached or misshapen")


@law
def half_precision_gives_float32(objective: Any) -> None:
    """float16, bfloat16 and float32 inputs give a float32 loss."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        inputs = fitting(objective, 8).map(lambda x, to=dtype: x.to(to) if x.is_floating_point() else x)
        loss = inputs.evaluate(objective).loss.value
        hold(loss.dtype == torch.float32, f"{dtype} inputs give a {loss.dtype} loss")


@law
def same_inputs_same_bytes(objective: Any) -> None:
    """Evaluating twice gives the same bits and leaves the inputs and the credit as they were."""
    inputs = fitting(objective, 9)
    kept = inputs.map(Tensor.clone)
    first, second = inputs.evaluate(objective), inputs.evaluate(objective)
    advantage = objective.prepare(Rollouts.of(inputs.rollouts)).advantage
    kept_advantage = torch.equal(first.batch.credit.advantage, advantage)
    hold(kept_advantage, "the loss changed the advantage in place: let it work on a clone()")
    equal = torch.equal(first.gradient, second.gradient) and torch.equal(first.loss.value, second.loss.value)
    hold(equal, "the second evaluation is not the first")
    for before, after in ((kept.rollouts, inputs.rollouts), (kept.policy, inputs.policy)):
        for name, x in before.items():
            hold(torch.equal(x.nan_to_num(), after[name].nan_to_num()), f"{name} was changed in place")


@law
def a_part_is_not_taken_for_the_whole(objective: Any) -> None:
    """An objective of batch scope rejects a part of a step if `observe` did not see the whole step."""
    if getattr(objective, "scope", "row") == "row":
        return
    inputs = fitting(objective, 10)
    rollouts, policy = inputs.values()
    batch = Batch(rollouts, objective.prepare(rollouts), policy)
    try:
        objective.loss(batch.rows(slice(0, 3)), Totals.of(rollouts))
    except TokenPOError:
        return
    raise AssertionError("statistics of three rows were taken for those of the step")


@law_of_parts
def passes_add_up(objective: Objective) -> None:
    """If the method makes several optimiser passes, their losses at the same weights add up to its loss."""
    if not objective.passes:
        return
    inputs = fitting(objective, 13)
    parts = [inputs.evaluate(part) for part in objective.split()]
    whole = inputs.evaluate(objective)
    close(torch.stack([part.loss.value for part in parts]).sum(), whole.loss.value)
    close(torch.stack([part.gradient for part in parts]).sum(0), whole.gradient)


@law_of_parts
def memory_survives_a_checkpoint(objective: Objective) -> None:
    """A method's memory is finite numbers; after writing and reading them as JSON, the next batch is the same."""
    objective, rollouts = leaving_inputs_alone(objective), Rollouts.of(fitting(objective, 14).rollouts)
    state = objective.start()
    for _ in range(3):
        state = objective.after(state, rollouts)
    for memory, numbers in state.items():
        sound = all(isinstance(x, float | int) and math.isfinite(x) for x in numbers.values())
        hold(sound, f"memory {memory!r} holds {dict(numbers)}, not finite Python numbers by name")
    read = {memory: json.loads(json.dumps(dict(numbers), allow_nan=False)) for memory, numbers in state.items()}
    hold(read == {memory: dict(numbers) for memory, numbers in state.items()}, f"{state} is not what was read: {read}")
    first, second = objective.prepare(rollouts, state), objective.prepare(rollouts, read)
    for before, after in zip(first.signals.values(), second.signals.values(), strict=True):
        hold(torch.equal(before, after), "the numbers read again lead elsewhere")


def check_method(objective: Any) -> tuple[str, ...]:
    """Checks a method against every law and returns the laws' names.

    Args:
        objective: an `Objective`, or anything with `needs`, `prepare(rollouts)` and `loss(batch, totals)`.

    Raises:
        Nonconforming: lists every broken law with its failure, or says why an ordinary batch has no finite loss.
    """
    name = getattr(objective, "name", type(objective).__name__)
    if reason := _unsound(objective):
        raise Nonconforming(f"{name} can't be tested by the laws, which need a finite loss and gradient: {reason}")
    failed = []
    for law in LAWS:
        try:
            law(objective)
        except Exception as error:  # a method may raise anything, and the report must list every broken law
            failed.append(f"{law.__name__}: {statement(law)}\n    {type(error).__name__}: {_told(error)}")
    if failed:
        raise Nonconforming(f"{name} breaks {len(failed)} of {len(LAWS)} laws\n  " + "\n  ".join(failed))
    return tuple(law.__name__ for law in LAWS)


def statement(law: Callable[[Any], None]) -> str:
    """The law in one line."""
    return (law.__doc__ or "").partition("\n")[0]


def _unsound(objective: Any) -> str:
    """Why an ordinary batch has no finite loss and gradient; "" if it has."""
    inputs, parts = fitting(objective), isinstance(objective, Objective)
    watched = leaving_inputs_alone(objective) if parts else objective
    try:
        step = inputs.evaluate(watched)
    except Exception as error:  # as with the laws
        kind = "" if isinstance(error, TokenPOError) else f"{type(error).__name__}: "
        return f"{kind}{_told(error)}{_undeclared(watched, inputs) if parts else ''}"
    if not parts or (step.loss.value.isfinite() and step.gradient.isfinite().all()):
        return ""
    return str(broken(objective, step.batch, step.totals) or SOUND)


def _told(error: Exception) -> str:
    """Message and notes in one line; a note names the part that raised."""
    return " ".join(" ".join([*(f"{note}:" for note in getattr(error, "__notes__", ())), str(error)]).split())


def _undeclared(objective: Objective, inputs: Inputs) -> str:
    """Text about an undeclared input with which the evaluation succeeds; "" if there is none."""
    for name in sorted((OPTIONAL | EXTRA.keys()) - objective.needs):
        with contextlib.suppress(Exception):
            inputs.evaluate(copied(objective, needs=objective.needs | {name}))
            return f"; a part reads {name}, which it does not declare: put it into `reads` of its class"
    return ""


def _slope_is_the_ratio(objective: Objective, inputs: Inputs) -> None:
    """Requires the gradient, without penalties, to be −weight · A · ratio · coefficient, or 0 where clipped."""
    step = inputs.evaluate(dataclasses.replace(objective, penalties=()))
    t, mask = step.loss.terms, inputs.rollouts["mask"]
    equal = (t["ratio"] == t["ratio"][:, :1]).where(mask, True).all()
    # A ratio of whole responses spreads the gradient over the response; then the sums over the rows must agree.
    of_response = equal and not (t["ratio"] == 1).where(mask, True).all()
    expected = -(t["weight"] * t["ratio"] * t["advantage"] * ~t["clipped"]) * t["coefficient"]
    expected = expected.where(mask, 0.0)
    per_row = step.gradient.sum(1, keepdim=True)
    even = torch.where(mask, per_row / mask.sum(1, keepdim=True), 0.0)
    prefix = f"the gradient of surrogate {objective.surrogate!r} is not that of weight · ratio · advantage"
    if of_response or torch.allclose(step.gradient, even, rtol=1e-11, atol=1e-14):
        close(per_row, expected.sum(1, keepdim=True), prefix)
    else:
        close(step.gradient, expected, prefix)


def _reads(objective: Any, name: str, inputs: Inputs, sure: float) -> bool:
    """Whether other numbers in the input `name` change anything; `sure` scales the nats of most tokens."""
    factor = torch.where(inputs.rollouts["token_ids"] % 10 > 0, sure, 1.0)
    inputs = inputs.replace(**{key: inputs.rollouts[key] * factor for key in ("old_entropy", "old_logprob")})
    inputs = Inputs(inputs.rollouts, {**inputs.policy, **{k: inputs.policy[k] * factor for k in _NATS}})
    other = fitting(objective, 1006)

    def exchanged(fields: dict[str, Tensor], drawn: dict[str, Tensor]) -> dict[str, Tensor]:
        swap = {name: torch.where(drawn[name].isfinite(), drawn[name], fields[name])} if name in fields else {}
        return {**fields, **swap}

    second = Inputs(exchanged(inputs.rollouts, other.rollouts), exchanged(inputs.policy, other.policy))
    before, after = _everything(objective, inputs), _everything(objective, second)
    return not all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def _everything(objective: Any, inputs: Inputs) -> list[Tensor]:
    rollouts, state = Rollouts.of(inputs.rollouts), None
    tensors = list(objective.prepare(rollouts).signals.values())
    if isinstance(objective, Objective):
        # A coefficient in a memory may start at 0 and grow only once entropies are low.
        state = objective.after(objective.start(), Rollouts.of(fitting(objective, 1007).rollouts))
        for _ in range(2):
            state = objective.after(state, rollouts)
        tensors += [torch.tensor(list(numbers.values()), dtype=torch.float64) for numbers in state.values()]
    step = inputs.evaluate(objective, state=state)
    return [
        x.nan_to_num() for x in (*tensors, step.loss.value, step.gradient, step.entropy_gradient, step.teacher_gradient)
    ]
