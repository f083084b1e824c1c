"""GRPO and the baselines that frameworks offer: Dr. GRPO, DAPO, GSPO."""

from typing import Annotated

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.parts.credit import GroupAdvantage, SoftOverlong
from ..core.parts.loss import ConstantLength, ReferenceKl, SequenceMean, TokenMean
from ..core.parts.surrogate import Clip, FixedBounds, GeometricSequence, GeometricToken
from ..core.ranges import Count, Limit, Positive, Share
from .options import Beta, Dual, High, Low
from .paper import TRL, VERL, Paper


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

    Defaults: clip 0.2/0.2 as in the frameworks' code. beta is 0; the paper's is 0.04.
    Departures: verl takes the reward of a group of one over 1 + 1e-6 as its advantage. It adds eps 1e-6 to the
    deviation, TRL 1e-4.
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

    Dividing by the deviation favours prompts that are too easy or too hard. Dividing by |o_i| favours short right
    answers and long wrong ones.
    Defaults: clip 0.2/0.2 (code). L is the longest response allowed. Engines give it as `Totals.length`; `Totals.of`
    alone takes the longest response of the step.
    Departures: the clip is the default of the authors' framework, whose code was not read.
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

    Defaults: clip 0.2/0.28, dual clip 10 (code). The soft overlong penalty is on when both its lengths are given; the
    authors have overlong_length=20480 and overlong_cache=4096, so it begins at 16384 tokens.
    Reductions: with equal clips, equal lengths and dual=None it is GRPO.
    """
    if (overlong_length is None) != (overlong_cache is None):
        raise TokenPOError("dapo: the soft overlong penalty needs both overlong_length and overlong_cache")
    shaping = ()
    if overlong_length is not None and overlong_cache is not None:
        shaping = (SoftOverlong(overlong_length, overlong_cache),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), dual=dual), TokenMean(), shaping=shaping)


GSPO = Paper("Group Sequence Policy Optimization", "2507.18071", "code", code=f"{VERL}; {TRL}")


@GSPO
def gspo(*, low: Low = 3e-4, high: High = 4e-4) -> Objective:
    """Clips one likelihood ratio per response, normalised by the response's length.

        s_i = exp(mean_t log r_it)
        J = 1/N Σ_i min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)   (eq. 5 and 7)

    Defaults: low 3e-4, high 4e-4 (code): a length-normalised ratio hardly leaves 1.
    Departures: the authors' code is not released; frameworks' code was read. A token beyond ±20 nats has no gradient.
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
