"""The assembly of an objective, with stages that return plain numbers."""

import dataclasses
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import tokenpo
from own_part import gives
from tokenpo import Batch, MissingInput, Objective, Policy, Rollouts, TokenPOError, Totals
from tokenpo.base.errors import Unsupported
from tokenpo.core.negotiation import negotiate, objective_notes, schedule_notes, warn
from tokenpo.core.parts import EntropyBonus, GroupAdvantage, RolloutCorrection, Selection, Weight
from tokenpo.core.parts.entropy import AdaptiveTemperature
from tokenpo.core.parts.loss import TokenMean
from tokenpo.core.parts.part import Aggregate, BatchSignal, CreditStage, Penalty, Shaping, Signal, SurrogateStage
from tokenpo.core.parts.surrogate import DetachedClip, FixedBounds, LogLikelihood, RolloutRatio, TokenRatio, Unclipped
from tokenpo.core.parts.teacher import TeacherDivergence
from tokenpo.core.ranges import Share
from tokenpo.methods.probability import OldProbability
from tokenpo.methods.regions import BinaryDivergence

MASK = torch.tensor([[True, True, False], [True, False, False]])
TERMS = ["advantage", "ratio", "low", "high", "clipped", "weight", "surrogate", "penalty", "coefficient", "loss"]


@dataclass(frozen=True)
class Times(Weight):
    factor: float

    def __call__(self, batch: Batch, trust) -> Tensor:
        return self.factor * batch.policy.logprob.exp()


@dataclass(frozen=True)
class Tax(Penalty):
    rate: float

    def __call__(self, batch: Batch, trust) -> Tensor:
        return self.rate * batch.policy.logprob


@dataclass(frozen=True)
class Bonus(Shaping):
    amount: float

    def __call__(self, rollouts: Rollouts) -> Tensor:
        return self.amount * torch.arange(len(rollouts)).to(rollouts.reward.dtype)


@dataclass(frozen=True)
class Index(Signal):
    """Counts its own evaluations in `seen`."""

    seen: list = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, rollouts: Rollouts) -> Tensor:
        assert not torch.is_grad_enabled()
        self.seen.append(1)
        return torch.ones(rollouts.mask.shape)


@dataclass(frozen=True)
class Noise(BatchSignal):
    """A random number a token; it also looks at the surrogate."""

    seen: list = dataclasses.field(default_factory=list, compare=False)

    reads = {"entropy"}
    draws = True

    def __call__(self, batch: Batch, trust, generator) -> Tensor:
        assert not torch.is_grad_enabled()
        self.seen.append(generator)
        return torch.rand(batch.mask.shape, generator=generator) + 0 * trust().ratio.float()


@dataclass(frozen=True)
class By(Weight):
    signal: Signal | BatchSignal
    also: Signal | BatchSignal | None = None

    def __call__(self, batch: Batch, trust) -> Tensor:
        return batch.signal(self.signal)


def _rollouts(**more: Tensor) -> Rollouts:
    """Rewards 1 and 0 of one group, old probability 1/2."""
    old = torch.full((2, 3), 0.5, dtype=torch.float64).log()
    return Rollouts(MASK, torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([0, 0]), old, **more)


def _batch(objective: Objective, **policy: Tensor) -> Batch:
    """Probabilities 1/2, 1 | 1/4: ratios 1, 2 | 1/2."""
    p = torch.tensor([[0.5, 1.0, 1.0], [0.25, 1.0, 1.0]], dtype=torch.float64)
    rollouts = _rollouts()
    policy = Policy(logprob=p.log().requires_grad_(), **policy)
    return Batch(rollouts=rollouts, credit=objective.prepare(rollouts), policy=policy)


PLAIN = Objective(credit=GroupAdvantage(std=False), surrogate=Unclipped(), aggregate=TokenMean(), name="plain")
TOTALS = Totals(tokens=3, sequences=2, length=2)
LP = [[math.log(0.5), 0.0, 0.0], [math.log(0.25), 0.0, 0.0]]


def _close(seen: Tensor, expected: list) -> None:
    torch.testing.assert_close(seen, torch.tensor(expected, dtype=seen.dtype), rtol=1e-14, atol=1e-15)


