"""Parts of a user's own: their errors get a note, `check_method` catches their mistakes, and they are frozen values."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from own_part import gives, made
from tokenpo import Batch, MissingInput, Objective, UnknownName, check_method
from tokenpo.core.laws import Nonconforming
from tokenpo.core.parts import Clip, Selection, Signal, SignalWeight, SurrogateStage, Weight, walk
from tokenpo.core.parts.part import Aggregate, BatchSignal, CreditStage, MemorySignal, Penalty, Shaping
from tokenpo.core.trial import example

GRPO = tokenpo.method("grpo")


def _fails(self: Any, *given: Any) -> Any:
    return {}["x"]


SLOTS = {
    "shaping": (Shaping, lambda part: {"shaping": (part,)}),
    "credit": (CreditStage, lambda part: {"credit": part}),
    "surrogate": (SurrogateStage, lambda part: {"surrogate": part}),
    "aggregate": (Aggregate, lambda part: {"aggregate": part}),
    "weight": (Weight, lambda part: {"weights": (part,)}),
    "penalty": (Penalty, lambda part: {"penalties": (part,)}),
    "selection": (Selection, lambda part: {"only": part}),
    "signal": (Signal, lambda part: {"weights": (SignalWeight(part),)}),
    "signal of a step": (BatchSignal, lambda part: {"weights": (SignalWeight(part),)}),
    "memory": (MemorySignal, lambda part: {"weights": (SignalWeight(part),)}),
}


def _with(slot: str, call: Callable[..., Any], **declared: Any) -> Objective:
    kind, slots = SLOTS[slot]
    part = made(kind, start=call, **declared) if slot == "memory" else made(kind, call, **declared)
    return dataclasses.replace(GRPO, **slots(part))


def _refused(objective: Objective) -> str:
    with pytest.raises(Nonconforming) as caught:
        check_method(objective)
    return str(caught.value)


@pytest.mark.parametrize("slot", SLOTS)
def test_what_a_part_raises_is_kept_and_noted_with_its_place(slot: str) -> None:
    with pytest.raises(KeyError) as caught:
        example(0).evaluate(_with(slot, _fails))
    note = f"objective grpo: {slot.removesuffix(' of a step')} Mine()"
    assert caught.value.__notes__ == [note]
    assert f"KeyError: {note}: 'x'" in _refused(_with(slot, _fails))


@pytest.mark.parametrize("slot", [slot for slot in SLOTS if slot not in ("aggregate", "memory")])
@pytest.mark.parametrize(
    "read",
    [
        lambda given: given.need("old_entropy"),
        lambda given: 1 + getattr(given, "rollouts", given).old_entropy,  # None there: TypeError
    ],
)
def test_an_input_that_is_read_undeclared_is_caught_by_the_laws(slot: str, read: Callable[[Any], Tensor]) -> None:
    """Although the batch has it."""
    kind = SLOTS[slot][0]
    like = gives(Weight, None) if kind is SurrogateStage else None  # a surrogate would have to return a Trust

    def call(self: Any, given: Any, *more: Any) -> Any:
        x = read(given)
        return x.sum(1) if kind is Shaping else x > 0 if kind is Selection else GRPO.surrogate(given) if like else x

    said = _refused(_with(slot, call))
    assert "; a part reads old_entropy, which it does not declare: put it into `reads`" in said
    with pytest.raises((MissingInput, TypeError)):
        example(0).evaluate(_with(slot, call))
    example(0).evaluate(_with(slot, call, reads={"old_entropy"}))


def test_a_part_that_asks_for_no_field_is_told_the_nearest() -> None:
    part = made(Weight, lambda self, batch, trust: batch.need("old_entropies"))
    with pytest.raises(UnknownName, match=r"^Rollouts has no field 'old_entropies'; did you mean 'old_entropy'\?"):
        example(0).evaluate(dataclasses.replace(GRPO, weights=(part,)))


@pytest.mark.parametrize(
    ("slot", "tensor", "result", "name"),
    [
        ("shaping", lambda x: x.reward, lambda x: 0 * x.reward, "reward"),
        ("signal", lambda x: x.old_logprob, lambda x: 1 + 0 * x.old_logprob, "old_logprob"),
        ("surrogate", lambda x: x.credit.advantage, lambda x: GRPO.surrogate(x), "the advantage"),
        ("weight", lambda x, trust: trust.ratio, lambda x, trust: 0 * trust.ratio, "ratio"),
        ("aggregate", lambda mask, totals: mask, lambda mask, totals: 0.0, "an argument"),
    ],
)
def test_a_part_that_writes_into_its_arguments_is_caught_by_the_laws(
    slot: str, tensor: Callable[..., Tensor], result: Callable[..., Any], name: str
) -> None:
    def call(self: Any, *given: Any) -> Any:
        with torch.no_grad():
            written = tensor(*given)
            written.copy_(written.clone())  # no number changes
        return result(*given)

    said = _refused(_with(slot, call))
    assert said.endswith(f"{slot.removesuffix(' of a step')} Mine() changed {name} in place: let it work on a clone()")


class Bare(Weight):
    """Without a decorator: a subclass of a part is a frozen dataclass."""

    signal: Signal

    def __call__(self, batch: Batch, trust: Any) -> Tensor:
        return batch.signal(self.signal)


class Hiding(Clip):
    def __init__(self, bounds: Any, share: float) -> None:
        super().__init__(bounds)
        self.share = share


def test_a_subclass_is_a_frozen_dataclass_whatever_stands_above_it() -> None:
    signal = made(Signal)
    assert Bare(signal) == Bare(signal=signal) and hash(Bare(signal)) == hash(Bare(signal))
    assert list(walk(Bare(signal))) == [Bare(signal), signal]
    for above in (dataclass(frozen=True), dataclass(frozen=True, eq=False)):
        kind = above(type("Decorated", (Weight,), {"__annotations__": {"x": float}}))
        assert kind(1.0) == kind(1.0) != kind(2.0) and hash(kind(1.0)) == hash(kind(1.0))
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind(1.0).x = 2.0
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Loose", (Weight,), {}))


def test_nothing_hides_outside_the_fields() -> None:
    with pytest.raises(
        dataclasses.FrozenInstanceError, match="Hiding is frozen: declare share as a field of its class"
    ):
        Hiding(GRPO.surrogate.bounds, 0.5)
    with pytest.raises(dataclasses.FrozenInstanceError, match="Clip is frozen"):
        del GRPO.surrogate.bounds
    with pytest.raises(dataclasses.FrozenInstanceError, match="Clip is frozen"):
        GRPO.surrogate.dual = 2.0
