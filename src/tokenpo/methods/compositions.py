"""Methods built from shared parts only."""

from typing import Annotated, Literal

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.parts import Clip, ConstantLength, Drop, FixedBounds, GroupAdvantage, SequenceMean, TokenMean
from ..core.parts.correction import Strayed
from ..core.parts.credit import BehindToken, Continuations, EveryTokens, ShrunkAdvantage, SoftOverlong, WhitenedGain
from ..core.parts.penalties import ReferenceKl, Reweighted
from ..core.parts.selection import HighInResponse
from ..core.parts.surrogate import (
    DetachedClip,
    GeometricSequence,
    GeometricToken,
    SelectedBounds,
    TokenRatio,
    WeightedRatio,
)
from ..core.parts.weights import ProbabilityWeight, Sigmoid
from ..core.ranges import (
    POSITIVE,
    AboveZero,
    Count,
    Finite,
    Limit,
    NotNegative,
    Positive,
    Share,
    TokenId,
    limit,
    require,
)
from .options import Beta, Ceiling, Dual, Floor, High, Low, OfPolicy, OfResponse
from .paper import TRL, VERL, Paper

GSPO = Paper("Group Sequence Policy Optimization", "2507.18071", "code", code=f"{VERL}; {TRL}")


@Paper("DeepSeekMath: Pushing the Limits of Mathematical Reasoning", "2402.03300", "code", code=f"{VERL}; {TRL}")
def grpo(
    *,
    low: Annotated[Share, "clip below, ratio ≥ 1 − low"] = 0.2,
    high: Annotated[Limit, "clip above, ratio ≤ 1 + high"] = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Every token of a response gets the response's group-normalised reward.

        A_i = (R_i − mean_g R) / (std_g R + 1e-6)
        J = 1/N Σ_i 1/|o_i| Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]   (eq. 3)

    Defaults: low = high = 0.2 and ddof 1 as in the frameworks' code; beta = 0, because verifiable rewards are usually
    trained without a reference (the paper's beta is 0.04).
    Departures: a group of one learns nothing; verl and trainers built on it use its reward over 1 + 1e-6 as the
    advantage. verl adds eps 1e-6 to the deviation, TRL 1e-4.
    Reductions: DAPO with equal clips, equal lengths and no dual clip is GRPO; TR-GRPO with lower = upper = 1 is GRPO.
    """
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), penalties=penalties)


@Paper(
    "Understanding R1-Zero-Like Training: A Critical Perspective",
    "2503.20783",
    "code",
    code="sail-sg/understand-r1-zero@dfca49d:train_zero_math.py",
)
def dr_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    length: Annotated[Positive | None, "the constant L in tokens; None takes the step's `Totals.length`"] = None,
) -> Objective:
    """GRPO without division by the group's deviation or by the response's length.

        A_i = R_i − mean_g R
        J = 1/N Σ_i 1/L Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)   (section 3)

    Dividing by the deviation favours prompts that are too easy or too hard; dividing by |o_i| favours short right
    answers and long wrong ones. Both are dropped.
    Defaults: low = high = 0.2 (code). The constant L is the longest response allowed: engines give it as
    `Totals.length`; `Totals.of` alone takes the longest response of the step.
    Departures: the clip is that of the authors' framework, whose code was not read.
    Reductions: with equal lengths |o_i| = L and unit deviations it is GRPO.
    """
    return Objective(GroupAdvantage(std=False), Clip(FixedBounds(low, high)), ConstantLength(length))


@Paper("DAPO: An Open-Source LLM Reinforcement Learning System at Scale", "2503.14476", "code", code=VERL)
def dapo(
    *,
    low: Low = 0.2,
    high: High = 0.28,
    dual: Dual = 10.0,
    overlong_length: Annotated[Count | None, "L_max of the soft overlong penalty, tokens"] = None,
    overlong_cache: Annotated[Count | None, "L_cache of that penalty, tokens; give both or neither"] = None,
) -> Objective:
    """GRPO with a token mean over the batch, a wider clip above and an optional penalty on overlong responses.

        A_i = (R_i − mean_g R) / (std_g R + 1e-6)   (eq. 8 and 13)
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   at least dual · A_i where A_i < 0

    Defaults: low 0.2, high 0.28, dual clip 10 (code). The soft overlong penalty is on when both its lengths are given
    (the authors use 16384 + 4096 cache). Dynamic sampling, which refills groups whose rewards are all equal, belongs to
    the sampling loop: `rollout.dynamic_sampling` in a recipe of the embedded engine.
    Reductions: with equal clips, equal lengths and dual=None it is GRPO.
    """
    if (overlong_length is None) != (overlong_cache is None):
        raise TokenPOError("dapo: the soft overlong penalty needs both overlong_length and overlong_cache")
    shaping = ()
    if overlong_length is not None and overlong_cache is not None:
        shaping = (SoftOverlong(overlong_length, overlong_cache),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), dual=dual), TokenMean(), shaping=shaping)


@GSPO
def gspo(*, low: Low = 3e-4, high: High = 4e-4) -> Objective:
    """Clips one likelihood ratio per response, normalised by the response's length.

        s_i = exp(mean_t log r_it)
        J = 1/N Σ_i min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)   (eq. 5 and 7)

    Defaults: low 3e-4, high 4e-4 (code): a length-normalised ratio hardly leaves 1.
    Departures: the authors' code is not released; that of frameworks was read. log r_it is bounded to ±20 nats; verl
    bounds log s_i to 10 from above. A token beyond ±20 nats has no gradient.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricSequence()), SequenceMean())


