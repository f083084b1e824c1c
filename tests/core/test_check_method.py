"""The conformance suite passes what is right and names what is wrong: each wrong method breaks the law it should."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from tokenpo import Batch, Credit, Loss, Objective, Rollouts, Totals
from tokenpo.core import laws as check
from tokenpo.core.parts import (
    Aggregate,
    BatchSignal,
    CreditStage,
    GroupAdvantage,
    Memory,
    Penalty,
    Selection,
    SurrogateStage,
    TokenMean,
    Unclipped,
    Weight,
)
from tokenpo.core.trial import Inputs, example
from tokenpo.core.types import Trust

PLAIN = Objective(credit=GroupAdvantage(), surrogate=Unclipped(), aggregate=TokenMean(), name="plain")


def _broken(objective: Any) -> set[str]:
    """The names of the laws that break, read from the message."""
    try:
        check.check_method(objective)
    except check.Nonconforming as error:
        first, *rest = str(error).splitlines()
        names = {line.split(":")[0].strip() for line in rest} & {law.__name__ for law in check.LAWS}
        name = getattr(objective, "name", type(objective).__name__)
        assert first == f"{name} breaks {len(names)} of {len(check.LAWS)} laws"
        return names
    return set()


# -- wrong choices in a slot ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnCount(Aggregate):
    """Counts the tokens of the rows it sees."""

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor:
        return 1.0 / mask.sum().double()


@dataclass(frozen=True)
class Centred(Weight):
    """A statistic of the rows at hand, over the tokens."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        p = torch.where(batch.mask, batch.policy.logprob.exp(), 0)
        return p / (p.sum() / batch.mask.sum())


@dataclass(frozen=True)
class PaddedMean(Weight):
    """A row statistic over padding too."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return batch.policy.logprob.exp().mean(1, keepdim=True).expand(batch.mask.shape)


@dataclass(frozen=True)
class Secret(Weight):
    """Reads an input that it does not declare."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return 1 + batch.need("old_entropy")


@dataclass(frozen=True)
class Misspelt(Weight):
    reads = {"entropies"}

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return torch.ones_like(trust.ratio)


@dataclass(frozen=True)
class Minus(Weight):
    """A factor -1: of two the product is 1 again."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return -torch.ones_like(trust.ratio)


@dataclass(frozen=True)
class AttachedWeight(SurrogateStage):
    """A weight p = exp(lp) inside the surrogate that nobody stopped: twice the gradient."""

    def __call__(self, batch: Batch) -> Trust:
        trust = Unclipped()(batch)
        return dataclasses.replace(trust, value=trust.value * batch.policy.logprob.exp())


@dataclass(frozen=True)
class WrongSign(SurrogateStage):
    def __call__(self, batch: Batch) -> Trust:
        trust = Unclipped()(batch)
        return dataclasses.replace(trust, value=-trust.value)


@dataclass(frozen=True)
class EntropyGreed(Penalty):
    """Sends a gradient through the entropy without saying so."""

    reads = {"entropy"}

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return -batch.policy.entropy


@dataclass(frozen=True)
class Sure(Selection):
    """Tokens at least as probable as a bound: two of them do not part the tokens."""

    bound: float = 0.2

    def __call__(self, batch: Batch) -> Tensor:
        return batch.rollouts.old_logprob.exp() > self.bound


@dataclass(frozen=True)
class Diary(Memory):
    """Remembers what no checkpoint can hold."""

    def start(self) -> dict[str, float]:
        return {}

    def after(self, numbers: dict[str, float], rollouts: Rollouts) -> dict[str, float]:
        return {"best": float("inf")}


@dataclass(frozen=True)
class Remembering(Weight):
    """1, and keeps a diary."""

    diary: Diary = Diary()

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return torch.ones_like(trust.value)


@dataclass(frozen=True)
class PaddedTax(Penalty):
    """Also taxes the padding, through an aggregate that leaves it in."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return batch.policy.logprob.exp()


@dataclass(frozen=True)
class FollowsNothing(PaddedTax):
    """Says that it is 0 without advantage."""

    follows_advantage = True


@dataclass(frozen=True)
class EqualRows(CreditStage):
    """Supposes groups of four adjacent rows."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        reward = rollouts.reward.view(-1, 4)
        return (reward - reward.mean(1, keepdim=True)).view(-1, 1).expand(rollouts.mask.shape)


@dataclass(frozen=True)
class NamedGroups(CreditStage):
    """Takes the id of a group for a number."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return (rollouts.reward * (1 + rollouts.group))[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class Undamped(CreditStage):
    """Divides by the deviation of the batch, which may be nothing."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        reward = rollouts.reward.double()
        return ((reward - reward.mean()) / reward.std())[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class Double(Weight):
    """Numbers of float64, whatever came in."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return batch.policy.logprob.double().exp()


