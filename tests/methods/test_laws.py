"""The laws that every method of the table obeys, whatever it computes."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import OPTIONAL, POLICY_FIELDS, Sample, assemble, close, ragged, run, tensors

# Every method with its defaults, and the options that change what is read or when.
CASES = [(name, {}) for name in tokenpo.methods.METHODS] + [
    ("grpo", {"beta": 0.1}),
    ("tepo", {"decreasing": "analytic", "kl_target": "reference"}),
    ("gtpo", {"scope": "batch", "normalise": "pooled"}),
    ("grpo_s", {"mean": "geometric"}),
    ("tr_grpo", {"normalise_weights": True, "beta": 0.1, "kl_weighting": "inside"}),
    ("tr_grpo", {"normalise_weights": True, "weight_prob": "old", "weight_placement": "ratio"}),
    ("hapo", {"entropy": "current"}),
    ("hapo", {"token_mean_advantage": False, "alpha": 0.0, "beta": 0.0}),
    ("clip_cov", {"fraction": 0.05, "cov_low": 0.1}),
    ("kl_cov", {"fraction": 0.1}),
    ("cispo", {"absolute": True, "high": 3.0, "low": 0.5}),
    ("aspo", {"entropy": "current"}),
    ("archer", {"entropy": "current", "kl": 0.1}),
    ("ce_gppo", {"beta1": 0.0}),
    ("dppo_kl", {"anchor": "old"}),
    ("forking_tokens", {"entropy": "current", "beta": 0.1}),
    ("stapo", {"prob": 0.5}),
    ("stapo", {"prob": 0.5, "policy": "old"}),
    ("reinforce_pp", {"beta": 0.1}),
    ("reinforce_pp_baseline", {"beta": 0.1}),
    ("sent", {"fraction": 0.2, "entropy": "old", "beta": 0.1}),
    ("nthr", {"beta": 0.0, "eta": 0.5, "kl": 0.0}),
    ("thr", {"p": -0.5, "mask": False}),
    ("arm", {"alpha": 1.0, "fraction": 0.5, "only_correct": True}),
    ("grpo_passk", {"std": False}),
    ("maxrl", {"baseline": "kept"}),
    ("maxrl", {"baseline": "none"}),
    ("maxrl", {"order": 3}),
    ("hmpo", {"additive": True, "beta": 0.1}),
    ("topr", {"level": "token", "signal": "advantage"}),
    ("dhpo", {"mixing": "entropy"}),
    ("dhpo", {"mixing": "entropy", "form": "min_of_mixes"}),
    ("egspo", {"curve": "chord"}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{'-'.join(o)}" for n, o in CASES])
every_method = pytest.mark.parametrize("name", tokenpo.methods.METHODS)

# Penalties act without any advantage; these settings switch them off.
UNPENALISED = {
    "kl_cov": {"coef": 0.0}, "adv_reweight": {"beta": 0.0}, "tepo": {"beta": 0.0}, "archer": {"kl": 0.0},
    "sent": {"coef": 0.0, "beta": 0.0}, "nthr": {"kl": 0.0},
    **{name: {"beta": 0.0} for name in ("grpo", "tr_grpo", "forking_tokens", "reinforce_pp_baseline", "lopti", "hmpo")},
}  # fmt: skip
# A random draw follows the order of the rows: with fraction 1 nothing is left to chance.
CERTAIN = {"clip_cov": {"fraction": 1.0}, "s_grpo": {"fraction": 1.0}}
# Settings under which a small batch meets what a method looks for.
VISIBLE = {
    "stapo": {"prob": 0.5}, "sent": {"fraction": 0.2}, "forking_tokens": {"fraction": 0.5},
    "skywork_entropy": {"start": 0.3, "largest": 1.0, "target": 0.75}, "aer": {"start": 0.3, "largest": 1.0},
}  # fmt: skip
# Methods that let few tokens speak.
FEW = {"t_spmo": 20, "grpo_passk": 10}
SEQUENCE_MEAN = {
    "grpo",
    "gspo",
    "gspo_token",
    "grpo_s",
    "tr_grpo",
    "gmpo",
    "sapo",
    "edge_grpo",
    "s_grpo",
    "nthr",
    "thr",
    "ha_dw",
    "dhpo",
}
SEQUENCE_SUM = {"topr", "luspo"}
# Only the best response of a group learns: rewards without ties, and fewer tokens that move.
SPARSE = {"grpo_passk"}
# Advantages that compare nothing inside a group, and where they teach all the same.
UNCOMPARED = {
    "reinforce_pp": {"groups of one"}, "raft": {"groups of one", "equal rewards"},
    "raft_pp": {"groups of one", "equal rewards"}, "topr": {"groups of one", "equal rewards", "no right answer"},
    "hmpo": {"equal rewards"},  # the lengths of right answers are compared
}  # fmt: skip


@every_case
@pytest.mark.parametrize("seed", range(2))
def test_pieces_add_up(name: str, options: dict, seed: int) -> None:
    objective, sample = tokenpo.method(name, **options), ragged(seed)
    n, rng = len(sample.reward), np.random.default_rng(seed)
    whole = run(objective, sample)
    order = rng.permutation(n)
    for pieces in (
        [slice(i, i + 1) for i in range(n)],
        [slice(0, 2), slice(2, 13), slice(13, n)],
        [torch.tensor(order[:5]), torch.tensor(order[5:])],
    ):
        close(run(objective, sample, pieces=pieces), whole, rtol=1e-12)


@every_case
def test_padding_is_inert(name: str, options: dict) -> None:
    objective, sample = tokenpo.method(name, **options), ragged(1)
    whole = run(objective, sample)
    assert not whole.gradient[~sample.mask].any()
    for padding in (0.0, -7.5, float("inf")):
        other = run(objective, sample, padding=padding)
        assert other.value == whole.value
        np.testing.assert_array_equal(other.gradient, whole.gradient)
    wide = run(objective, sample.widened(4))
    assert wide.value == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(wide.gradient[:, : sample.mask.shape[1]], whole.gradient, rtol=1e-12, atol=1e-17)


@every_case
def test_order_and_names_are_free(name: str, options: dict) -> None:
    objective, sample = (
        tokenpo.method(name, **options, **({} if "fraction" in options else CERTAIN.get(name, {}))),
        ragged(2),
    )
    whole = run(objective, sample)
    renamed = sample.but(group=np.array([1000 - 31 * g for g in sample.group]))
    close(run(objective, renamed), whole, rtol=1e-11)
    if name == "clip_cov" and options:
        return  # its draw depends on the order, by design
    order = np.random.default_rng(0).permutation(len(sample.reward))
    shuffled = run(objective, sample.rows(order))
    assert shuffled.value == pytest.approx(whole.value, rel=1e-11)
    np.testing.assert_allclose(shuffled.gradient, whole.gradient[order], rtol=1e-11, atol=1e-15)


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


@every_case
def test_whole_numbers_are_rewards(name: str, options: dict) -> None:
    """Integers become float32 at the boundary, and 0 and 1 lose nothing there."""
    objective, sample = tokenpo.method(name, **options), ragged(0, binary=True)
    field = tensors(sample)
    exact, whole = (
        assemble(objective, {**field, "reward": field["reward"].to(dtype)}) for dtype in (torch.float64, torch.int64)
    )
    torch.testing.assert_close(whole.batch.credit.advantage, exact.batch.credit.advantage, rtol=1e-14, atol=1e-15)


def _denominator(name: str, sample: Sample) -> np.ndarray:
    """[N, 1], counted here: of a response mean, of a response sum, of Dr. GRPO's constant, of a token mean."""
    length = sample.mask.sum(1, keepdims=True)
    sequences = (length > 0).sum()
    if name in SEQUENCE_MEAN:
        return sequences * np.maximum(length, 1)
    if name in SEQUENCE_SUM:
        return np.full_like(length, sequences)
    return np.full_like(length, sequences * length.max() if name == "dr_grpo" else length.sum())


