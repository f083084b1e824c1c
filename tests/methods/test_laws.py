"""The laws that every method of the table obeys, whatever it computes: those of `check_method`, and more.

Differences that no exponential survives; GTPO.
"""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import OPTIONAL, POLICY_FIELDS, Sample, assemble, ragged, run, tensors
from tokenpo.core.laws import LAWS
from tokenpo.methods.gtpo import PolarSequences, PolarTokens

# What changes what is read or when, beside the defaults.
OPTIONS: dict[str, list[dict]] = {
    "grpo": [{"beta": 0.1}],
    "tepo": [
        {"decreasing": "analytic", "kl_target": "reference"},
        {"decreasing": "reference", "kl_target": "reference"},
        {"decreasing": "reference"},
    ],
    "gtpo": [{"scope": "batch", "normalise": "pooled"}],
    "grpo_s": [{"mean": "geometric"}],
    "tr_grpo": [
        {"beta": 0.1},
        {"weight_prob": "old", "beta": 0.1, "kl_weighting": "scale"},
        {"weight_placement": "ratio", "beta": 0.1, "kl_weighting": "inside"},
        {"shape": "outside"},
    ],
    "hapo": [{"entropy": "current"}, {"token_mean_advantage": False, "alpha": 0.0, "beta": 0.0}],
    "clip_cov": [{"fraction": 0.05, "cov_low": 0.1}],
    "kl_cov": [{"fraction": 0.1}],
    "cispo": [{"absolute": True, "high": 3.0, "low": 0.5}],
    "aspo": [{"entropy": "current"}],
    "archer": [{"entropy": "current", "kl": 0.1}],
    "adv_reweight": [{"beta": 0.3, "bounded_kl": True}],
    "lopti": [{"beta": 0.3, "bounded_kl": True}],
    "dppo_kl": [{"anchor": "old"}],
    "forking_tokens": [
        {"entropy": "current", "beta": 0.1},
        {"denominator": "kept", "dual": 1.5},
        {"denominator": "kept", "entropy": "current"},
    ],
    "skywork_entropy": [{"controller": "released", "start": 0.3, "largest": 1.0}],
    "stapo": [{"prob": 0.5}, {"prob": 0.5, "policy": "old"}],
    "reinforce_pp": [{"beta": 0.1}],
    "reinforce_pp_baseline": [{"beta": 0.1}],
    "sent": [{"fraction": 0.2, "entropy": "old", "beta": 0.1}],
    "arm": [{"alpha": 1.0, "fraction": 0.5, "only_correct": True}],
    "maxrl": [{"baseline": "kept"}, {"baseline": "none"}, {"order": 3}],
    "topr": [{"level": "token", "signal": "advantage"}],
    "dhpo": [{"mixing": "entropy"}],
    "egspo": [{"curve": "chord"}],
    "opsm": [{"delta": 0.05, "anchor": "rollout", "beta": 0.1}],
    "fipo": [{"dual": 3.0, "least": 0.5}],
    "gdpo": [{"form": "verl", "beta": 0.1}, {"form": "nemo_rl", "weights": (1.0, 0.5, 2.0)}],
    "otb": [{"token_reward": True, "rollout_cap": 1.5}],
    "mt_grpo": [{"outcome_rewards": 2, "beta": 0.1}],
    "gigpo": [{"gamma": 0.9, "std": True}],
    "ppo": [{"lam": 0.9, "gamma": 0.8, "whiten": False, "beta": 0.1, "token_reward": True, "entropy": 0.1}],
    "vapo": [{"alpha": 0.5, "whiten": False}],
    "ospo": [{"segments": 3, "separator": 1, "share": 0.5}],
    "rto": [{"dpo": 0.0}, {"bound": 1.0, "dpo": 1.0, "beta": 0.0, "whiten": False}],
    "gkd": [{"beta": 1.0, "rewards": True}],
    "opd": [{"gamma": 0.9, "rewards": True, "bound": 2.0}],
}
CASES = [(name, options) for name in tokenpo.methods.METHODS for options in ({}, *OPTIONS.get(name, []))]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o)}" for n, o in CASES])
every_method = pytest.mark.parametrize("name", tokenpo.methods.METHODS)

# Advantages that compare nothing inside a group, and where they teach all the same.
UNCOMPARED = {
    "remax": {"groups of one", "equal rewards", "no right answer"},  # with a greedy response
    **dict.fromkeys(("reinforce_pp", "prpo", "flash_reinforce"), frozenset({"groups of one"})),
    "eb_cispo": {"groups of one"},
    "raft": {"groups of one", "equal rewards"},
    "raft_pp": {"groups of one", "equal rewards"},
    "topr": {"groups of one", "equal rewards", "no right answer"},
    "hmpo": {"equal rewards"},  # the lengths of right answers are compared
    # compared are continuations
    **dict.fromkeys(("vineppo", "spo"), frozenset({"groups of one", "equal rewards", "no right answer"})),
    **dict.fromkeys(("gvpo", "target_po"), frozenset({"equal rewards", "no right answer"})),  # the policy has moved
    "gtpo_conflict": {"groups of one", "equal rewards", "no right answer"},  # they pay for their entropy
    "gigpo": {"groups of one"},  # a response that comes back to a state is compared with itself
    "otb": {"groups of one", "equal rewards"},  # where a rollout is alone it has no baseline
    # a value is, or a teacher grades
    **dict.fromkeys(
        ("ppo", "vapo", "rto", "opd", "iw_opd"), frozenset({"groups of one", "equal rewards", "no right answer"})
    ),
}


