"""The hand-derived gradients against central differences of the oracles' own values: no line of the library runs."""

from __future__ import annotations

import numpy as np
import pytest

from oracle_support import ragged, score

CASES = {
    "grpo": [{}, {"beta": 0.3}],
    "dr_grpo": [{}],
    "dapo": [{}],
    "gspo": [{}],
    "gspo_token": [{}],
    "clip_cov": [{}],
    "kl_cov": [{"fraction": 0.3}],
    "tepo_v1": [{}],
    "tepo": [
        {"decreasing": rule, "kl_target": target, "estimator": estimator}
        for rule in ("delta", "analytic", "reference")
        for target in ("old", "reference")
        for estimator in ("k3", "abs", "k1", "k2")
    ],
    "gtpo": [{}],
    "grpo_s": [{}, {"mean": "geometric"}],
    # its weight is detached: only the one of the old policy stands still under differences
    "tr_grpo": [
        {"weight_prob": "old", "weight_placement": place, "kl_weighting": kl, "beta": 0.3}
        for place in ("advantage", "ratio")
        for kl in ("none", "scale", "inside")
    ],
    "hapo": [{}],
    "adv_reweight": [{"beta": 0.3}, {"beta": 0.3, "bounded_kl": True}],
    # cispo, aspo, ce_gppo, dppo, rollout_is, fipo, real, topr and vespo stop their weights' gradients on purpose: their
    # values' differences are not theirs
    "gmpo": [{}],
    "sapo": [{}],
    "archer": [{"kl": 0.3, "dual": 3.0}],
    "forking_tokens": [{"fraction": 0.5, "beta": 0.3}, {"fraction": 0.5, "denominator": "kept", "dual": 3.0}],
    "stapo": [{"prob": 0.3}],
    "edge_grpo": [{"eps": 1e-4}],
    "rloo": [{}],
    "reinforce_pp": [{"beta": 0.3}],
    "reinforce_pp_baseline": [{"beta": 0.3}],
    "raft": [{}],
    "raft_pp": [{}],
    "reinforce_rej": [{}],
    "gpg": [{}, {"sequence_mean": True}],
    "opo": [{}],
    "vineppo": [{}],
    "spo": [{}],
    "sent": [{"fraction": 0.2, "beta": 0.3}],
    "s_grpo": [{}],
    # vespo and topr, the entropy mixing and the min of mixes of dhpo and the chord of egspo stop gradients on purpose
    "luspo": [{}],
    "grpo_passk": [{}],
    "maxrl": [{}, {"baseline": "kept"}, {"order": 3}],
    "hmpo": [{"beta": 0.3}, {"by_score": True}],
    "dhpo": [{}],
    "egspo": [{}],
    "lopti": [{"part": part, "a": 0.3, "beta": 0.3} for part in (None, 0)],
    "ha_dw": [{"past": [0.2, 0.9]}],
    "skywork_entropy": [{"alpha": 0.3, "target": 9.0}],
    "aer": [{"Lambda": 0.3}],
    "t_spmo": [{}],
    "arm": [{}],
    "nthr": [{"kl": 0.3}],
    "thr": [{}],
    "tw_grpo": [{}],
    "opsm": [{"delta": 0.05, "beta": 0.3}],
    "prime_rl": [{"kl": 0.3, "low": 0.01, "high": 0.01}],
    "dro": [{"beta": 0.3}],
    "m2po": [{"budget": 0.0}],  # else its bound is a token, without gradient
    "m2po_rollout": [{"threshold": 5e-5}],
    "gdpo": [{"form": form, "beta": 0.3} for form in ("trl", "verl", "nemo_rl")],
    "otb": [{}],
    "mt_grpo": [{"beta": 0.3}],
    "gigpo": [{}],
}
# how few tokens may speak: only a group's single best rollout; only where the responses of a group part
FEW = {"grpo_passk": 7, "t_spmo": 11}


