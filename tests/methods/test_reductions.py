"""Settings under which a method is another one: values and gradients, or the gradient alone."""

import numpy as np
import pytest

from oracle_support import Sample, close, outcome, ragged

RAGGED = ragged(0)
EQUAL = ragged(0, equal_lengths=True)  # where the token mean and the mean of response means are one
ONE_TOKEN = ragged(0, width=1, equal_lengths=True)
ON_POLICY = ragged(0).on_policy()
ON_POLICY_ONE = ONE_TOKEN.on_policy()
ONE_GROUP = EQUAL.but(group=np.zeros_like(EQUAL.group))
CLUELESS = RAGGED.but(value=0 * RAGGED.value)  # a critic that expects nothing
HELPING = RAGGED.but(influence=np.abs(RAGGED.influence))  # right responses that help each other

AGREED = EQUAL.but(
    teacher_logprob=EQUAL.old_logprob, teacher_divergence=0 * EQUAL.old_logprob
)  # the teacher is the old policy


def hesitating(entropy: float) -> Sample:
    """Every token alike."""
    return RAGGED.but(old_entropy=entropy * RAGGED.mask)


UNCLIPPED = {"low": 1.0, "high": 1e9, "dual": 1e9}
WHOLE = [
    ("adv_reweight", {"a": 0.0, "high": 0.2, "dual": None, "beta": 0.0}, "grpo", {}, EQUAL),
    # nothing is eligible
    ("clip_cov", {"cov_low": 1e6, "cov_high": 1e7}, "dapo", {"low": 1.0, "high": 1.0, "dual": 1e9}, RAGGED),
    ("dapo", {"high": 0.2, "dual": 1e9}, "grpo", {}, EQUAL),
    # every response has the one id, and as often
    *((name, {"mu": np.inf}, "dapo", {"high": 0.2, "dual": None}, RAGGED) for name in ("clip_b", "clip_v")),
    ("ktae", {}, "dapo", {"high": 0.2, "dual": None}, EQUAL.but(token_ids=0 * EQUAL.token_ids)),
    *(("dhpo", {"mixing": m}, "grpo", {}, ON_POLICY) for m in ("average", "entropy")),
    # a = 1 where all tokens hesitate alike; a certain response is shared evenly
    ("dhpo", {"mixing": "entropy"}, "grpo", {"high": 0.28}, hesitating(0.7)),
    ("dhpo", {"mixing": "entropy"}, "dhpo", {}, hesitating(0.0)),
    ("dppo_tv", {"threshold": 1.0, "cap": 1e9, "anchor": "old"}, "cispo", {"high": 1e9}, RAGGED),
    # also next to zero, and at what rounding in another engine may leave
    *(("edge_grpo", {}, "grpo", {}, hesitating(entropy)) for entropy in (0.7, 5e-9, 0.0, -2e-8)),
    *(
        ("egspo", {"quantile": 1 - f, "attenuation": 0.0, "curve": c}, "forking_tokens", {"fraction": f}, RAGGED)
        for f in (0.2, 0.7)  # where a nearest rank and the count keep as many
        for c in ("constant", "chord")
    ),
    ("fipo", {"least": 1.0, "most": 1.0}, "dapo", {"high": 0.2, "dual": None}, RAGGED),
    ("forking_tokens", {"fraction": 1.0}, "dapo", {"dual": 1e9}, RAGGED),
    # clipped in log space: 1 - low = e^-0.3 and 1 + high = e^0.2
    ("gmpo", {"low": 0.3, "high": 0.2}, "grpo", {"low": 1 - np.exp(-0.3), "high": np.expm1(0.2)}, ONE_TOKEN),
    # the advantages of a response are constant
    *(("gspo_token", o, "gspo", o, RAGGED) for o in ({}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 1e-4})),
    ("hapo", {"alpha": 0.0, "beta": 0.0, "token_mean_advantage": False}, "dapo", {"high": 0.2}, RAGGED),
    ("kl_cov", {"coef": 0.0}, "dapo", UNCLIPPED, RAGGED),
    ("m2po", {"budget": 0.0}, "dapo", {"low": 0.3, "high": 0.5, "dual": None}, RAGGED),
    ("m2po_rollout", {"threshold": np.inf}, "dapo", {"high": 0.2, "dual": None}, RAGGED),
    ("nthr", {"kl": 0.3, "eta": 1.0}, "grpo", {"beta": 0.3}, HELPING),
    ("ppo", {}, "reinforce_pp", {}, CLUELESS),
    ("vapo", {"alpha": 1e-9, "coef": 0.0, "high": 0.2}, "ppo", {"lam": 0.0}, RAGGED),
    ("ospo", {}, "grpo", {}, RAGGED.but(gain=np.ones_like(RAGGED.gain) * RAGGED.reward[:, None])),
    ("rto", {"dpo": 0.0, "beta": 0.2}, "ppo", {"lam": 0.95, "beta": 0.2}, EQUAL),
    ("gkd", {"rewards": True}, "dr_grpo", {"low": 1.0, "high": np.inf}, AGREED),
    *(("lite_ppo", {"of": of}, "dapo", {"high": 0.2, "dual": None}, ONE_GROUP) for of in ("rewards", "advantages")),
    ("opd", {"rewards": True}, "dr_grpo", {"low": 1.0, "high": np.inf}, AGREED),
    # the group's mean is the batch's: subtracting it first changes nothing
    ("reinforce_pp_baseline", {}, "reinforce_pp", {}, ONE_GROUP),
    (
        "sent",
        {"low_entropy": 1.0, "strong": 1.0, "weak": 0.0, "fraction": 0.1, "coef": 0.7},
        "kl_cov",
        {"fraction": 0.1, "coef": 0.7},
        RAGGED,
    ),
    ("spo", {"below": 1.0}, "vineppo", {}, RAGGED),
    ("tepo", {"beta": 0.0}, "tepo_v1", {}, RAGGED),
    *(
        ("tr_grpo", {"lower": 1.0, "upper": 1.0, "beta": b, "kl_weighting": k}, "grpo", {"beta": b}, RAGGED)
        for b in (0.0, 0.3)
        for k in ("none", "scale", "inside")
    ),
]
GRADIENT = [
    ("ce_gppo", {"beta1": 0.0, "beta2": 0.0}, "dapo", {"high": 0.2, "dual": 1e9}, RAGGED),
    ("cispo", {"high": 1e9}, "dapo", UNCLIPPED, RAGGED),
    ("gvpo", {"beta": 1.0}, "rloo", {}, ON_POLICY_ONE),
    (
        "gtpo_conflict",
        {"cost": 0.0, "most": np.inf},
        "opo",
        {},
        EQUAL.but(token_ids=np.arange(EQUAL.mask.size).reshape(EQUAL.mask.shape)),
    ),
    ("rollout_is", {"low": 1.0, "high": np.inf}, "dppo_tv", {"threshold": 1.0, "cap": 1e9}, RAGGED),
    ("topr", {"signal": "advantage"}, "dr_grpo", {"length": 1.0}, ON_POLICY),
]


def _names(rows: list) -> list[str]:
    return [f"{row[0]}-{row[2]}" for row in rows]


@pytest.mark.parametrize(("name", "options", "other", "its", "sample"), WHOLE, ids=_names(WHOLE))
def test_it_is_the_other(name: str, options: dict, other: str, its: dict, sample: Sample) -> None:
    ours, theirs = outcome(name, sample, **options), outcome(other, sample, **its)
    close(ours, theirs, rtol=1e-12)
    assert ours.gradient.any()


@pytest.mark.parametrize(("name", "options", "other", "its", "sample"), GRADIENT, ids=_names(GRADIENT))
def test_it_moves_like_the_other(name: str, options: dict, other: str, its: dict, sample: Sample) -> None:
    ours, theirs = outcome(name, sample, **options), outcome(other, sample, **its)
    np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-12, atol=1e-17)
    assert ours.gradient.any()
