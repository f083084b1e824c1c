"""The conformance suite passes right methods, and names the law that a wrong one breaks."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from own_part import made
from tokenpo import Batch, Credit, Loss, Objective, Rollouts, Totals
from tokenpo.core import laws as check
from tokenpo.core.ops.masked import mean
from tokenpo.core.parts import GroupAdvantage, Selection, TokenMean, Unclipped
from tokenpo.core.parts.part import Aggregate, BatchSignal, CreditStage, Memory, Penalty, SurrogateStage, Weight
from tokenpo.core.trial import Inputs, example
from tokenpo.core.types import Trust

PLAIN = Objective(credit=GroupAdvantage(), surrogate=Unclipped(), aggregate=TokenMean(), name="plain")


def _slot(**slots: Any) -> Objective:
    return dataclasses.replace(PLAIN, **slots)


def _weight(call: Any, **declared: Any) -> Objective:
    """PLAIN with a weight of its own."""
    return _slot(weights=(made(Weight, call, **declared),))


def _aggregating(call: Any) -> Objective:
    return _slot(aggregate=made(Aggregate, call))


def _broken(objective: Any) -> set[str]:
    """The names of the laws that break, read from the message."""
    try:
        check.check_method(objective)
    except check.Nonconforming as error:
        first, *rest = str(error).splitlines()
        names = {line.split(":")[0].strip() for line in rest} & {law.__name__ for law in check.LAWS}
        name = getattr(objective, "name", type(objective).__name__)
        assert first == f"{name} breaks {len(names)} of {len(check.LAWS)} laws"
        assert all(line.startswith("  ") and line[2] != " " for line in rest[::2])
        return names
    return set()


# -- wrong choices in a slot ------------------------------------------------------------------------------------------


def _ones(self: Any, batch: Batch, trust: Trust) -> Tensor:
    return torch.ones_like(trust.ratio)


def _minus(self: Any, batch: Batch, trust: Trust) -> Tensor:
    return -torch.ones_like(trust.ratio)


def _probability(self: Any, batch: Batch, trust: Trust) -> Tensor:
    return batch.policy.logprob.exp()


def _scaled(factor: Any) -> Objective:
    """PLAIN with a live factor on the value of its surrogate, a function of batch and trust."""

    def call(self: Any, batch: Batch) -> Trust:
        trust = Unclipped()(batch)
        return dataclasses.replace(trust, value=trust.value * factor(batch, trust))

    return _slot(surrogate=made(SurrogateStage, call))


def _crediting(rule: Callable[[Rollouts], Tensor]) -> Objective:
    """PLAIN with a credit of its own, [N] from the rollouts."""
    return _slot(credit=made(CreditStage, lambda self, x, bonus: rule(x)[:, None].expand(x.mask.shape)))


def _by_position(rollouts: Rollouts) -> Tensor:
    """Supposes groups of four adjacent rows."""
    reward = rollouts.reward.view(-1, 4)
    return (reward - reward.mean(1, keepdim=True)).flatten()


def _silent_rows(rollouts: Rollouts) -> Tensor:
    """The mean of the group, over rows without a token too."""
    sums, ones = torch.zeros(2, int(rollouts.group.max()) + 1, dtype=rollouts.reward.dtype)
    sums = sums.index_add(0, rollouts.group, rollouts.reward)
    ones = ones.index_add(0, rollouts.group, torch.ones_like(rollouts.reward))
    return rollouts.reward - (sums / ones)[rollouts.group]


def _optimistic(self: Any, batch: Batch) -> Trust:
    """The larger of r A and clip(r) A."""
    r, A = Unclipped()(batch).ratio, batch.credit.advantage
    bounded = r.clamp(0.8, 1.2) * A
    return Trust(torch.maximum(r * A, bounded), r, 0.8, 1.2, (bounded > r * A))


@dataclass(frozen=True)
class Sure(Selection):
    """Tokens at least as probable as a bound: two of them do not part the tokens."""

    def __call__(self, batch: Batch) -> Tensor:
        return batch.rollouts.old_logprob.exp() > 0.2


@dataclass(frozen=True)
class Remembering(Weight):
    """1, and a memory that no checkpoint can hold."""

    diary: Memory = made(Memory, start=lambda self: {}, after=lambda self, numbers, rollouts: {"best": math.inf})

    __call__ = _ones


@dataclass(frozen=True)
class Peak(BatchSignal):
    """The largest probability in the step."""

    def __call__(self, batch: Batch, trust: Any, generator: Any) -> Tensor:
        return torch.where(batch.mask, batch.policy.logprob.exp(), 0).amax().expand(batch.mask.shape)


@dataclass(frozen=True)
class ByPeak(Weight):
    peak: Peak = Peak()

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return batch.policy.logprob.exp() / batch.signal(self.peak)


# -- wrong from the outside: the same protocol without the slots ------------------------------------------------------


@dataclass(frozen=True)
class Wrapped:
    """The protocol by hand; each subclass spoils one thing."""

    inner: Objective = PLAIN

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    def prepare(self, rollouts: Rollouts) -> Credit:
        return self.inner.prepare(rollouts)

    def loss(self, batch: Batch, totals: Totals) -> Loss:
        return self.inner.loss(batch, totals)


class Greedy(Wrapped):
    """Observes whatever it is given."""

    scope = "batch"

    def loss(self, batch: Batch, totals: Totals) -> Loss:
        return self.inner.loss(self.inner.observe(batch), totals)


class GraphInCredit(Wrapped):
    """A learnt scale, whose graph the credit takes along."""

    def prepare(self, rollouts: Rollouts) -> Credit:
        return Credit(self.inner.prepare(rollouts).advantage * torch.ones(1, dtype=torch.float64, requires_grad=True))


class InPlace(Wrapped):
    def prepare(self, rollouts: Rollouts) -> Credit:
        credit = self.inner.prepare(rollouts)
        rollouts.reward.sub_(rollouts.reward.mean())
        return credit


class LateError(Wrapped):
    """Declares an input and does without it in silence."""

    needs = frozenset({"ref_logprob"})


class Crash(Wrapped):
    def loss(self, batch: Batch, totals: Totals) -> Loss:
        raise RuntimeError("boom")


def _spoilt(change: Callable[[Loss, Batch, Totals], Loss]) -> Wrapped:
    """The protocol by hand with another loss than PLAIN's."""

    def loss(self: Wrapped, batch: Batch, totals: Totals) -> Loss:
        return change(self.inner.loss(batch, totals), batch, totals)

    return type("Spoilt", (Wrapped,), {"loss": loss})()