@pytest.mark.parametrize(("name", "options"), [(name, options) for name in CASES for options in CASES[name]])
def test_gradient_is_the_derivative_of_the_value(name: str, options: dict) -> None:
    sample = ragged(3, width=5)
    # exact ties of old and new are corners of |x|, where no difference quotient exists
    shift = np.where(sample.logprob == sample.old_logprob, -0.01, 0.0) * sample.mask
    sample = sample.but(logprob=sample.logprob + shift)
    extra = {
        "selected": sample.mask & (np.arange(sample.mask.size).reshape(sample.mask.shape) % 2 == 0),
        "scored_entropy": sample.old_entropy,
        "scored_logprob": sample.old_logprob,
    }
    gradient = score(name, sample, extra, **options).gradient
    step = 1e-7
    for i, t in zip(*np.nonzero(sample.mask), strict=True):
        up, down = sample.logprob.copy(), sample.logprob.copy()
        up[i, t] += step
        down[i, t] -= step
        ends = [score(name, sample.but(logprob=lp), extra, **options).value for lp in (up, down)]
        assert gradient[i, t] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-6, abs=5e-8), (i, t)
    assert np.count_nonzero(gradient) > FEW.get(name, 15)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("skywork_entropy", {"alpha": 0.3, "target": 9.0}),
        ("aer", {"Lambda": 0.3}),
        ("aer", {"Lambda": 0.3, "rho": np.inf}),
    ],
)
def test_entropy_gradient_is_the_derivative_of_the_value(name: str, options: dict) -> None:
    sample = ragged(3, width=5)
    gradient = score(name, sample, **options).entropy_gradient
    for i, t in zip(*np.nonzero(sample.mask), strict=True):
        # the value is linear in every entropy: a difference over 1 has no error but rounding
        up, down = sample.entropy.copy(), sample.entropy.copy()
        up[i, t] += 0.5
        down[i, t] -= 0.5
        ends = [score(name, sample.but(entropy=entropy), **options).value for entropy in (up, down)]
        assert gradient[i, t] == pytest.approx(ends[0] - ends[1], rel=1e-9, abs=1e-14), (i, t)
    assert np.count_nonzero(gradient) > 15


@pytest.mark.parametrize(
    ("name", "options"),
    [("cispo", {}), ("vespo", {}), ("rollout_is", {"low": 0.5, "high": 3.0}), ("real", {})]
    + [
        ("topr", {"level": level, "signal": signal})
        for level in ("sequence", "token")
        for signal in ("outcome", "advantage")
    ],
)
def test_a_detached_weight_leaves_a_value_linear_in_the_logprob(name: str, options: dict) -> None:
    """-Σ c lp with a coefficient that has no gradient: the value is the gradient's product with lp."""
    sample = ragged(3)
    got = score(name, sample, **options)
    assert got.value == pytest.approx((got.gradient * sample.logprob).sum(), rel=1e-12)
    assert np.count_nonzero(got.gradient) > 15


def test_batches_reach_every_branch() -> None:
    """Clipped and unclipped tokens of both signs, beyond the dual clip; sequence ratios inside and outside 3e-4."""
    seen = set()
    for seed in range(4):
        sample = ragged(seed)
        x = np.where(sample.mask, sample.logprob - sample.old_logprob, 0)
        s = x.sum(1, keepdims=True) / np.maximum(sample.mask.sum(1, keepdims=True), 1)
        mixed = sample.mask & ~np.isin(sample.group, [4, 11])[:, None]
        right = (sample.reward > 0)[:, None]
        branches = {"above": x > 0.3, "below": x < -0.3, "inside": np.abs(x) < 0.1, "still": x == 0, "dual": x > 2.4}
        branches |= {"falling": sample.entropy < sample.old_entropy, "certain": sample.old_entropy < 1e-8}
        branches |= {"row above": s > 0.3, "row below": s < -0.3}
        branches |= {"row just above": (s > 0) & (s < 3e-4), "row just below": (s < 0) & (s > -3e-4)}
        for outcome, rows in (("right", mixed & right), ("wrong", mixed & ~right)):
            seen |= {(outcome, name) for name, where in branches.items() if (rows & where).any()}
    assert seen == {(outcome, name) for outcome in ("right", "wrong") for name in branches}
