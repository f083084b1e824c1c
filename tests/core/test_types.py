"""The values at the boundary: what they refuse and in which words, padding, rows, totals, precision.

Declarations of inputs and ranges.
"""

import math
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tokenpo
from tokenpo import Batch, Credit, Policy, Rollouts, TokenPOError, Totals
from tokenpo.base.errors import OutOfRange
from tokenpo.core import ranges
from tokenpo.core.facts import entropy, entropy_drift
from tokenpo.core.parts import OldEntropyScore, Part
from tokenpo.core.ranges import Range
from tokenpo.core.trial import example
from tokenpo.core.types import EXTRA, FACTS, OPTIONAL
from tokenpo.records.response import KNOWN

NAN, INF = float("nan"), float("inf")
MASK = torch.tensor([[True, True, False], [True, False, False]])
TOKEN_FIELDS = ("old_logprob", "old_entropy", "rollout_logprob", "ref_logprob", "temperature")
SIGN = {"old_logprob": -1, "rollout_logprob": -1, "ref_logprob": -1}


def _facts(**changes: object) -> dict:
    """Two valid rollouts with everything given; NaN in the padding."""
    token = torch.tensor([[1.0, 2.0, NAN], [3.0, NAN, NAN]])
    facts = {
        "mask": MASK,
        "reward": torch.tensor([1.0, 0.0]),
        "group": torch.tensor([4, 4]),
        "token_ids": torch.tensor([[5, 6, -7], [8, 0, 0]]),
        **{name: SIGN.get(name, 1) * (token + i) for i, name in enumerate(TOKEN_FIELDS)},
    }
    return {**facts, **changes}


def _batch(policy: Policy | None = None, advantage: Tensor | None = None) -> Batch:
    policy = Policy(torch.full((2, 3), -1.0)) if policy is None else policy
    credit = Credit(torch.ones(2, 3) if advantage is None else advantage)
    return Batch(rollouts=Rollouts.of(_facts()), credit=credit, policy=policy)


REFUSED = [
    # the mask
    ("mask", None, "Rollouts.mask must be a tensor, got NoneType"),
    ("mask", torch.ones(2, 3), "Rollouts.mask has dtype torch.float32, expected torch.bool: convert it"),
    ("mask", torch.ones(0, 3, dtype=torch.bool), "Rollouts.mask has shape [0, 3]: the batch is empty"),
    ("mask", torch.zeros(2, 3, dtype=torch.bool), "Rollouts.mask is false everywhere: no rollout has a response token"),
    # rewards
    ("reward", torch.ones(3), "Rollouts.reward has shape [3], expected [N] = [2]"),
    ("reward", torch.ones(2, dtype=torch.complex64), "Rollouts.reward has dtype torch.complex64, expected real"),
    ("reward", torch.tensor([1.0, NAN]), "Rollouts.reward[1] is nan: it must be finite, mend what made it"),
    # groups
    ("group", torch.tensor([0.0, 1.0]), "Rollouts.group has dtype torch.float32, expected integers such as torch.long"),
    ("group", torch.tensor([0, -3]), "Rollouts.group[1] is -3, but it is counted from 0"),
    ("group", torch.tensor([0, 1, 2]), "Rollouts.group has shape [3], expected [N] = [2]"),
    # tokens
    ("temperature", torch.tensor([[1.0, -1, 1], [1, 1, 1]]), "Rollouts.temperature[0, 1] is -1, but it must be > 0"),
    # signs
    *[
        (name, torch.tensor([[-1.0, -0.1, 5.0], [0.25, 5.0, 5.0]]),
         f"Rollouts.{name}[1, 0] is 0.25, but log-probabilities are <= 0: give log p, not -log p")
        for name in SIGN
    ],
    ("old_entropy", torch.tensor([[1.0, -0.75, -9.0], [0.25, -9.0, -9.0]]),
     "Rollouts.old_entropy[0, 1] is -0.75, but entropies are >= 0: give -Σ p log p, not Σ p log p"),
    # several rewards, turns, states
    ("rewards", torch.ones(2, 0), "Rollouts.rewards has shape [2, 0], expected [N, R] with N = 2"),
    ("rewards", torch.tensor([[1, NAN], [1, INF]]), "Rollouts.rewards[1, 1] is inf: it must be finite"),
    ("token_reward", torch.ones(2), "Rollouts.token_reward has shape [2], expected [N, T] = [2, 3]"),
    ("token_ids", torch.tensor([[5, -6, 0], [8, 0, 0]]), "Rollouts.token_ids[0, 1] is -6, but it is counted from 0"),
    ("turn", torch.tensor([[1, 0, 0], [0, 0, 0]]), "Rollouts.turn[0, 1] is 0, less than at an earlier token: number"),
    ("old_collision", torch.zeros(2, 3), "Rollouts.old_collision[0, 0] is 0, but probabilities lie in (0, 1]"),
    *[
        (name, value, message)
        for name in TOKEN_FIELDS
        for value, message in (
            (torch.ones(3, 2), f"Rollouts.{name} has shape [3, 2], expected [N, T] = [2, 3]"),
            (torch.ones(2, 3).long(), f"Rollouts.{name} has dtype torch.int64, expected a floating-point tensor"),
            (1.0, f"Rollouts.{name} must be a tensor, got float"),
            (torch.tensor([[1.0, 1, 1], [NAN, 1, 1]]), f"Rollouts.{name}[1, 0] is nan on a response token: find its"),
            (torch.tensor([[1.0, INF, NAN], [1, 1, 1]]), f"Rollouts.{name}[0, 1] is inf on a response token"),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "message"), REFUSED)
def test_rollouts_refuse(field: str, value: object, message: str) -> None:
    """Every message names the value, the field, what was seen and what was expected."""
    with pytest.raises(TokenPOError, match="^" + re.escape(message)):
        Rollouts.of(_facts(**{field: value}))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"logprob": torch.ones(2, 4)}, "Policy.logprob has shape [2, 4], expected [N, T] = [2, 3]"),
        (
            {"logprob": torch.tensor([[-1.0, INF, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)},
            "Policy.logprob[0, 1] is inf",
        ),
        ({"entropy": torch.full((2, 3), INF)}, "Policy.entropy[0, 0] is inf on a response token"),
        ({"entropy_drift": torch.ones(2)}, "Policy.entropy_drift has shape [2], expected [N, T] = [2, 3]"),
    ],
)
def test_batches_refuse_a_policy(policy: dict, message: str) -> None:
    with pytest.raises(TokenPOError, match="^" + re.escape(message)):
        _batch(Policy(**{"logprob": torch.zeros(2, 3), **policy}))


