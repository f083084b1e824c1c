"""Methods that follow the entropy: HAPO, TEPO and the entropy bonuses that adapt, by hand and beside their oracles."""

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import agrees, by_hand, close, facts, moves, of, outcome, ragged, run, score
from oracles.entropy import aer_after, skywork_after, temperature
from tokenpo.core.parts import K1, K2, K3, AbsoluteLogRatio, Estimator, OldEntropyScore, StraightThrough
from tokenpo.core.types import Rollouts, Trust
from tokenpo.methods.hapo import Redistribution, TokenGroupAdvantage
from tokenpo.methods.tepo import MaskedKl, StepSign

THREE = 1 / (1 + 1e-6)  # advantages of rewards 2, 1, 0: ±THREE and 0


@pytest.mark.parametrize(
    ("right", "wrong", "falls_back"), [(1, 20, False), (4, 99, False), (4, 101, True), (1, 60, True)]
)
def test_hapo_falls_back_to_grpo_in_a_lopsided_group(right: int, wrong: int, falls_back: bool) -> None:
    """Right against wrong tokens: the right ones' (1 - μ) / σ is sqrt(wrong / right), and the limit is 5."""
    mask = np.arange(wrong) < np.array([[right], [wrong]])
    entropy = np.random.default_rng(0).gamma(1.0, size=(2, wrong))
    sample = of(mask, np.array([1.0, 0.0]), np.array([0, 0]), old_entropy=entropy)
    agrees("hapo", sample)
    token_mean, plain = (outcome("hapo", sample, beta=0.0, token_mean_advantage=x).gradient for x in (True, False))
    assert np.allclose(token_mean, plain, rtol=1e-12) == falls_back


def test_hapo_released_fallback_looks_at_padding() -> None:
    """Mean -1.0875 over the tokens' deviation 0.07395: 14.7 for a reward of 0. GRPO's deviation is 0.08539."""
    sample = by_hand([[1.0]] * 4, [-1, -1.1, -1.2, -1.05], old_entropy=[[1.0]] * 4)
    for fallback, deviation in (("tokens", 0.0218750 / 4), ("released", 0.0218750 / 3)):
        advantage = outcome("hapo", sample, fallback=fallback).terms["advantage"]
        assert advantage[0, 0] == pytest.approx(0.0875 / (np.sqrt(deviation) + 1e-6), rel=1e-6)


# log H = 1, -4 | -3, -2, -1, 0: the 0.8 quantile of six is the fifth smallest, round(0.8 · 5) = 4, which is 0. So h is
# log H over s, and h^ = 1, -1 | -3/4, -1/2, -1/4, 0: s drops out of the normalisation. Token mean 2/6, variance
# (2 (2/3)² + 4 (1/3)²) / 6 = 2/9: A = 2/3, -1/3 over SD.
ENTROPY = [list(np.exp(row)) for row in ([1.0, -4.0], [-3.0, -2.0, -1.0, 0.0])]
SD = np.sqrt(2 / 9) + 1e-6


def test_hapo() -> None:
    """(0,0) h^ = 1: high 0.4, neutral to 1.2; 1.3 is outside: twice A, not clipped at 1.4: 2.6
    (0,1) h^ = -1: low 0.4; 1 is neutral: A · 0: nothing
    (1,0) h^ = -3/4: low 0.35, neutral from 0.825; 0.7 is outside: A stays, not clipped at 0.65: 0.7
    (1,1) h^ = -1/2: low 0.3, neutral from 0.85; 0.9 is inside: A / 2: 0.45
    (1,2) h^ = -1/4: low 0.25; 0.7 is outside the zone and clipped to 0.75: 0.75, no gradient
    (1,3) h^ = 0: 20 meets the dual clip: 10, no gradient
    """
    sample = by_hand([[1.3, 1.0], [0.7, 0.9, 0.7, 20.0]], [1, 0], old_entropy=ENTROPY)
    value = -(2 * 2.6 - 0.7 - 0.45 - 0.75 - 10)
    got = outcome("hapo", sample)
    assert got.value == pytest.approx(value / SD / 18, rel=1e-10)
    expected = np.array([[-5.2, 0, 0, 0], [0.7, 0.45, 0, 0]]) / SD / 18
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-10, atol=1e-14)


