"""What parts of a user's own do wrong, told by objective, slot, part and place."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from own_part import made
from tokenpo import Batch, MissingInput, Objective, Rollouts, TokenPOError, UnknownName, check_method
from tokenpo.core.laws import Nonconforming
from tokenpo.core.parts import Clip, Selection, Signal, SignalWeight, SurrogateStage, Weight, walk
from tokenpo.core.parts.part import Aggregate, BatchSignal, CreditStage, Memory, MemorySignal, Part, Penalty, Shaping
from tokenpo.core.trial import example

GRPO = tokenpo.method("grpo")


def _fails(self: Any, *given: Any) -> Any:
    return {}["x"]


LINE = inspect.getsourcelines(_fails)[1] + 1
REASON = f"raised KeyError at test_protocol.py:{LINE}: 'x'"


def _told(objective: Objective) -> TokenPOError:
    with pytest.raises(TokenPOError) as caught:
        example(0).evaluate(objective)
    return caught.value


def _weighing(call: Callable[..., Any]) -> Objective:
    return dataclasses.replace(GRPO, weights=(made(Weight, call),))


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


@pytest.mark.parametrize("slot", SLOTS)
def test_what_a_part_raises_is_told_with_its_place(slot: str) -> None:
    kind, slots = SLOTS[slot]
    part = made(kind, start=_fails) if slot == "memory" else made(kind, _fails)
    error = _told(dataclasses.replace(GRPO, **slots(part)))
    assert str(error) == f"objective grpo: {slot.removesuffix(' of a step')} Mine() {REASON}"
    assert isinstance(error.__cause__, KeyError)


def test_the_place_is_in_the_users_file_and_not_in_what_it_calls() -> None:
    """Here torch raises, in a function of its own that a decorator of torch's wraps."""

    @torch.no_grad()
    def call(self: Any, batch: Batch, trust: Any) -> Tensor:
        return torch.split(batch.policy.logprob, "two")

    error = _told(_weighing(call))
    line = inspect.getsourcelines(inspect.unwrap(call))[1] + 2
    assert str(error).startswith(f"objective grpo: weight Mine() raised TypeError at test_protocol.py:{line}: ")


def test_a_bare_error_says_in_which_function() -> None:
    def call(self: Any, batch: Batch, trust: Any) -> Tensor:
        raise AssertionError

    error = _told(_weighing(call))
    line = inspect.getsourcelines(call)[1] + 1
    assert str(error) == f"objective grpo: weight Mine() raised AssertionError in call at test_protocol.py:{line}"


def test_a_part_inside_a_part_of_ours_is_told_where_it_is() -> None:
    objective = dataclasses.replace(GRPO, weights=(tokenpo.core.parts.Keep(made(Selection, _fails)),))
    assert str(_told(objective)) == f"objective grpo: weight Keep(selection=Mine()) {REASON}"


@pytest.mark.parametrize(
    "error",
    [MissingInput("mine needs a file"), torch.cuda.OutOfMemoryError("no room"), RuntimeError("can't allocate memory")],
)
def test_our_own_errors_and_what_the_machine_lacks_pass_as_they_are(error: Exception) -> None:
    def call(self: Any, batch: Batch, trust: Any) -> Tensor:
        raise error

    with pytest.raises(type(error)) as caught:
        example(0).evaluate(_weighing(call))
    assert caught.value is error


UNDECLARED = "reads old_entropy, which it does not declare: put reads = {"


@pytest.mark.parametrize("slot", [slot for slot in SLOTS if slot not in ("aggregate", "memory")])
@pytest.mark.parametrize(
    ("more", "remedy"), [({}, '"old_entropy"'), ({"reads": {"entropy"}}, '"entropy", "old_entropy"')]
)
def test_an_input_that_is_read_undeclared_is_named_with_the_remedy(slot: str, more: dict, remedy: str) -> None:
    """Of the part that reads it and not of one that holds it, although the batch has it."""
    kind, slots = SLOTS[slot]
    part = made(kind, lambda self, given, *more: given.need("old_entropy"), **more)
    objective = dataclasses.replace(GRPO, **slots(part))
    said = f"objective grpo: Mine() {UNDECLARED}{remedy}}} into its class"
    with pytest.raises(MissingInput) as caught:
        example(0).evaluate(objective)
    assert str(caught.value) == said
    with pytest.raises(Nonconforming) as broken:
        check_method(objective)
    assert str(broken.value).endswith(f"which take a finite loss and gradient: {said}")


def test_an_input_of_a_memory_too() -> None:
    memory = made(
        MemorySignal, lambda self, rollouts, numbers: rollouts.old_logprob.exp(), start=lambda self: {},
        after=lambda self, numbers, rollouts: rollouts.need("old_entropy"),
    )  # fmt: skip
    objective = dataclasses.replace(GRPO, weights=(SignalWeight(memory),))
    with pytest.raises(MissingInput, match=re.escape(UNDECLARED)):
        objective.after(objective.start(), Rollouts(**example(0).rollouts))