def test_batches_refuse_a_credit_of_another_shape() -> None:
    message = "Credit.advantage has shape [2, 4], expected [N, T] = [2, 3]"
    with pytest.raises(TokenPOError, match="^" + re.escape(message)):
        _batch(advantage=torch.ones(2, 4))


def test_turns_and_states_are_zeroed_on_padding_too() -> None:
    """Padding may hold any number; a turn may be missed out, as where all its tokens are a tool's."""
    turn = torch.tensor([[0, 2, -5], [7, 3, -1]])
    seen = Rollouts.of(_facts(turn=turn, anchor=turn, rewards=torch.tensor([[1, NAN], [NAN, 0]]).half()))
    assert seen.need("turn").tolist() == seen.need("anchor").tolist() == [[0, 2, 0], [7, 0, 0]]
    assert seen.need("rewards").dtype == torch.float32
    assert turn[0, 2] == -5
    torch.testing.assert_close(seen.rows(slice(1, 2)).need("rewards"), torch.tensor([[NAN, 0]]), equal_nan=True)


def test_token_ids_outside_the_mask_stay() -> None:
    """A tool's tokens between those of a response are context of the later ones: of prefixes and continuations."""
    ids = torch.tensor([[5, 6, -7], [8, 9, 0]])
    assert torch.equal(Rollouts.of(_facts(token_ids=ids)).need("token_ids"), ids)


def test_padding_is_zeroed_at_the_boundary() -> None:
    """0 + 1, 0 + 2 and 0 + 3 stay with their sign, NaN becomes 0, and the tensors given stay as they were."""
    given = _facts()
    seen = Rollouts(**given)
    for i, name in enumerate(TOKEN_FIELDS):
        kept = torch.tensor([[1 + i, 2 + i, 0], [3 + i, 0, 0]])
        assert torch.equal(getattr(seen, name), SIGN.get(name, 1) * kept.float())
        assert given[name][0, 2].isnan()
    assert Rollouts.of(_facts(temperature=torch.where(MASK, 0.7, -1.0))).need("temperature")[0, 2] == 0
    batch = _batch(Policy(*(torch.where(MASK, 1.0, NAN) for _ in range(3))))
    for name in ("logprob", "entropy", "entropy_drift"):
        assert getattr(batch.policy, name).tolist() == [[1, 1, 0], [1, 0, 0]]


def test_padding_gets_no_gradient() -> None:
    """Not even where it is NaN."""
    logprob = torch.where(MASK, 1.0, NAN).requires_grad_()
    _batch(Policy(logprob)).policy.logprob.square().sum().backward()
    assert logprob.grad.tolist() == [[2, 2, 0], [2, 0, 0]]