@every_method
def test_gradient_at_ratio_one(name: str) -> None:
    """-w A / denominator, with the old policy as reference and the entropies unmoved: no penalty pulls."""
    sample = ragged(3, binary=name not in SPARSE).on_policy()
    got = run(tokenpo.method(name, **VISIBLE.get(name, {})), sample)
    expected = -got.terms["weight"] * got.terms["advantage"] / _denominator(name, sample)
    np.testing.assert_allclose(got.gradient, np.where(sample.mask, expected, 0), rtol=1e-12, atol=1e-17)
    assert np.count_nonzero(got.gradient) > FEW.get(name, 30)


@every_case
def test_terms_are_what_made_the_loss(name: str, options: dict) -> None:
    """Σ loss · coefficient is the value; a token is still exactly where it is clipped, or A or its weight is 0."""
    sample = ragged(4)
    got = run(tokenpo.method(name, **options), sample)
    assert (got.terms["loss"] * got.terms["coefficient"])[sample.mask].sum() == pytest.approx(got.value, rel=1e-12)
    bare = run(tokenpo.method(name, **{**options, **UNPENALISED.get(name, {})}), sample)
    still = bare.terms["clipped"].astype(bool) | (bare.terms["advantage"] == 0) | (bare.terms["weight"] == 0)
    np.testing.assert_array_equal((bare.gradient == 0)[sample.mask], still[sample.mask])