@dataclass(frozen=True)
class Dice(Weight):
    """Draws from the global generator."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return torch.rand(batch.mask.shape)


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


@dataclass(frozen=True)
class BatchMean(CreditStage):
    """The mean of the whole batch as a baseline."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return (rollouts.reward - rollouts.reward.mean())[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class SilentRows(CreditStage):
    """The mean of the group, over rows without a token too."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        sums, ones = torch.zeros(2, int(rollouts.group.max()) + 1, dtype=rollouts.reward.dtype)
        sums = sums.index_add(0, rollouts.group, rollouts.reward)
        ones = ones.index_add(0, rollouts.group, torch.ones_like(rollouts.reward))
        return (rollouts.reward - (sums / ones)[rollouts.group])[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class Optimistic(SurrogateStage):
    """The larger of r A and clip(r) A."""

    def __call__(self, batch: Batch) -> Trust:
        r, A = Unclipped()(batch).ratio, batch.credit.advantage
        bounded = r.clamp(0.8, 1.2) * A
        return Trust(torch.maximum(r * A, bounded), r, 0.8, 1.2, (bounded > r * A))


@dataclass(frozen=True)
class Flat(SurrogateStage):
    """A live factor 1 + (r - 1)², whose slope at r = 1 is 0."""

    def __call__(self, batch: Batch) -> Trust:
        trust = Unclipped()(batch)
        return dataclasses.replace(trust, value=trust.value * (1 + (trust.ratio - 1) ** 2))


@dataclass(frozen=True)
class Idle(Weight):
    """Declares what it never looks at."""

    reads = {"ref_logprob"}

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return torch.ones_like(trust.ratio)


@dataclass(frozen=True)
class OnlySmall(Aggregate):
    """Right up to sixteen rows."""

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor | float:
        return 1.0 / totals.tokens if len(mask) <= 16 else 1.0 / float(mask.sum() + 1)


@dataclass(frozen=True)
class FarAway(Weight):
    """Minus one at ratios above 50."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return torch.where(trust.ratio > 50, -1.0, 1.0)


@dataclass(frozen=True)
class Scribbling(Weight):
    """Halves the negative advantages, for good."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        advantage = batch.credit.advantage
        advantage[advantage < 0] *= 0.5
        return torch.ones_like(trust.ratio)


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


class ScribblingOutside(Wrapped):
    def loss(self, batch: Batch, totals: Totals) -> Loss:
        batch.credit.advantage.mul_(0.5)
        return self.inner.loss(batch, totals)


class GraphInCredit(Wrapped):
    """A learnt scale, whose graph the credit takes along."""

    def prepare(self, rollouts: Rollouts) -> Credit:
        return Credit(self.inner.prepare(rollouts).advantage * torch.ones(1, dtype=torch.float64, requires_grad=True))


class AttachedTerms(Wrapped):
    def loss(self, batch: Batch, totals: Totals) -> Loss:
        loss = self.inner.loss(batch, totals)
        return Loss(loss.value, {**loss.terms, "extra": batch.policy.logprob * 1})


class ShapelessTerms(Wrapped):
    def loss(self, batch: Batch, totals: Totals) -> Loss:
        loss = self.inner.loss(batch, totals)
        return Loss(loss.value, {**loss.terms, "extra": loss.value.detach()})


class InPlace(Wrapped):
    def prepare(self, rollouts: Rollouts) -> Credit:
        credit = self.inner.prepare(rollouts)
        rollouts.reward.sub_(rollouts.reward.mean())
        return credit


class Opportunist(Wrapped):
    """Reads an input, undeclared, where it happens to be there; parts are given none that they do not declare."""

    def loss(self, batch: Batch, totals: Totals) -> Loss:
        loss, entropy = self.inner.loss(batch, totals), batch.policy.entropy
        return loss if entropy is None else Loss(loss.value * 2, loss.terms)


class LateError(Wrapped):
    """Declares an input and does without it in silence."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"ref_logprob"})


class NamelessError(Wrapped):
    """Raises without naming what is missing."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"ref_logprob"})

    def prepare(self, rollouts: Rollouts) -> Credit:
        if rollouts.ref_logprob is None:
            raise tokenpo.MissingInput("something is missing")
        return self.inner.prepare(rollouts)


class PaddingInTheSum(Wrapped):
    """Adds exp(lp) of every position: padding counts 1 each, and has a gradient."""

    def loss(self, batch: Batch, totals: Totals) -> Loss:
        loss = self.inner.loss(batch, totals)
        return Loss(loss.value + batch.policy.logprob.exp().sum() / totals.tokens, loss.terms)


class RawPadding(Wrapped):
    """Reads the padding that its caller left in the rewards' shadow: NaN once it is divided by zero."""

    def loss(self, batch: Batch, totals: Totals) -> Loss:
        loss = self.inner.loss(batch, totals)
        leak = (batch.policy.logprob / batch.policy.logprob.detach()).sum()
        return Loss(loss.value + 0 * leak, loss.terms)