def test_hapo_released_sign() -> None:
    """Divided by the minimum itself the least uncertain token gets +1: h^ = 1, 1 | 3/4, 1/2, 1/4, 0.

    All but the last widen above and are redistributed outside the zone. (0,1) at ratio 1 is inside: A stays. 0.7,
    0.89, 0.7 are below the zone's 0.9: A times 7/4, 3/2, 5/4, the first and last clipped at 0.8. h^ = 0 is as before.
    """
    sample = by_hand([[1.3, 1.0], [0.7, 0.89, 0.7, 20.0]], [1, 0], old_entropy=ENTROPY)
    got = outcome("hapo", sample, sign="released")
    value = -(2 * 2.6 + 2 - 0.8 * 1.75 - 0.89 * 1.5 - 0.8 * 1.25 - 10)
    assert got.value == pytest.approx(value / SD / 18, rel=1e-10)
    expected = np.array([[-5.2, -2, 0, 0], [0, 0.89 * 1.5, 0, 0]]) / SD / 18
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("sign", ["paper", "released"])
@pytest.mark.parametrize("options", [{}, {"quantile": 0.5, "tau": 0.2}, {"quantile": 1.0}])
def test_hapo_temperature_is_its_oracle(sign: str, options: dict) -> None:
    sample = ragged(0)
    rule = tokenpo.method("hapo", sign=sign, **options).temperature
    entropy = np.concatenate([[0.0, 1e-12, 50.0], np.random.default_rng(1).gamma(0.7, size=40), sample.old_entropy[0]])
    expected = temperature(sample.old_entropy[sample.mask], entropy, base=0.7, sign=sign, **options)
    got = rule(torch.tensor(entropy), 0.7, rule.after(rule.start(), facts(sample)))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10)


def test_hapo_temperature() -> None:
    """q = 0, h^ = 1 at log H = 1, -1 at -4: T (1 ± 0.05); -1/2 half way down; clamped beyond; T without statistics."""
    rule = tokenpo.method("hapo").temperature
    numbers = rule.after(rule.start(), facts(by_hand([[1.0] * 6], [1], old_entropy=np.exp([[1.0, -4, -3, -2, -1, 0]]))))
    step = torch.tensor([1.0, -4, -2, 0, 3, -7], dtype=torch.float64).exp()
    np.testing.assert_allclose(rule(step, 2.0, numbers), [2.1, 1.9, 1.95, 2, 2.1, 1.9], rtol=1e-12)
    np.testing.assert_array_equal(rule(step, 2.0, {}), np.full(6, 2.0))


SEQUENCES = [[1.21, 1.0], [1.3], [0.5, 2.0]]  # s = 1.1, 1.3, 1: TEPO v1 has J = 0.2 a / 5


def test_tepo() -> None:
    """As TEPO v1 less k3 where A > 0 and the entropy fell: only token (0, 0).

    There r = 1.21: k3 = 0.21 - log 1.21, ∂k3/∂lp = 1.21 - 1. At (0, 1) the entropy rose; row 2 has A < 0.
    """
    a, entropy = THREE, [[0.5, 1.5], [0.5], [0.5, 0.5]]
    sample = by_hand(SEQUENCES, [2, 1, 0], old_entropy=np.ones((3, 2)), entropy=entropy)
    value, gradient = -(0.2 * a - (0.21 - np.log(1.21))), [[-1.1 * a + 0.21, -1.1 * a], [0], [a, a]]
    moves("tepo", sample, value, gradient, unit=1 / 5)


def test_tepo_below_the_reference() -> None:
    """As TEPO v1 less k3 of π_ref/π where A > 0 and lp > lp_ref: only token (0, 0), at π_ref/π = 1/2.

    There k3 = -1/2 + log 2 and ∂k3/∂lp = 1 - 1/2. At (0, 1) π_ref/π = 2; at (1, 0) A = 0; row 2 has A < 0.
    """
    a, sample = THREE, by_hand(SEQUENCES, [2, 1, 0])
    sample = sample.but(ref_logprob=sample.logprob + np.log([[0.5, 2], [0.5, 1], [0.5, 0.5]]))
    value, gradient = -(0.2 * a - (np.log(2) - 0.5)), [[-1.1 * a + 0.5, -1.1 * a], [0], [a, a]]
    moves("tepo", sample, value, gradient, unit=1 / 5, decreasing="reference", kl_target="reference")


def test_tepo_analytic_mask_leaves_out_a_token_that_changes_no_entropy() -> None:
    """p = 1 and H = 0: the change is exactly 0, and there is no penalty, though lp rose by 1/2."""
    sample = by_hand([[1.0], [1.0]], [1, 0], entropy=[[0.0]] * 2, entropy_drift=[[0.0]] * 2)
    sample = sample.but(logprob=np.zeros((2, 1)), old_logprob=np.full((2, 1), -0.5))
    close(outcome("tepo", sample, decreasing="analytic"), outcome("tepo_v1", sample))