def test_terms_by_hand() -> None:
    """Weights 2p and 3p multiply: 6 p² = 3/2, 6 | 3/8. Penalties add: (5 - 1) lp."""
    objective = dataclasses.replace(PLAIN, weights=(Times(2.0), Times(3.0)), penalties=(Tax(5.0), Tax(-1.0)))
    loss = objective.loss(_batch(objective), TOTALS)
    assert list(loss.terms) == TERMS
    kept = {name: torch.where(MASK, x, 0) for name, x in loss.terms.items()}
    ln2 = math.log(2)
    penalty = [[-4 * ln2, 0, 0], [-8 * ln2, 0, 0]]
    surrogate = [[0.5, 1, 0], [-0.25, 0, 0]]
    weight = [[1.5, 6, 0], [0.375, 0, 0]]
    token = [[-4 * ln2 - 0.75, -6, 0], [-8 * ln2 + 0.09375, 0, 0]]
    _close(kept["advantage"], [[0.5, 0.5, 0], [-0.5, 0, 0]])
    _close(kept["ratio"], [[1, 2, 0], [0.5, 0, 0]])
    _close(kept["weight"], weight)
    _close(kept["surrogate"], surrogate)
    _close(kept["penalty"], penalty)
    _close(kept["loss"], token)
    _close(loss.terms["coefficient"], [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0]])
    _close(loss.terms["low"], [[0] * 3] * 2)
    assert (loss.terms["high"] == math.inf).all()
    assert loss.terms["clipped"].dtype == torch.bool
    _close(loss.value.detach(), sum(sum(row) for row in token) / 3)
    assert all(x.shape == MASK.shape and not x.requires_grad for x in loss.terms.values())


def test_weights_carry_no_gradient_and_penalties_do() -> None:
    """d/dlp of (tax lp - w r A) / 3 with w = p held: (tax - w r A) / 3, w r A = 1/4, 1 | -1/16."""
    objective = dataclasses.replace(PLAIN, weights=(Times(1.0),), penalties=(Tax(2.0),))
    rollouts = _rollouts()
    lp = torch.tensor(LP, dtype=torch.float64, requires_grad=True)
    batch = Batch(rollouts=rollouts, credit=objective.prepare(rollouts), policy=Policy(lp))
    objective.loss(batch, TOTALS).value.backward()
    _close(lp.grad, [[1.75 / 3, 1 / 3, 0], [2.0625 / 3, 0, 0]])


def test_shaping_adds_up_before_the_group_is_compared() -> None:
    """Bonuses (0, 1) and (0, 2) make the rewards 1 and 3: advantages -1 and 1, zero on padding."""
    objective = dataclasses.replace(PLAIN, shaping=(Bonus(1.0), Bonus(2.0)))
    _close(objective.prepare(_rollouts()).advantage, [[-1, -1, 0], [1, 0, 0]])


def test_equal_signals_are_computed_once() -> None:
    """Two weights hold equal signals, one of them twice: one evaluation, one tensor."""
    seen: list = []
    objective = dataclasses.replace(PLAIN, weights=(By(Index(seen)), By(Index(seen), also=Index(seen))))
    credit = objective.prepare(_rollouts())
    assert (len(seen), len(credit.signals)) == (1, 1)
    assert Index() in credit.signals


def test_scope_needs_and_flags_follow_from_the_parts() -> None:
    noisy, calm = (dataclasses.replace(PLAIN, weights=(By(signal),)) for signal in (Noise(), Index()))
    assert (PLAIN.scope, PLAIN.draws, PLAIN.needs) == ("row", False, frozenset())
    assert (noisy.scope, noisy.draws, noisy.needs) == ("batch", True, {"entropy"})
    assert (calm.scope, calm.draws) == ("row", False)
    current = tokenpo.method("hapo", entropy="current")
    assert (current.scope, current.draws) == ("batch", False)
    assert PLAIN.idle_on_policy == PLAIN.assumes_on_policy == () and not PLAIN.entropy_gradient
    assert [type(part).__name__ for part in tokenpo.method("tepo").idle_on_policy] == ["MaskedKl", "BelowOld"]
    assert tokenpo.method("gpg").assumes_on_policy == (LogLikelihood(),)
    assert dataclasses.replace(PLAIN, penalties=(EntropyBonus(0.1),)).entropy_gradient


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({}, 0),
        ({"weight_placement": "ratio"}, 1),  # the weight reaches 1.4, the clip is at 1.2
        ({"weight_placement": "ratio", "high": 0.39}, 1),
        ({"weight_placement": "ratio", "high": 0.4}, 0),
    ],
)
def test_a_weight_above_the_clip_is_told(options: dict, notes: int) -> None:
    objective = tokenpo.method("tr_grpo", **options)
    assert len(objective_notes(objective)) == notes == len(schedule_notes(objective, 2, "", ""))
    assert len(schedule_notes(objective, 1, "", "")) == notes
    if notes:
        with pytest.warns(UserWarning, match="tr_grpo: the clip at"):
            warn(objective)