DEGENERATE = {
    "groups of one": lambda s: s.but(group=np.arange(len(s.reward))),
    "equal rewards": lambda s: s.but(reward=np.full(len(s.reward), 0.1)),  # three times 0.1 is not 0.3
    "no right answer": lambda s: s.but(reward=np.zeros(len(s.reward))),
}


@every_method
@pytest.mark.parametrize("case", DEGENERATE)
def test_nothing_to_compare_teaches_nothing(name: str, case: str) -> None:
    sample = DEGENERATE[case](ragged(5))
    if case in UNCOMPARED.get(name, ()):
        assert run(tokenpo.method(name), sample).gradient.any()
        return
    assert not run(tokenpo.method(name, **UNPENALISED.get(name, {})), sample).gradient.any()
    assert np.isfinite(run(tokenpo.method(name), sample).gradient).all()


@every_method
def test_zero_entropy_is_finite(name: str) -> None:
    sample = ragged(5)
    nothing = np.zeros(sample.mask.shape)
    got = run(tokenpo.method(name), sample.but(old_entropy=nothing, entropy=nothing))
    assert np.isfinite(got.value)
    assert np.isfinite(got.gradient).all()


@every_case
def test_a_rollout_without_tokens_does_not_count(name: str, options: dict) -> None:
    """Its row has no gradient, and leaving it out changes nothing else, not even its group's statistics."""
    objective, sample = tokenpo.method(name, **options), ragged(0)
    alive = sample.mask.any(1)
    assert (~alive).sum() == 1
    whole, without = run(objective, sample), run(objective, sample.rows(np.flatnonzero(alive)))
    assert without.value == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(whole.gradient[alive], without.gradient, rtol=1e-11, atol=1e-17)


@every_method
def test_nothing_at_all_is_an_error_or_nothing(name: str) -> None:
    sample = ragged(0)
    silent = sample.but(mask=np.zeros_like(sample.mask))
    try:
        got = run(tokenpo.method(name), silent)
    except tokenpo.TokenPOError:
        return
    assert got.value == 0
    assert not got.gradient.any()


@every_case
def test_needs_are_true(name: str, options: dict) -> None:
    objective, sample = tokenpo.method(name, **options), ragged(6)
    everything = run(objective, sample, inputs=OPTIONAL)
    for missing in OPTIONAL:
        inputs = [i for i in OPTIONAL if i != missing]
        if missing in objective.needs:
            with pytest.raises(tokenpo.MissingInput, match=rf"{name}\b.*{missing}"):
                run(objective, sample, inputs=inputs)
        else:
            got = run(objective, sample, inputs=inputs)
            assert got.value == everything.value
            np.testing.assert_array_equal(got.gradient, everything.gradient)