def test_an_absent_field_that_the_code_names_is_told_with_what_it_raised() -> None:
    def call(self: Any, batch: Batch, trust: Any) -> Tensor:
        return 1 + batch.rollouts.old_entropy

    objective = _weighing(call)
    with pytest.raises(TokenPOError) as caught:
        example(0).evaluate(objective)
    said = "; old_entropy is None there, as no part declares it: declare it in reads"
    assert " raised TypeError at test_protocol.py:" in str(caught.value) and str(caught.value).endswith(said)
    assert str(_told(_weighing(_fails))).endswith("'x'")


def test_a_part_that_asks_for_no_field_is_told_the_nearest() -> None:
    part = made(Weight, lambda self, batch, trust: batch.need("old_entropies"))
    with pytest.raises(UnknownName, match=r"^Rollouts has no field 'old_entropies'; did you mean 'old_entropy'\?$"):
        example(0).evaluate(dataclasses.replace(GRPO, weights=(part,)))


def test_what_the_surrogate_raises_is_the_surrogates_wherever_it_is_asked() -> None:
    """A signal of the step looks at it while it is asked itself."""

    def look(self: Any, batch: Batch, trust: Callable, generator: Any) -> Tensor:
        return trust().ratio

    signal = SignalWeight(made(BatchSignal, look))
    objective = dataclasses.replace(GRPO, surrogate=made(SurrogateStage, _fails), weights=(signal,))
    assert str(_told(objective)) == f"objective grpo: surrogate Mine() {REASON}"


NUMBERS = "return a dict of finite Python numbers by name"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (None, "None"),
        (1.0, "a float"),
        ({"mean": None}, "{'mean': None}"),
        ({"mean": float("nan")}, "{'mean': nan}"),
        ({"mean": float("inf")}, "{'mean': inf}"),
        ({"mean": "much"}, "{'mean': 'much'}"),
        ({"mean": torch.tensor(0.5)}, "{'mean': tensor(0.5000)}"),
        ({1: 0.5}, "{1: 0.5}"),
    ],
)
def test_a_memory_holds_finite_numbers_by_name(said: Any, seen: str) -> None:
    def remembers(**answers: Any) -> Objective:
        calls = {name: lambda self, *given, x=x: x for name, x in answers.items()}
        memory = made(MemorySignal, lambda self, rollouts, numbers: rollouts.old_logprob.exp(), **calls)
        return dataclasses.replace(GRPO, weights=(SignalWeight(memory),))

    with pytest.raises(TokenPOError) as caught:
        remembers(start=said, after={}).start()
    assert str(caught.value) == f"objective grpo: memory Mine() returned {seen}: let its start {NUMBERS}"
    objective = remembers(start={"mean": 0.5}, after=said)
    state = objective.start()
    assert list(state.values()) == [{"mean": 0.5}]
    with pytest.raises(TokenPOError) as caught:
        objective.after(state, Rollouts(**example(0).rollouts))
    assert str(caught.value) == f"objective grpo: memory Mine() returned {seen}: let its after {NUMBERS}"


class Bare(Weight):
    """Without a decorator: a subclass of a part is a frozen dataclass."""

    signal: Signal

    def __call__(self, batch: Batch, trust: Any) -> Tensor:
        return batch.signal(self.signal)


class Hiding(Clip):
    def __init__(self, bounds: Any, share: float) -> None:
        super().__init__(bounds)
        self.share = share


class Another(Clip):
    """The fields of its base, another call, and something kept."""

    @functools.cached_property
    def kept(self) -> int:
        return 1


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


def test_a_subclass_may_change_what_is_called_and_keep_what_it_computed() -> None:
    other = Another(GRPO.surrogate.bounds)
    assert other.kept
    assert dataclasses.replace(GRPO, surrogate=other).surrogate is other


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        (Weight, "entropy_gradient", "True or False"),
        (Weight, "idle_on_policy", "True or False"),
        (Penalty, "follows_advantage", "True or False"),
        (BatchSignal, "draws", "True or False"),
        (Memory, "reads", "a set of names"),
    ],
)
def test_what_a_part_says_of_itself_is_no_method(kind: type, name: str, words: str) -> None:
    """A forgotten @property would be a method, and true."""
    with pytest.raises(TokenPOError) as caught:
        _held(made(kind, **{name: lambda self: False}))
    assert str(caught.value) == (
        f"objective grpo: {name} of Mine is a method: let it be {words}, or a property that returns it"
    )
    with pytest.raises(TokenPOError) as caught:
        _held(made(kind, **{name: property(_fails)}))
    assert str(caught.value) == f"objective grpo: {name} of Mine {REASON}"


def _held(part: Any) -> Objective:
    """An objective that holds it somewhere."""

    @dataclass(frozen=True)
    class Holder(Weight):
        inner: Part

    return dataclasses.replace(GRPO, weights=(Holder(part),))