@GSPO
def gspo_token(*, low: Low = 3e-4, high: High = 4e-4) -> Objective:
    """GSPO's ratio in a form that takes token-level advantages.

        s_it = sg[s_i] · exp(lp − sg[lp]),   s_i = exp(mean_t log r_it)
        J = 1/N Σ_i 1/|o_i| Σ_t min(s_it A_it, clip(s_it, 1−low, 1+high) A_it)   (eq. 13)

    Defaults and departures are GSPO's, but a token beyond ±20 nats keeps its gradient.
    Reductions: it has GSPO's value and gradient where the advantage is constant in a response and no log r_it lies
    beyond the bound.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricToken()), SequenceMean())


@Paper(
    "Length-Unbiased Sequence Policy Optimization: Revealing and Controlling Response Length Variation in RLVR",
    "2602.05261",
    "code",
    "the clip range; a framework's code was read, not the authors'",
    code=TRL,
)
def luspo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """GSPO's ratio per response, with a sum over the tokens in place of their mean.

        s_i = exp(mean_t log r_it)
        J = 1/N Σ_i |o_i| · min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)

    The length cancels the one inside s_i: an unclipped token has the weight s_i A_i / N, in a response of any length.
    Defaults: clip 0.2/0.2, a framework's default for every loss. A length-normalised ratio hardly leaves 1: GSPO's
    low=3e-4, high=4e-4 is the alternative.
    Departures: a response without tokens is not counted in N; the framework counts it. Its divergence is off.
    Reductions: with responses of equal length L it is L times GSPO, value and gradient. A response of one token has
    GRPO's clipped ratio. At lp = lp_old it moves along the sum of A lp over all tokens, as DAPO does.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricSequence()), ConstantLength(1.0))


@Paper(
    "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
    "2506.13585",
    "code",
    code=f"{VERL}; {TRL}",
)
def cispo(
    *,
    high: Ceiling = 0.28,
    low: Floor = 1.0,
    absolute: Annotated[bool, "`high` is the cap itself, ratio ≤ high, which is ≥ 1"] = False,
) -> Objective:
    """The importance weight is clipped and detached, so every token keeps a gradient.

        c_it = clip(r_it, 1−low, 1+high)   (section 3.1)
        J = 1/Σ|o_i| Σ_i Σ_t sg[c_it] · A_i · lp_it

    Defaults: high 0.28 is a framework's, the paper tunes it; low 1.0 leaves the lower side open, as the paper does.
    With absolute=True the cap is `high` itself, the way some frameworks write it (1 + high and high are easily
    confused).
    Departures: the group's deviation has ddof 1 and eps 1e-6, as everywhere here.
    Reductions: at lp = lp_old the gradient is DAPO's.
    """
    if absolute:
        require("cispo", "high", high, limit(1).because("as absolute=True makes it the cap itself"))
    return Objective(GroupAdvantage(), DetachedClip(FixedBounds(low, high - 1 if absolute else high)), TokenMean())