def _another_value(value: Callable[[Loss, Batch, Totals], Tensor]) -> Wrapped:
    return _spoilt(lambda loss, batch, totals: Loss(value(loss, batch, totals), loss.terms))


def _another_term(term: Callable[[Loss, Batch], Tensor]) -> Wrapped:
    return _spoilt(lambda loss, batch, totals: Loss(loss.value, {**loss.terms, "extra": term(loss, batch)}))


def _opportune(loss: Loss, batch: Batch, totals: Totals) -> Tensor:
    """Reads an undeclared input where it happens to be there, or another in its place; parts never see one."""
    return loss.value if (batch.policy.entropy, batch.rollouts.old_entropy) == (None, None) else loss.value * 2


def _raw_padding(loss: Loss, batch: Batch, totals: Totals) -> Tensor:
    """0/0 on padding."""
    return loss.value + 0 * (batch.policy.logprob / batch.policy.logprob.detach()).sum()


COUNTED_INSIDE = _aggregating(lambda self, mask, totals: 1.0 / mask.sum().double())
WRONG = {
    "denominator counted inside": (COUNTED_INSIDE, {"rows_add_up"}),
    "mean over padding": (
        _weight(lambda self, batch, trust: batch.policy.logprob.exp().mean(1, keepdim=True).expand(batch.mask.shape)),
        {"padding_is_inert"},
    ),
    "a mean over the response, undeclared": (
        _weight(lambda self, batch, trust: mean(batch.policy.logprob.exp(), batch.mask, 1).expand(batch.mask.shape)),
        {"trajectories_count_once"},
    ),
    "undeclared where present": (_another_value(_opportune), {"needs_are_true"}),
    "declared and not missed": (LateError(), {"needs_are_true"}),
    "declared and not read": (_weight(_ones, reads={"ref_logprob"}), {"needs_are_true"}),
    "a negative weight": (_weight(_minus), {"weights_are_not_negative"}),
    "negative far away": (_weight(lambda self, batch, trust: torch.where(trust.ratio > 50, -1.0, 1.0)),
        {"weights_are_not_negative"}),
    "gradient through a weight": (_scaled(lambda batch, trust: batch.policy.logprob.exp()), {"gradient_at_ratio_one"}),
    "a live factor that is flat at 1": (_scaled(lambda batch, trust: 1 + (trust.ratio - 1) ** 2),
        {"gradient_anywhere"}),
    "max for min": (_slot(surrogate=made(SurrogateStage, _optimistic)), {"the_clip_is_pessimistic"}),
    "an entropy gradient nobody declared": (
        _slot(penalties=(made(Penalty, lambda self, batch, trust: -batch.policy.entropy, reads={"entropy"}),)),
        {"entropy_gradient_is_declared"},
    ),
    "passes that overlap": (_slot(passes=(Sure(), Sure())), {"passes_add_up"}),
    "no number to write down": (_slot(weights=(Remembering(),)), {"memory_survives_a_checkpoint"}),
    "penalty without advantage": (_slot(penalties=(made(Penalty, _probability, follows_advantage=True),)),
        {"rows_without_advantage_add_nothing"}),
    "groups by position": (_crediting(_by_position), {"order_is_free"}),
    "group ids as numbers": (_crediting(lambda x: x.reward * (1 + x.group)), {"order_is_free"}),
    "a baseline across groups": (_crediting(lambda x: x.reward - x.reward.mean()), {"groups_stand_alone"}),
    "no deviation": (_crediting(lambda x: (x.reward - x.reward.mean()) / x.reward.std()),
        {"degenerate_batches_are_finite"}),
    "rows without a token count": (_crediting(_silent_rows), {"degenerate_batches_are_finite"}),
    "float64 leaks out": (_weight(lambda self, batch, trust: batch.policy.logprob.double().exp()),
        {"half_precision_gives_float32"}),
    "global randomness": (_weight(lambda self, batch, trust: torch.rand(batch.mask.shape)), {"same_inputs_same_bytes"}),
    "changes its input": (InPlace(), {"same_inputs_same_bytes"}),
    "part for the whole": (Greedy(_slot(weights=(ByPeak(),))), {"a_part_is_not_taken_for_the_whole"}),
    "graph in the credit": (GraphInCredit(), {"credit_carries_no_gradient"}),
    "attached terms": (_another_term(lambda loss, batch: batch.policy.logprob * 1), {"credit_carries_no_gradient"}),
    "NaN from padding": (_another_value(_raw_padding),
        {"rows_add_up", "padding_is_inert", "degenerate_batches_are_finite"}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_methods_are_caught(case: str) -> None:
    objective, laws = WRONG[case]
    assert laws <= _broken(objective)


def test_every_law_is_broken_by_something() -> None:
    assert set().union(*(laws for _, laws in WRONG.values())) == {law.__name__ for law in check.LAWS}


@pytest.mark.parametrize(
    "objective",
    [
        PLAIN,
        Wrapped(),
        _slot(weights=(ByPeak(),)),
        Wrapped(tokenpo.method("hapo")),
        _slot(penalties=(made(Penalty, _probability),)),
    ],
    ids=["slots", "protocol", "batch scope", "protocol with needs", "padding left to the aggregate"],
)
def test_right_methods_pass(objective: Any) -> None:
    """The same pieces put together rightly: so it is the fault that was caught above, not the disguise."""
    assert _broken(objective) == set()


def _scribbles(self: Any, batch: Batch, trust: Trust) -> Tensor:
    batch.credit.advantage.mul_(0.5)
    return torch.ones_like(trust.ratio)


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        (
            _weight(_ones, reads={"entropies"}),
            "plain needs entropies, which is not a field of Rollouts or Policy; did you mean 'entropy'?",
        ),
        (_weight(_scribbles), "weight Mine() changed the advantage in place: let it work on a clone()"),
        (
            _weight(lambda self, batch, trust: 1 / batch.policy.logprob.abs()),
            "weight Mine() is inf behind the end of rollout ",
        ),
        (Crash(), "RuntimeError: boom"),
    ],
)
def test_what_has_no_loss_is_told_once_and_not_for_each_law(objective: Any, reason: str) -> None:
    with pytest.raises(check.Nonconforming) as caught:
        check.check_method(objective)
    name = "Crash" if isinstance(objective, Crash) else "plain"
    first = f"{name} can't be tested by the laws, which need a finite loss and gradient: "
    assert str(caught.value).startswith(first + reason)
    assert "\n" not in str(caught.value)


# -- the suite's own inputs -------------------------------------------------------------------------------------------


def test_evaluate_gives_the_loss_and_its_gradient() -> None:
    """At ratio 1 the gradient is −A / tokens, and the splits add up."""
    inputs = example(3)
    still = Inputs(inputs.rollouts, {"logprob": inputs.rollouts["old_logprob"]})
    seen = still.evaluate(PLAIN, (slice(0, 5), slice(5, None)))
    advantage = PLAIN.prepare(Rollouts.of(still.rollouts)).advantage
    torch.testing.assert_close(seen.gradient, -advantage / inputs.rollouts["mask"].sum(), rtol=1e-14, atol=0)
    assert math.isfinite(seen.loss.value)