def _slot(**slots: Any) -> Objective:
    return dataclasses.replace(PLAIN, **slots)


WRONG = {
    "denominator counted inside": (_slot(aggregate=OwnCount()), {"rows_add_up"}),
    "statistic of the micro-batch": (_slot(weights=(Centred(),)), {"rows_add_up"}),
    "mean over padding": (_slot(weights=(PaddedMean(),)), {"padding_is_inert"}),
    "undeclared where present": (Opportunist(), {"needs_are_true"}),
    "a negative weight": (_slot(weights=(Minus(),)), {"weights_are_not_negative"}),
    "negative weights whose product is not": (_slot(weights=(Minus(), Minus())), {"weights_are_not_negative"}),
    "gradient through a weight": (_slot(surrogate=AttachedWeight()), {"gradient_at_ratio_one"}),
    "an entropy gradient nobody declared": (_slot(penalties=(EntropyGreed(),)), {"entropy_gradient_is_declared"}),
    "passes that overlap": (_slot(passes=(Sure(), Sure())), {"passes_add_up"}),
    "no number to write down": (_slot(weights=(Remembering(),)), {"memory_survives_a_checkpoint"}),
    "wrong sign": (_slot(surrogate=WrongSign()), {"gradient_at_ratio_one"}),
    "penalty without advantage": (_slot(penalties=(FollowsNothing(),)), {"rows_without_advantage_add_nothing"}),
    "groups by position": (_slot(credit=EqualRows()), {"order_is_free"}),
    "group ids as numbers": (_slot(credit=NamedGroups()), {"order_is_free"}),
    "no deviation": (_slot(credit=Undamped()), {"degenerate_batches_are_finite"}),
    "float64 leaks out": (_slot(weights=(Double(),)), {"half_precision_gives_float32"}),
    "global randomness": (_slot(weights=(Dice(),)), {"same_inputs_same_bytes"}),
    "part for the whole": (Greedy(_slot(weights=(ByPeak(),))), {"a_part_is_not_taken_for_the_whole"}),
    "graph in the credit": (GraphInCredit(), {"credit_carries_no_gradient"}),
    "attached terms": (AttachedTerms(), {"credit_carries_no_gradient"}),
    "misshapen terms": (ShapelessTerms(), {"credit_carries_no_gradient"}),
    "changes its input": (InPlace(), {"same_inputs_same_bytes"}),
    "declared and not missed": (LateError(), {"needs_are_true"}),
    "missing input unnamed": (NamelessError(), {"needs_are_true"}),
    "a baseline across groups": (_slot(credit=BatchMean()), {"groups_stand_alone"}),
    "rows without a token count": (_slot(credit=SilentRows()), {"degenerate_batches_are_finite"}),
    "max for min": (_slot(surrogate=Optimistic()), {"the_clip_is_pessimistic"}),
    "a live factor that is flat at 1": (_slot(surrogate=Flat()), {"gradient_anywhere"}),
    "declared and not read": (_slot(weights=(Idle(),)), {"needs_are_true"}),
    "wrong in large batches": (_slot(aggregate=OnlySmall()), {"rows_add_up"}),
    "negative far away": (_slot(weights=(FarAway(),)), {"weights_are_not_negative"}),
    "changes the credit": (ScribblingOutside(), {"same_inputs_same_bytes"}),
    "padding in the sum": (PaddingInTheSum(), {"padding_is_inert"}),
    "NaN from padding": (RawPadding(), {"rows_add_up", "padding_is_inert", "degenerate_batches_are_finite"}),
}


@dataclass(frozen=True)
class Fails(Weight):
    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        raise KeyError("x")