@Paper(
    "Shrinking the Variance: Shrinkage Baselines for Reinforcement Learning with Verifiable Rewards",
    "2511.03710",
    "own",
    "the idea of the baseline is the paper's, whose abstract was read; estimate, surrogate and choice are ours",
)
def eb_cispo(*, high: Ceiling = 2.0, low: Floor = 1.0) -> Objective:
    """Shrinks the group's baseline toward the mean of other prompts; the importance weight is clipped and detached.

        V_i = ((n−1) · mean of the group's others + κ · mean of the other groups) / (n − 1 + κ)
        κ   = Σ_i (R_i − mean_g)²/(N − K) / between;   between = variance of the K group means − within · mean_g 1/n_g
        A_i = (R_i − V_i) / (std of the batch + 1e-6)
        J = 1/Σ|o_i| Σ_i Σ_t sg[clip(r_it, 1−low, 1+high)] · A_i · lp_it

    Where prompts differ by no more than chance (between ≤ 0), V is the mean of the other groups; where they differ
    much, V is nearly RLOO's. A group with only wrong responses still has negative advantages where other prompts earn
    more.
    Defaults: high 2.0, so that a token weighs at most 3; low 1.0, which leaves the lower side open. Both were chosen,
    with the parts, among 16 candidates by a rule written down before (docs/results.md).
    EBPO (2602.05165) shrinks toward a mean that it remembers over batches; this method remembers nothing.
    Reductions: with one group in the batch the credit is RLOO's over the deviation; at lp = lp_old the gradient is the
    plain policy gradient's.
    """
    return Objective(ShrunkAdvantage(), DetachedClip(FixedBounds(low, high)), TokenMean())


@Paper(
    "Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR",
    "2507.15778",
    "code",
    code="wizard-III/ArcherCodeR@8a1785b:verl/trainer/ppo/core_algos.py; "
    "wizard-III/ArcherCodeR@8a1785b:verl/workers/actor/dp_actor.py",
)
def archer(
    *,
    low_clip: Annotated[Share, "clip, below and above, of tokens with low entropy"] = 0.2,
    high_clip: Annotated[Share, "clip of tokens with high entropy"] = 0.5,
    kl: Annotated[
        NotNegative, "coefficient of the k3 divergence from the reference on tokens with low entropy; 0 needs none"
    ] = 1e-3,
    quantile: OfResponse = 0.8,
    dual: Dual = None,
    entropy: OfPolicy = "old",
) -> Objective:
    """Tokens with high entropy get a wide clip and no KL; tokens with low entropy get a narrow clip and a KL.

        high_it = 1[H_it > the quantile of its response's entropies]
        eps_it = high_clip where high, low_clip elsewhere;   k_it = 0 where high, kl elsewhere
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−eps_it, 1+eps_it) A_i) − k_it · k3(π_ref/π) ]

    Defaults: clip 0.2 and 0.5, kl 0.001, response quantile 0.8 (code). The dual clip is off; their scripts put it at
    10.
    Departures: entropies are the old policy's; entropy="current" takes the current one's, as the authors' code does.
    The quantile is nearest-rank, theirs interpolates. The KL is averaged over all tokens, theirs over those of low
    entropy, which is about 1/quantile larger.
    Reductions: kl = 0 and equal clips is DAPO with that clip and the same dual.
    """
    high = HighInResponse(quantile, entropy == "current")
    bounds = SelectedBounds(high, FixedBounds(high_clip, high_clip), FixedBounds(low_clip, low_clip))
    return Objective(
        GroupAdvantage(),
        Clip(bounds, dual=dual),
        TokenMean(),
        penalties=(ReferenceKl(kl, scale=Drop(high)),) if kl else (),
    )