def test_finite_numbers_whose_sum_overflows_are_accepted() -> None:
    """Twice 3e38 is more than float32 holds; both are finite all the same."""
    big = -torch.tensor([[3e38, 3e38, 0], [1, 0, 0]])
    assert Rollouts.of(_facts(old_logprob=big)).old_logprob[0, 1] == big[0, 1]


def test_rounding_may_leave_a_little_on_the_wrong_side_of_zero() -> None:
    """As engines of another precision do; all of one sign is no error where it is the right one."""
    logprob, entropy = torch.full((2, 3), 0.05), torch.full((2, 3), -0.5)
    seen = Rollouts.of(_facts(old_logprob=logprob, prompt_logprob=torch.tensor([-3.0, -2.0]), old_entropy=entropy))
    assert torch.equal(seen.old_logprob, logprob * MASK) and torch.equal(seen.old_entropy, entropy * MASK)


def test_facts_carry_no_gradient() -> None:
    facts = {k: v.clone().requires_grad_() if v.is_floating_point() else v for k, v in _facts().items()}
    seen = Rollouts(**facts)
    assert not any(getattr(seen, name).requires_grad for name in ("reward", *TOKEN_FIELDS))


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_becomes_float32_and_others_stay(dtype: torch.dtype, kept: torch.dtype) -> None:
    seen = Rollouts(**{k: v.to(dtype) if v.is_floating_point() else v for k, v in _facts().items()})
    policy = _batch(Policy(torch.zeros(2, 3, dtype=dtype), torch.zeros(2, 3, dtype=dtype))).policy
    for x in (seen.reward, seen.old_logprob, seen.need("old_entropy"), policy.logprob, policy.need("entropy")):
        assert x.dtype == kept


@pytest.mark.parametrize("reward", [torch.tensor([1, 0]), torch.tensor([True, False])])
def test_whole_rewards_become_float32(reward: Tensor) -> None:
    seen = Rollouts.of(_facts(reward=reward)).reward
    assert seen.dtype == torch.float32 and seen.tolist() == [1, 0]


@pytest.mark.parametrize("index", [slice(1, 2), torch.tensor([1]), torch.tensor([False, True])])
def test_rows(index: object) -> None:
    """Slices, positions and flags; every tensor of every part, signals included."""
    key = OldEntropyScore()
    token = torch.arange(6.0).view(2, 3)
    batch = Batch(
        rollouts=Rollouts.of(_facts()),
        credit=Credit(token, {key: token * 10}),
        policy=Policy(token * 2, token * 3, token * 4),
    )
    part = batch.rows(index)
    assert part.credit.advantage.tolist() == [[3, 4, 5]]
    assert part.signal(key).tolist() == [[30, 40, 50]]
    assert part.policy.logprob.tolist() == [[6, 0, 0]]
    assert part.policy.entropy.tolist() == [[9, 0, 0]]
    assert part.policy.entropy_drift.tolist() == [[12, 0, 0]]
    assert part.mask.tolist() == [[True, False, False]]
    assert (part.rollouts.reward.tolist(), part.rollouts.group.tolist()) == ([0], [4])
    assert part.rollouts.token_ids.tolist() == [[8, 0, 0]]
    assert part.rollouts.temperature.tolist() == [[7, 0, 0]]
    assert len(part.rollouts) == 1


def test_under_a_mask_no_token_is_added() -> None:
    other = torch.tensor([[False, True, True], [True, True, False]])
    assert Rollouts.of(_facts()).under(other).mask.tolist() == [[False, True, False], [True, False, False]]


def test_totals_by_hand() -> None:
    """Lengths 2, 1 and 0: three tokens, two rollouts with a token, the longest has two."""
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    rollouts = Rollouts(mask, torch.ones(3), torch.tensor([0, 0, 1]), torch.zeros(3, 3))
    assert Totals.of(rollouts) == Totals(tokens=3, sequences=2, length=2)
    assert Totals.of(rollouts, length=99) == Totals(tokens=3, sequences=2, length=99)
    assert Totals.of(rollouts, length=0.5).length == 0.5
    for length in (0, -3, NAN):  # Dr. GRPO divides by it
        with pytest.raises(OutOfRange, match=r"length is .* expected a finite number > 0"):
            Totals.of(rollouts, length=length)