def _entropy(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return -(p * np.log(p)).sum(1)


def test_tepo_analytic_mask_is_where_a_step_on_the_logits_lowers_the_entropy() -> None:
    """For 200 random distributions over 6 tokens, one small step along A ∇_z log p(token) with A > 0."""
    rng, n, V = np.random.default_rng(0), 200, 6
    logits, token = rng.normal(scale=1.5, size=(n, V)), rng.integers(0, V, n)
    p, H = np.exp(logits) / np.exp(logits).sum(1, keepdims=True), _entropy(logits)
    falls = _entropy(logits + 1e-4 * (np.eye(V)[token] - p)) < H
    assert 30 < falls.sum() < 170

    # row 0 is right, row 1 wrong; lp_old is off by 0.1, so that the penalty's gradient shows where the mask is on
    chosen, drift = np.log(p[np.arange(n), token]), (p**2 * (np.log(p) + H[:, None])).sum(1)
    two, entropy, drifts = (np.stack([x, x]) for x in (chosen, H, drift))
    sample = of(
        np.ones((2, n)), np.array([1.0, 0.0]), np.array([0, 0]), old_logprob=two - 0.1, logprob=two,
        entropy=entropy, entropy_drift=drifts,
    )  # fmt: skip
    with_kl, without = (outcome("tepo", sample, decreasing="analytic", beta=b) for b in (1.0, 0.0))
    np.testing.assert_array_equal(with_kl.gradient[0] != without.gradient[0], falls)
    np.testing.assert_array_equal(with_kl.gradient[1], without.gradient[1])


def test_aer() -> None:
    """rho = 1, coefficient 0.1: d is 1 - 1/2 in the mixed group and 1 in the one that fails; entropies 1; 4 tokens."""
    sample = by_hand([[1], [1], [1], [1]], [1, 0, 0, 0], [0, 0, 1, 1], entropy=[[1.0]] * 4)
    got = outcome("aer", sample, rho=1.0, start=0.1, largest=0.1)
    np.testing.assert_allclose(got.entropy_gradient, [[-0.0125], [-0.0125], [-0.025], [-0.025]], rtol=1e-12)
    assert got.value == pytest.approx(-(0.05 * 2 + 0.1 * 2) / 4, rel=1e-12)


def test_skywork_entropy() -> None:
    """Rewards all equal, so the bonus is alone: coefficient 0.1 on entropies 1, 2, 3 of three tokens, H_old all 0.1."""
    sample = by_hand([[1, 1], [1]], [1, 1], entropy=[[1, 2], [3]], old_entropy=[[0.1, 0.1], [0.1]])
    got = outcome("skywork_entropy", sample, start=0.1, largest=0.2)
    assert got.value == pytest.approx(-0.1 * 6 / 3, rel=1e-12)
    np.testing.assert_allclose(got.entropy_gradient, -0.1 * sample.mask / 3, rtol=1e-12)


def _of_entropy(entropy: float) -> Rollouts:
    return facts(by_hand([[1, 1]], [1], old_entropy=[[entropy, entropy]]))


@pytest.mark.parametrize(
    ("name", "entropies", "coefficients"),
    [
        # the first batch's entropy 2 sets the target 0.8, above which nothing is added; 0.5 is below it, 0.8 at it
        ("aer", (2.0, 0.5, 0.5, 0.8, 3.0), [0, 1e-4, 2e-4, 2e-4, 1e-4]),
        # two batches below the target of 0.2 raise the coefficient, three above take it back to 0 and no further
        ("skywork_entropy", (0.1, 0.1, 0.3, 0.3, 0.3), [1e-4, 2e-4, 1e-4, 0, 0]),
    ],
)
def test_controllers(name: str, entropies: tuple[float, ...], coefficients: list[float]) -> None:
    objective = tokenpo.method(name)
    state, got = objective.start(), []
    for entropy in entropies:
        state = objective.after(state, _of_entropy(entropy))
        got += [numbers["coefficient"] for numbers in state.values()]
    assert got == pytest.approx(coefficients, abs=1e-18)


@pytest.mark.parametrize("rule", ["sign", "proportional"])
def test_the_controller_of_aer_is_its_oracle(rule: str) -> None:
    objective = tokenpo.method("aer", rule=rule, start=0.002)
    state, expected = objective.start(), 0.002
    for entropy in (2.0, 0.5, 0.8, 0.3, 0.3, 1.9):
        state = objective.after(state, _of_entropy(entropy))
        expected = aer_after(expected, 2.0, entropy, rule=rule)
        (numbers,) = state.values()
        assert numbers == pytest.approx({"coefficient": expected, "target": 0.8}, rel=1e-12)


def test_the_released_controller() -> None:
    """Batches whose one token has -lp_old = 0.1, 0.3, 0.1: below, above, below the target of 0.2. The gate of each is
    set by the one before, the first's is open. The old entropies, all 9, are not even read."""
    objective = tokenpo.method("skywork_entropy", controller="released", start=0.1, delta=0.05, largest=1.0)
    state, values = objective.start(), []
    for surprise in (0.1, 0.3, 0.1):
        sample = by_hand([[1]], [1], entropy=[[2.0]], old_entropy=[[9.0]], p_old=np.exp(-surprise))
        values.append(run(objective, sample, state=state).value)
        state = objective.after(state, facts(sample))
    assert values == pytest.approx([-0.1 * 2, -0.15 * 2, 0], rel=1e-12)
    assert "old_entropy" not in objective.needs


@pytest.mark.parametrize(("was_below", "target"), [(True, 9.0), (False, 0.0)])
def test_the_released_controller_is_its_oracle(was_below: bool, target: float) -> None:
    """A batch before, of lp_old around -0.7 or far below: against a target of 9 nats, or of none."""
    sample, before, options = ragged(0), ragged(1), {"target": target, "delta": 0.1, "largest": 1.0}
    objective = tokenpo.method("skywork_entropy", controller="released", start=0.3, **options)
    got = run(objective, sample, state=objective.after(objective.start(), facts(before)))
    alpha = skywork_after(0.3, -before.old_logprob[before.mask].mean(), **options)
    close(got, score("skywork_entropy", sample, start=alpha, controller="released", was_below=was_below))
    assert got.entropy_gradient.any() == was_below


SCORE = OldEntropyScore()


def _advantage(stage: TokenGroupAdvantage, rollouts: tokenpo.Rollouts) -> list[float]:
    return stage(rollouts, torch.zeros_like(rollouts.reward))[:, 0].tolist()


def test_the_fallback_begins_at_its_limit(rollouts) -> None:
    """Rewards 1 and 0 of equal length: ±1 exactly. A limit of 1 takes GRPO's ±sqrt(1/2), one above does not.

    The other group, 1 over one token and 0 over three with its ±sqrt(3) and its lesser, keeps to itself.
    """
    facts = rollouts([2, 2, 1, 3], [1, 0, 1, 0], [0, 0, 5, 5])
    root, third = 0.5**0.5, 3**-0.5
    seen = _advantage(TokenGroupAdvantage(fallback=1.0, eps=0.0), facts)
    assert seen == pytest.approx([root, -root, root, -root], rel=1e-14)
    seen = _advantage(TokenGroupAdvantage(fallback=1.0001, eps=0.0), facts)
    assert seen == pytest.approx([1, -1, root, -root], rel=1e-14)
    seen = _advantage(TokenGroupAdvantage(fallback=2.0, eps=0.0), facts)
    assert seen == pytest.approx([1, -1, 3**0.5, -third], rel=1e-14)


def _scored(scores: list[float]) -> tokenpo.Batch:
    """One row of tokens with these entropy scores."""
    token = torch.zeros(1, len(scores), dtype=torch.float64)
    rollouts = tokenpo.Rollouts(token == 0, torch.zeros(1), torch.zeros(1, dtype=torch.long), token)
    credit = tokenpo.Credit(token, {SCORE: torch.tensor([scores], dtype=torch.float64)})
    return tokenpo.Batch(rollouts, credit, tokenpo.Policy(token))


def test_redistribution_by_hand() -> None:
    """Bounds 1/2 and 3/2: the neutral zone is the open interval (3/4, 5/4). beta 1/2.

    h = 1/2 acts outside it: 5/4; h = -1/2 inside it: 3/4; its ends are outside.
    """
    ratio = torch.tensor([[0.7, 0.75, 0.76, 1.24, 1.25, 1.3]], dtype=torch.float64)
    trust = Trust(ratio, ratio, 0.5, 1.5, ratio > 9)
    weight = Redistribution(0.5, SCORE)
    assert weight(_scored([0.5] * 6), trust).tolist() == [[1.25, 1.25, 1, 1, 1.25, 1.25]]
    assert weight(_scored([-0.5] * 6), trust).tolist() == [[1, 1, 0.75, 0.75, 1, 1]]
    assert weight(_scored([0.0] * 6), trust).tolist() == [[1] * 6]


@pytest.mark.parametrize(
    "estimator", [K1(), K2(), K3(), AbsoluteLogRatio(), StraightThrough(K1(), K3()), StraightThrough(K3(), K1())]
)
def test_a_masked_kl_is_idle_on_policy_where_its_estimator_has_no_gradient_there(estimator: Estimator) -> None:
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(estimator(x).sum(), x)
    assert estimator.stationary == (gradient.item() == 0)
    assert MaskedKl(3.0, StepSign(), estimator).idle_on_policy == estimator.stationary
    assert not MaskedKl(3.0, StepSign(), estimator, to_reference=True).idle_on_policy