@every_case
def test_a_declared_input_matters(name: str, options: dict) -> None:
    """Every need changes the loss or what is remembered when its numbers change: none is asked for in vain."""
    objective, sample = tokenpo.method(name, **{**VISIBLE.get(name, {}), **options}), ragged(7)

    def outcome(sample: Sample) -> tuple:
        facts = assemble(objective, tensors(sample)).batch.rollouts
        return run(objective, sample).value, objective.after(objective.start(), facts)

    before = outcome(sample)
    for need in objective.needs:
        old = getattr(sample, need)
        other = (
            old[::-1] + 1 if need == "token_ids" else np.abs(old[::-1] * 2) * (-1 if need.endswith("logprob") else 1)
        )
        moved = sample.but(**{need: np.where(sample.mask, other, 0) if other.ndim == 2 else other})
        assert outcome(moved) != before, need


@every_case
def test_only_the_current_logprob_has_a_gradient(name: str, options: dict) -> None:
    """Facts and entropies may arrive with a graph (lp_old = lp, not detached, is easily written): none flows there."""
    objective = tokenpo.method(name, **options)
    field = tensors(ragged(8))
    leaves = {k: v.requires_grad_() for k, v in field.items() if v.is_floating_point() and k != "logprob"}
    step = assemble(objective, field, inputs=OPTIONAL)
    loss = objective.loss(step.batch, step.totals)
    loss.value.backward()
    assert step.logprob.grad is not None
    assert step.logprob.grad.any()
    for key, leaf in leaves.items():
        assert leaf.grad is None or not leaf.grad.any(), f"a gradient flows to {key}"
    for key, term in loss.terms.items():
        assert not term.requires_grad, key


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_enters_and_float32_comes_out(name: str, options: dict, dtype: torch.dtype) -> None:
    """The same rounded numbers in float64 give the same loss to float32's precision."""
    objective = tokenpo.method(name, **options)
    rounded = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors(ragged(9)).items()}
    exact = {k: v.double() if v.is_floating_point() else v for k, v in rounded.items()}
    losses = []
    for field in (rounded, exact):
        step = assemble(objective, field)
        losses.append(objective.loss(step.batch, step.totals).value)
    assert losses[0].dtype == torch.float32
    assert losses[1].dtype == torch.float64
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4, abs=1e-5)


@every_method
def test_unknown_keyword_names_the_nearest(name: str) -> None:
    for keyword in inspect.signature(tokenpo.methods.METHODS[name]).parameters:
        if len(keyword) > 2:  # "a" is near to nothing
            for build in (lambda **o: tokenpo.method(name, **o), tokenpo.methods.METHODS[name]):
                with pytest.raises(tokenpo.UnknownName, match=rf"{name}.*'{keyword}'"):
                    build(**{keyword + "x": 1})


def test_unknown_method_names_the_nearest() -> None:
    with pytest.raises(tokenpo.UnknownName, match="'hapo'"):
        tokenpo.method("hapoo")


@pytest.mark.parametrize(
    ("name", "option", "wrong", "right"),
    [
        ("tepo", "decreasing", "deltas", "delta"),
        ("tepo", "kl_target", "referenc", "reference"),
        ("tepo", "estimator", "k33", "k3"),
        ("gtpo", "normalise", "with_zero", "with_zeros"),
        ("gtpo", "scope", "groups", "group"),
        ("grpo_s", "mean", "geometrical", "geometric"),
        ("tr_grpo", "weight_placement", "ratios", "ratio"),
        ("tr_grpo", "kl_weighting", "scaled", "scale"),
        ("tr_grpo", "weight_prob", "curent", "current"),
        ("hapo", "sign", "papers", "paper"),
        ("hapo", "entropy", "curent", "current"),
    ],
)
def test_unknown_choice_names_the_nearest(name: str, option: str, wrong: str, right: str) -> None:
    with pytest.raises(tokenpo.UnknownName, match=rf"{option}.*'{right}'"):
        tokenpo.method(name, **{option: wrong})