@every_case
def test_the_laws_of_check_method(name: str, options: dict) -> None:
    assert tokenpo.check_method(tokenpo.method(name, **options)) == tuple(law.__name__ for law in LAWS)


@every_case
@pytest.mark.parametrize("half", ["facts", "policy"])
def test_facts_and_policy_may_differ_in_precision(name: str, options: dict, half: str) -> None:
    """Either in float32, the other in float64: it is the step of the same numbers, all in float64."""
    objective, field = tokenpo.method(name, **options), tensors(ragged(1))
    narrow = {k for k, x in field.items() if x.is_floating_point() and (k in POLICY_FIELDS) == (half == "policy")}
    mixed = {k: x.float() if k in narrow else x for k, x in field.items()}
    outcomes = []
    for given in (mixed, {k: x.double() if k in narrow else x for k, x in mixed.items()}):
        step = assemble(objective, given)
        loss = objective.loss(step.batch, step.totals)
        loss.value.backward()
        outcomes.append((loss.value.double(), step.logprob.grad.double()))
    (value, gradient), (exact, pull) = outcomes
    assert (value - exact).abs() <= 1e-5 * (1 + exact.abs())
    assert (gradient - pull).norm() <= 1e-5 * pull.norm()


# Numbers of which float32 keeps few digits beside their offset.
FAR = {"reward", "rewards", "baseline", "value", "gain"}
# Where a difference cancels what float32 would have lost before it.
CANCELLED = [
    # every confidence is that in the prompt: no shift, but alpha times a rounding
    (
        "arm",
        {"alpha": 1e6, "fraction": 1.0},
        lambda x: {"old_logprob": x["prompt_logprob"][:, None].expand(x["mask"].shape)},
    ),
    # tokens that are almost sure: 1 - 2 p + Σp² is a difference of numbers near 1
    ("otb", {}, lambda x: {"old_logprob": 1e-3 * x["old_logprob"], "old_collision": (2e-3 * x["old_logprob"]).exp()}),
]


@pytest.mark.parametrize(("name", "options", "change"), [*((*case, lambda x: {}) for case in CASES), *CANCELLED])
def test_float32_is_rounded_once(name: str, options: dict, change: Callable[[dict], dict]) -> None:
    """Credit and signals of numbers that float32 holds, near 1000: those of the same numbers in float64."""
    objective, field = tokenpo.method(name, **options), tensors(ragged(1, binary=False), torch.float32)
    narrow = {k: x + 1000.1 if k in FAR else x for k, x in field.items()}
    # the last token earns most of it
    narrow["token_reward"] = 0.3 * field["token_reward"] + 1000.1 * (field["mask"].flip(1).cumsum(1).flip(1) == 1)
    narrow |= change(narrow)
    credits = [
        assemble(objective, {k: x.to(dtype) if x.is_floating_point() else x for k, x in narrow.items()}).batch.credit
        for dtype in (torch.float32, torch.float64)
    ]
    found, exact = ([credit.advantage, *credit.signals.values()] for credit in credits)
    for x, y in zip(found, exact, strict=True):
        x, y = (z.expand(field["mask"].shape)[field["mask"]].double() for z in (x, y))
        assert ((x - y).abs() <= 2e-7 * y.abs().clamp(min=1)).all()


def _unpenalised(name: str, **options) -> tokenpo.Objective:
    """Penalties act without any advantage."""
    return dataclasses.replace(tokenpo.method(name, **options), penalties=())


@every_case
def test_terms_are_what_made_the_loss(name: str, options: dict) -> None:
    """Σ loss · coefficient is the value; a token is still exactly where it is clipped, or A or its weight is 0."""
    sample = ragged(4)
    got = run(tokenpo.method(name, **options), sample)
    assert (got.terms["loss"] * got.terms["coefficient"])[sample.mask].sum() == pytest.approx(got.value, rel=1e-12)
    bare = run(_unpenalised(name, **options), sample)
    still = bare.terms["clipped"].astype(bool) | (bare.terms["advantage"] == 0) | (bare.terms["weight"] == 0)
    np.testing.assert_array_equal((bare.gradient == 0)[sample.mask], still[sample.mask])


def _all_earn(sample: Sample, reward: float) -> Sample:
    """Every rollout from every reward function, at its end."""
    each = np.full_like(sample.rewards, reward)
    return sample.but(reward=each[:, 0], rewards=each, token_reward=np.zeros_like(sample.token_reward))


DEGENERATE = {
    "groups of one": lambda s: s.but(group=np.arange(len(s.reward))),
    "equal rewards": lambda s: _all_earn(s, 0.1),  # three times 0.1 is not 0.3
    "no right answer": lambda s: _all_earn(s, 0.0),
}