@Paper(
    "Token-Regulated Group Relative Policy Optimization for Stable Reinforcement Learning in Large Language Models "
    "(v1); Sharpness-Controlled Group Relative Policy Optimization (v2); Sharpness-Guided Group Relative Policy "
    "Optimization via Probability Shaping (v3, v4)",
    "2511.00066",
    "second-hand + reconstructed",
    "the form of the weight is our reading of its constants; its place is our choice between two readings",
    version="v1..v4",
)
def tr_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    alpha: Annotated[NotNegative, "height of the sigmoid"] = 2.0,
    tau: Annotated[Finite, "steepness of the sigmoid; below 0 it falls"] = 9.0,
    mu: Annotated[
        Finite, 'probability at which the weight is alpha / 2; with shape "outside", subtracted from the sigmoid'
    ] = 0.25,
    lower: Annotated[NotNegative, "smallest weight"] = 1.0,
    upper: Annotated[NotNegative, "largest weight, >= lower"] = 1.4,
    shape: Annotated[Literal["inside", "outside"], "mu inside the sigmoid, or alpha (sigmoid(tau p) − mu)"] = "inside",
    weight_placement: Annotated[
        Literal["ratio", "advantage"], "weight on the advantage, or on the ratio, inside minimum and clip"
    ] = "advantage",
    weight_prob: Annotated[Literal["current", "old"], "the policy of the probability, detached"] = "current",
    beta: Beta = 0.0,
    kl_weighting: Annotated[
        Literal["inside", "scale", "none"], "the weight is on the ratio inside the divergence, scales it, or neither"
    ] = "none",
) -> Objective:
    """GRPO whose advantage is multiplied by a weight that grows with the token's probability.

    Token-Regulated GRPO in v1, Sharpness-Controlled GRPO in v2, Sharpness-Guided GRPO (GRPO-SG) in v3 and v4. The form
    of the weight is our reading: with its constants w is exactly 1 at p = mu and reaches 1.4 at p = 0.344. One
    transcription that we found is constant in p and cannot be right; a third reading takes mu out of the sigmoid:
    shape="outside".

        w_it = clip(alpha · sigmoid(tau (p_it − mu)), lower, upper),   p = exp(lp), detached
        outside:  w_it = clip(alpha (sigmoid(tau p_it) − mu), lower, upper)
        J = 1/N Σ_i 1/|o_i| Σ_t [ w_it min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]
        literal:  min(w_it r_it A_i, clip(w_it r_it, 1−low, 1+high) A_i) − beta · k3(w_it π_ref/π)

    Confident tokens learn most: right ones are pushed up by w, wrong ones down by w.
    Defaults: alpha 2, tau 9, mu 0.25, lower 1.0, upper 1.4 (second-hand); clip 0.2/0.2 and beta 0 as in GRPO. The place
    of the weight is our choice between two readings.
    Options: weight_placement="ratio", kl_weighting="inside" is the literal reading: public reviews of the submission
    place the weight inside minimum and clip (its eq. 9) and inside the divergence, which is therefore not 0 for
    identical policies. weight_prob is open in what could be read. A negative tau weighs improbable tokens more
    (ablation). shape="outside" crosses 1 at p = 0.122 and 1.4 at p = 0.327.
    Departures: in the literal reading a right token with w > 1 + high, from p = 0.295 on by default, has no gradient at
    ratio 1; hosts warn of it. On a real model's sums, with one seed, it did not learn in 12 batches and the default did
    (docs/log.md).
    Reductions: lower = upper = 1 is GRPO.
    """
    weight = ProbabilityWeight(Sigmoid(alpha, tau, mu, lower, upper, shape == "outside"), weight_prob == "old")
    inside_ratio = weight_placement == "ratio"
    if beta and kl_weighting == "inside":
        require("tr_grpo", "lower", lower, POSITIVE.because("as kl_weighting='inside' takes its logarithm"))
    scale, inside = {"none": (None, None), "scale": (weight, None), "inside": (None, weight)}[kl_weighting]
    ratio = WeightedRatio(TokenRatio(), weight) if inside_ratio else TokenRatio()
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), ratio),
        SequenceMean(),
        weights=() if inside_ratio else (weight,),
        penalties=(ReferenceKl(beta, scale=scale, inside=inside),) if beta else (),
    )