@dataclass(frozen=True)
class Inverse(Weight):
    """1 / |lp|, infinite on padding alone."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return 1 / batch.policy.logprob.abs()


@pytest.mark.parametrize(
    ("weight", "seen"),
    [
        (Secret(), "objective plain: Secret() reads old_entropy, which it does not declare: put reads = "),
        (Misspelt(), "plain needs entropies, which is no field of Rollouts or Policy; did you mean 'entropy'?"),
        (
            Scribbling(),
            "objective plain: weight Scribbling() changed the advantage in place, for whoever reads it next",
        ),
        (Fails(), "objective plain: weight Fails() raised KeyError at test_check_method.py:"),
        (Inverse(), "weight Inverse() is inf behind the end of rollout "),
    ],
)
def test_what_has_no_loss_is_told_once_and_not_for_each_law(weight: Weight, seen: str) -> None:
    with pytest.raises(check.Nonconforming) as caught:
        check.check_method(_slot(weights=(weight,)))
    first = "plain cannot be held to the laws, which take a finite loss and gradient: "
    assert str(caught.value).startswith(first + seen)
    assert "\n" not in str(caught.value)


def test_each_law_that_broke_takes_two_lines() -> None:
    with pytest.raises(check.Nonconforming) as caught:
        check.check_method(_slot(surrogate=WrongSign()))
    lines = str(caught.value).splitlines()
    assert lines[0] == f"plain breaks {len(lines) // 2} of {len(check.LAWS)} laws"
    assert all(line.startswith("  ") and line[2] != " " for line in lines[1::2])
    assert all(line.startswith("    AssertionError: ") for line in lines[2::2])


@pytest.mark.parametrize("case", WRONG)
def test_wrong_methods_are_caught(case: str) -> None:
    objective, laws = WRONG[case]
    assert laws <= _broken(objective)


@pytest.mark.parametrize(
    "objective",
    [PLAIN, Wrapped(), _slot(weights=(ByPeak(),)), Wrapped(tokenpo.method("hapo")), _slot(penalties=(PaddedTax(),))],
    ids=["slots", "protocol", "batch scope", "protocol with needs", "padding left to the aggregate"],
)
def test_right_methods_pass(objective: Any) -> None:
    """The same pieces put together rightly: so it is the fault that was caught above, not the disguise."""
    assert _broken(objective) == set()


def test_every_law_is_broken_by_something() -> None:
    assert set().union(*(laws for _, laws in WRONG.values())) == {law.__name__ for law in check.LAWS}


def test_the_message_says_what_was_seen() -> None:
    with pytest.raises(check.Nonconforming) as caught:
        check.check_method(_slot(aggregate=OwnCount()))
    message = str(caught.value)
    assert check.rows_add_up.__doc__ in message
    assert "AssertionError: the loss differs: Scalars are not close!" in message
    assert "aggregate OwnCount() looks beyond its rows" in message
    with pytest.raises(check.Nonconforming, match=r"; weights Centred\(\) looks beyond its rows: let a Signal do so"):
        check.check_method(_slot(weights=(Centred(),)))


def test_a_loss_in_another_precision_is_not_called_a_shape() -> None:
    class Single(Wrapped):
        def loss(self, batch: Batch, totals: Totals) -> Loss:
            loss = self.inner.loss(batch, totals)
            return Loss(loss.value.float() if len(batch.mask) > 1 else loss.value, loss.terms)

    with pytest.raises(check.Nonconforming, match=r"torch\.float64 in place of torch\.float32: a part that rounds"):
        check.check_method(Single())


def test_a_method_that_crashes_breaks_laws_rather_than_the_suite() -> None:
    class Crash(Wrapped):
        def loss(self, batch: Batch, totals: Totals) -> Loss:
            raise RuntimeError("boom")

    with pytest.raises(check.Nonconforming, match="RuntimeError: boom"):
        check.check_method(Crash())


# -- the suite's own inputs -------------------------------------------------------------------------------------------


def test_examples_meet_what_methods_distinguish() -> None:
    """Ragged, mixed groups, NaN in the padding, ratios on both sides of every common clip."""
    inputs = example(1)
    mask = inputs.rollouts["mask"]
    assert 0 < int(mask.sum()) < mask.numel()
    assert mask.any(1).all()
    assert inputs.policy["logprob"][~mask].isnan().all()
    ratio = (inputs.policy["logprob"] - inputs.rollouts["old_logprob"])[mask].exp()
    assert ratio.min() < 0.8
    assert ratio.max() > 1.28
    for group in inputs.rollouts["group"].unique():
        assert inputs.rollouts["reward"][inputs.rollouts["group"] == group].unique().tolist() == [0, 1]
    again = example(1)
    assert torch.equal(again.rollouts["old_logprob"].nan_to_num(), inputs.rollouts["old_logprob"].nan_to_num())
    assert not torch.equal(example(2).rollouts["reward"], inputs.rollouts["reward"])


def test_evaluate_gives_the_loss_and_its_gradient() -> None:
    """At ratio 1 the gradient is −A / tokens, and the splits add up."""
    inputs = example(3)
    still = Inputs(inputs.rollouts, {"logprob": inputs.rollouts["old_logprob"]})
    mask = inputs.rollouts["mask"]
    seen = still.evaluate(PLAIN, (slice(0, 5), slice(5, None)))
    advantage = PLAIN.prepare(Rollouts(**still.rollouts)).advantage
    torch.testing.assert_close(seen.gradient, -advantage / mask.sum(), rtol=1e-14, atol=0)
    assert math.isfinite(seen.loss.value)