@every_method
@pytest.mark.parametrize("case", DEGENERATE)
def test_nothing_to_compare_teaches_nothing(name: str, case: str) -> None:
    sample = DEGENERATE[case](ragged(5))
    if case in UNCOMPARED.get(name, ()):
        assert run(tokenpo.method(name), sample).gradient.any()
        return
    assert not run(_unpenalised(name), sample).gradient.any()
    assert np.isfinite(run(tokenpo.method(name), sample).gradient).all()


DIFFERENCES = (50.0, 1e4, 1e30)


@pytest.mark.parametrize("name", tokenpo.methods.METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_huge_differences_are_bounded(name: str, dtype: torch.dtype) -> None:
    """A token in three moved by ±50, ±1e4 or ±1e30 nats against the old, the sampler's and the reference policy."""
    objective = tokenpo.method(name)
    for difference in DIFFERENCES:
        if difference > torch.finfo(dtype).max / 100:
            continue
        sample = ragged(11)
        rng = np.random.default_rng(3)
        for field in ("logprob", "old_logprob", "ref_logprob", "rollout_logprob"):
            values = getattr(sample, field)
            far = rng.random(values.shape) < 1 / 3
            sample = sample.but(**{field: np.where(far & sample.mask, -difference, values)})
        fields = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors(sample).items()}
        step = assemble(objective, fields, inputs=OPTIONAL)
        loss = objective.loss(step.batch, step.totals)
        loss.value.backward()
        assert loss.value.dtype == torch.float32
        assert torch.isfinite(loss.value), difference
        assert step.logprob.grad is not None
        assert torch.isfinite(step.logprob.grad).all(), difference
        for term in ("ratio", "weight", "advantage", "coefficient"):
            assert torch.isfinite(loss.terms[term]).all(), (term, difference)


EPS = 1e-6
# One token each: right, right, wrong of group 6. r = 1 + 0.1 · 2 · 1/2 = 1.1 for the right, -1.1 for the wrong; the
# bonuses -0.5, 0 and 0.2 make them 0.6, 1.1 and -0.9.
BONUS = torch.tensor([-0.5, 0.0, 0.2], dtype=torch.float64)
SHAPED = [0.6, 1.1, -0.9]


def _normalised(values: list[float], collection: list[float]) -> list[float]:
    return [(x - statistics.mean(collection)) / (statistics.stdev(collection) + EPS) for x in values]


@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("with_zeros", _normalised([0.6, 1.1], [0.6, 1.1, 0]) + _normalised([-0.9], [0, 0, -0.9])),
        ("own_set", [*_normalised([0.6, 1.1], [0.6, 1.1]), 0.0]),  # alone in its set: no deviation
        ("pooled", _normalised(SHAPED, SHAPED)),
    ],
)
def test_the_bonus_is_part_of_the_token_reward(rollouts, collection: str, expected: list[float]) -> None:
    seen = PolarTokens(1.0, 0.1, collection)(rollouts([1, 1, 1], [1, 1, 0], [6, 6, 6]), BONUS)
    assert seen[:, 0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("geometric", [False, True])
def test_the_bonus_is_part_of_the_sequence_reward(rollouts, geometric: bool) -> None:
    seen = PolarSequences(1.0, 0.1, geometric)(rollouts([1, 1, 1], [1, 1, 0], [6, 6, 6]), BONUS)
    assert seen[:, 0].tolist() == pytest.approx(_normalised(SHAPED, SHAPED), rel=1e-12)


@pytest.mark.parametrize("name", ["gtpo", "grpo_s"])
def test_the_group_relative_penalty_reaches_the_advantage(rollouts, name: str) -> None:
    """Lengths 1 and 3 right, 2 wrong: L⁺ = 2, the long one pays a quarter. Bonuses 0, -1/4, 0."""
    facts = rollouts([1, 3, 2], [1, 1, 0], [6, 6, 6])
    objective = tokenpo.method(name, group_overlong=True)
    bonus = torch.tensor([0, -0.25, 0], dtype=torch.float64)
    expected = torch.where(facts.mask, objective.credit(facts, bonus), 0)
    seen = objective.prepare(facts).advantage
    assert torch.equal(seen, expected)
    assert seen[1, 0] < seen[0, 0]


def test_equal_entropies_share_equally_in_single_precision_too() -> None:
    """Six right rollouts with H = 0.3 each: every share is 6 · 0.3 / 1.8 = 1, as at H = 0.5, so A is exactly 0.

    In float32 the sum of six 0.3 is rounded and the share is 1.0000001; divided by eps that would be an advantage.
    """
    rollouts = tokenpo.Rollouts(
        mask=torch.ones(7, 2, dtype=torch.bool),
        reward=torch.tensor([1.0] * 6 + [0.0]),
        group=torch.zeros(7, dtype=torch.long),
        old_logprob=torch.zeros(7, 2),
        old_entropy=torch.tensor([[0.3, 0.5]] * 7),
    )
    advantage = tokenpo.method("gtpo", normalise="own_set", a1=0.0, a2=1.0).prepare(rollouts).advantage
    assert not advantage[:6].any()