def test_corrects_rollout_names_what_weighs_and_no_region() -> None:
    to_sampler, correction = RolloutRatio(), RolloutCorrection()
    assert tokenpo.method("dppo_kl").corrects_rollout == (to_sampler,)
    assert tokenpo.method("dppo_kl", anchor="old").corrects_rollout == ()
    assert dataclasses.replace(PLAIN, weights=(correction,)).corrects_rollout == (correction,)
    region = BinaryDivergence(0.1, to_sampler, kl=False)
    seen = DetachedClip(FixedBounds(1.0, 19.0), TokenRatio(), region)
    assert dataclasses.replace(PLAIN, surrogate=seen).corrects_rollout == ()


def test_padding_counts_in_no_pass() -> None:
    """Its probability, exp(0), is above every bound: it would be selected."""
    objective = dataclasses.replace(PLAIN, only=OldProbability(1e-9, below=False))
    batch = _batch(objective)
    coefficient = objective.loss(batch, TOTALS).terms["coefficient"]
    assert torch.equal(coefficient != 0, batch.mask)


def test_memories_are_found_once_and_start_anew() -> None:
    rule = AdaptiveTemperature()
    objective = dataclasses.replace(PLAIN, temperature=rule)
    assert PLAIN.memories == () and PLAIN.start() == {}
    assert objective.memories == (rule,)
    assert objective.start() == {rule: {}}
    with pytest.raises(MissingInput, match="needs old_entropy"):
        objective.after(objective.start(), _batch(PLAIN).rollouts)


def test_observe_evaluates_each_statistic_once_with_the_generator_given() -> None:
    seen: list = []
    objective = dataclasses.replace(PLAIN, weights=(By(Noise(seen), also=Noise(seen)),))
    batch = _batch(objective, entropy=torch.zeros(2, 3))
    generator = torch.Generator().manual_seed(3)
    observed = objective.observe(batch, generator)
    assert seen == [generator]
    again = objective.observe(batch, torch.Generator().manual_seed(3))
    assert torch.equal(observed.signal(Noise()), again.signal(Noise()))
    assert observed.policy is batch.policy
    # given the statistics, any rows will do; they are not computed again
    parts = [objective.loss(observed.rows(slice(i, i + 1)), TOTALS).value for i in range(2)]
    _close(sum(parts).detach(), objective.loss(observed, TOTALS).value.item())
    assert len(seen) == 2


def test_loss_observes_a_whole_step_itself_and_refuses_a_part() -> None:
    seen: list = []
    objective = dataclasses.replace(PLAIN, weights=(By(Noise(seen)),))
    batch = _batch(objective, entropy=torch.zeros(2, 3))
    objective.loss(batch, TOTALS)
    assert [generator.initial_seed() for generator in seen] == [0]
    message = (
        r"^plain reads statistics of the current policy over the whole optimiser step, but was given 2 of its 3 "
        r"tokens: call observe\(batch\) on the whole step first$"
    )
    with pytest.raises(TokenPOError, match=message):
        objective.loss(batch.rows(slice(0, 1)), TOTALS)


def test_a_missing_input_is_named_in_either_phase() -> None:
    for name, missing in (("hapo", "old_entropy"), ("tepo", "old_entropy")):
        message = rf"^{name} needs {missing}: give Rollouts\({missing}=\.\.\.\) with shape \[N, T\]$"
        with pytest.raises(MissingInput, match=message):
            tokenpo.method(name).prepare(_rollouts())
    batch, objective = _batch(PLAIN), tokenpo.method("hapo", entropy="current", tau=0.0)
    for call in (lambda: objective.loss(batch, TOTALS), lambda: objective.observe(batch)):
        with pytest.raises(MissingInput, match=r"^hapo needs entropy: give Policy\(entropy=\.\.\.\) with shape"):
            call()
    with pytest.raises(MissingInput, match=r"^grpo needs ref_logprob: give Rollouts\(ref_logprob"):
        tokenpo.method("grpo", beta=0.1).loss(batch, TOTALS)