@pytest.mark.parametrize("name", sorted(OPTIONAL | EXTRA.keys()))
def test_an_input_is_drawn_checked_recorded_and_explained(name: str) -> None:
    """`example` makes values that are accepted, and so is its neutral value where that is a number."""
    inputs, fact = example(), FACTS[name]
    owner = Rollouts if name in inputs.rollouts else Policy
    assert name in EXTRA or f"{name}: {fact.described}" in (owner.__doc__ or "")
    assert not fact.meaning.endswith(".")
    assert name in KNOWN
    given = {**inputs.rollouts, **inputs.policy}
    assert owner.of(given, {name}).need(name).shape == given[name].shape
    assert owner.of(given, ()).only({name}) and owner.of(given, ()).get(name) is None
    if isinstance(fact.neutral, float) and fact.shape == "[N, T]":
        neutral = torch.full_like(given["old_logprob"], fact.neutral)
        owner.of({**given, name: neutral.long() if fact.kind.whole else neutral}, {name})


def test_formulas_by_hand() -> None:
    """Of 1/2, 1/4, 1/4: H = 3/2 bits, Σ p² = 3/8, Σ p² (log p + H) = 1/4 · 1/2 bit − 2 · 1/16 · 1/2 bit = 1/16 bit."""
    logp, bit = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log(), torch.tensor(2.0).log().double()
    assert float(entropy(logp) / bit) == pytest.approx(1.5, rel=1e-6)
    assert float(EXTRA["old_collision"].formula(logp)) == pytest.approx(0.375)
    assert float(entropy_drift(logp) / bit) == pytest.approx(1 / 16, rel=1e-6)


def test_an_absent_input_is_named_with_its_shape() -> None:
    rollouts = example().values()[0].only(())
    with pytest.raises(
        tokenpo.TokenPOError, match=r'give Rollouts\(extra=\{"prompt_logprob": ...\}\) with shape \[N\]'
    ):
        rollouts.need("prompt_logprob")


def test_rollouts_know_the_inputs_of_methods_that_were_not_used_yet() -> None:
    code = """
import torch, tokenpo
one = torch.ones(1, 1)
tokenpo.Rollouts(one.bool(), one[0], torch.tensor([0]), -one, extra={"baseline": one[0]}).need("baseline")"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (ranges.NUMBER, (-math.inf, 0, 1e308, math.inf, np.float32(1), np.int64(3)), ()),
        (ranges.POSITIVE, (5e-324, 1e308), (0, -0.0, -1, math.inf)),
        (ranges.SHARE, (0, 1), (-5e-324, np.nextafter(1, 2))),
        (ranges.FRACTION, (5e-324, 1), (0, np.nextafter(1, 2))),
        (ranges.limit(2), (2, math.inf), (np.nextafter(2, 1), -math.inf)),
        (ranges.above(2), (np.nextafter(2, 3), math.inf), (2, -math.inf)),
        (ranges.between(-1, 2), (-1, 2), (np.nextafter(-1, -2), np.nextafter(2, 3))),
        (ranges.inside(-1, 2), (np.nextafter(-1, 0), np.nextafter(2, 1)), (-1, 2)),
        (ranges.whole(1), (1, 10**30, np.int64(7)), (0, 1.0, 1.5, math.inf)),
    ],
)
def test_a_range_ends_where_it_says(allowed: Range, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    assert [x for x in inside if not allowed.holds(x)] == []
    assert [x for x in (*outside, math.nan, True, "1", None) if allowed.holds(x)] == []


@pytest.mark.parametrize(
    ("hint", "text", "inside", "outside"),
    [
        (ranges.Share, "a number in [0, 1]", (0, 1), (2, None)),
        (ranges.Share | None, "a number in [0, 1], or none", (0, None), (2, math.nan, "1")),
        (ranges.Count | str, "a whole number >= 1, or a value of type str", (1, "1"), (0, None)),
        (Exception | None, "a value of type Exception, or none", (None, OSError()), (1, Exception)),
    ],
)
def test_an_annotation_names_a_range(hint: Any, text: str, inside: tuple, outside: tuple) -> None:
    allowed = ranges.range_of(hint, Exception)
    assert allowed is not None and allowed.text == text
    assert [x for x in inside if not allowed.holds(x)] == []
    assert [x for x in outside if allowed.holds(x)] == []


@dataclass(frozen=True)
class Held(Part):
    share: Annotated[float, ranges.SHARE.because("as it is a share")]


def test_a_refusal_is_one_sentence_and_goes_through_a_pipe() -> None:
    with pytest.raises(OutOfRange) as raised:
        Held(1.5)
    sentence = "Held: share is 1.5, expected a number in [0, 1], as it is a share"
    assert str(raised.value) == str(pickle.loads(pickle.dumps(raised.value))) == sentence