@Paper(
    "DeepSeek-V3.2: Pushing the frontier of open large language models",
    "2512.02556",
    "code",
    "its equation 9 was read through the comments of two frameworks only; delta is not the paper's",
    code=f"{TRL}; THUDM/slime@624b824:slime/backends/megatron_utils/loss.py",
)
def opsm(
    *,
    delta: Annotated[AboveZero, "largest mean log-ratio of a wrong response, nats"] = 0.5,
    anchor: Annotated[Literal["old", "rollout"], "the policy of lp_b, the log-probabilities before the update"] = "old",
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the unbiased divergence from the reference"] = 0.0,
) -> Objective:
    """Masks wrong responses that the policy has moved away from.

        keep_i = 0 where A_i < 0 and mean_t(lp_b,it − lp_it) > delta, 1 elsewhere;   lp_b: before the update
        J = 1/N Σ_i 1/|o_i| Σ_t [ keep_i · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)
                                  − beta r_it k3(lp_ref,it − lp_it) ]

    A wrong response that the policy would hardly give any more only adds noise; a right one is still worth learning.
    The divergence is multiplied by the ratio, with gradient through both, which makes its expected gradient that of the
    current policy's divergence.
    Defaults: delta 0.5 is the example in TRL's help, where it is off by default; slime's is 1e-4. beta 0, as in TRL.
    GRPO's clip.
    Options: anchor="rollout" takes lp_b from the sampler, as TRL does if it has it; anchor="old" is slime's default.
    Departures: masked responses count in the denominators and keep their divergence, as in TRL and slime; ms-swift
    masks the divergence too. Log-ratios are bounded to ±20.
    Reductions: delta = inf, beta = 0 is GRPO. With anchor="old" it does nothing at lp = lp_old.
    """
    drop, penalties = Drop(Strayed(delta, anchor == "rollout")), (Reweighted(ReferenceKl(beta)),) if beta else ()
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(drop,), penalties=penalties
    )


@Paper(
    "VinePPO: Refining Credit Assignment in RL Training of LLMs",
    "2410.01679",
    "code",
    code="McGill-NLP/VinePPO@efe7228:src/treetune/episode_generators/math_episode_generator_with_mc_advantages.py; "
    "McGill-NLP/VinePPO@efe7228:src/treetune/trainers/ppo_trainer.py",
)
def vineppo(
    *,
    every: Annotated[Count, "number of tokens of a step"] = 16,
    separator: Annotated[TokenId | None, "id of the token that ends a step, in place of `every`"] = None,
    continuations: Annotated[Count, "number of continuations sampled from each step"] = 9,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """A step's advantage is the mean reward of continuations sampled after it minus that of those sampled before it.

        V(s)  = mean R of `continuations` continuations from s, at the first token of every step
        A_it  = V(after the step of t) − V(before it);   after the last step R_i takes the place of V      (`gain`)
        Â_it  = (A_it − mean A) / √(var A + 1e-8),   over all tokens of the batch
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it Â_it, clip(r_it, 1−low, 1+high) Â_it)

    Defaults: 9 continuations, clip 0.2/0.2 (code). A step is `every` tokens, 16 (ours): the authors cut at the lines of
    a solution, which separator=ID does, where ID is the token of a newline.
    Departures: log r_it is bounded to ±20; theirs is not, and a minibatch whose mean ratio exceeds 10 is skipped. The
    scripts add a divergence of 0.0001 from the reference, which `train.reference_kl` adds here. Responses that were cut
    off keep the reward that the task gives them.
    Note: the continuations cost sampled tokens: `continued_tokens` of a run counts them.
    """
    cuts = EveryTokens(every) if separator is None else BehindToken(separator)
    return Objective(WhitenedGain(Continuations(cuts, continuations)), Clip(FixedBounds(low, high)), TokenMean())