def test_an_engine_without_an_input_says_what_it_has_and_what_to_do() -> None:
    has, lacks = frozenset({"entropy", "old_entropy"}), frozenset({"turn", "entropy"})
    negotiate(tokenpo.method("hapo"), has)
    for remedies, remedy in (
        ({"old_entropy": "ask it for entropies"}, "ask it for entropies"),
        (
            {"turn": "number the turns"},
            "choose another method, or compute old_entropy yourself and call the objective from your own loop",
        ),
    ):
        with pytest.raises(Unsupported) as caught:
            negotiate(tokenpo.method("hapo"), lacks, "here", remedies)
        assert str(caught.value) == (
            f"hapo needs old_entropy, which here does not provide (it has entropy, turn): {remedy}"
        )


def test_a_credit_of_another_objective_is_refused() -> None:
    batch = _batch(PLAIN)
    rollouts = _rollouts(old_entropy=torch.ones(2, 3))
    with pytest.raises(TokenPOError, match=r"OldEntropyScore\(.* was not computed"):
        tokenpo.method("hapo").loss(Batch(rollouts, batch.credit, batch.policy), TOTALS)


@pytest.mark.parametrize(
    ("slot", "choice", "words"),
    [
        ("aggregate", "token_mean", "slot aggregate holds 'token_mean', expected a value of type Aggregate$"),
        ("weights", PLAIN.surrogate, "slot weights holds Unclipped.*expected a tuple of Weight values"),
        ("credit", type(PLAIN.credit), "slot credit holds <class"),
        ("temperature", 1.0, "slot temperature holds 1.0"),
        ("penalties", (TeacherDivergence(beta=0.0), TeacherDivergence(beta=1.0)), "two divergences from a teacher"),
    ],
)
def test_a_slot_takes_its_own_kind(slot: str, choice: object, words: str) -> None:
    with pytest.raises(tokenpo.TokenPOError, match=words):
        dataclasses.replace(PLAIN, **{slot: choice})


@dataclass(frozen=True)
class Careless(Weight):
    """Its own check takes the place of the one that it should extend."""

    share: Share = 2.0

    def __post_init__(self) -> None:
        pass


def test_an_objective_looks_again() -> None:
    with pytest.raises(TokenPOError, match=r"^Careless: share is 2\.0, expected a number in \[0, 1\]$"):
        dataclasses.replace(PLAIN, weights=(Careless(),))


ONES = torch.ones(2, 3, dtype=torch.float64)
TRUST = Unclipped()(_batch(PLAIN))
WHOLE = "expected a tensor of shape [2, 3]"
COEFFICIENT = "expected a tensor of shape [] or [2, 1] or [2, 3]"


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"weights": (Times(1.0), gives(Weight, ONES[:1]))}, f"weight Mine() gave shape [1, 3], {WHOLE}"),
        ({"weights": (By(gives(BatchSignal, None)),)}, f"signal Mine() gave None, {WHOLE}"),
        ({"penalties": (gives(Penalty, None),)}, f"penalty Mine() gave None, {WHOLE}"),
        ({"surrogate": gives(SurrogateStage, dataclasses.replace(TRUST, upper=ONES[0]))},
         f"Trust.upper of surrogate Mine() gave shape [3], {WHOLE}"),
        ({"credit": gives(CreditStage, ONES[:, 0])}, f"credit Mine() gave shape [2], {WHOLE}"),
        ({"shaping": (gives(Shaping, ONES[:, :1]),)},
         "shaping Mine() gave shape [2, 1], expected a tensor of shape [2]"),
        ({"aggregate": gives(Aggregate, ONES[0])}, f"aggregate Mine() gave shape [3], {COEFFICIENT}"),
        ({"only": gives(Selection, None)}, f"selection Mine() gave None, {WHOLE}"),
    ],
)  # fmt: skip
def test_a_stage_returns_what_its_slot_asks(slots: dict, words: str) -> None:
    """A forgotten `return` is no factor of 1, and a wrong shape is no error of torch: the stage is named."""
    objective = dataclasses.replace(PLAIN, **slots)
    with pytest.raises(TokenPOError) as caught:
        objective.loss(objective.observe(_batch(objective)), TOTALS)
    assert str(caught.value) == f"objective plain: {words}"


def test_a_sequence_ratio_with_token_weights_conforms() -> None:
    """The gradient of a response's ratio spreads evenly over it, whatever the weights of its tokens."""
    mixed = dataclasses.replace(tokenpo.method("gspo"), weights=tokenpo.method("hapo").weights)
    assert "gradient_at_ratio_one" in tokenpo.check_method(mixed)
