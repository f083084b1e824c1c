"""TEPO: sequence-likelihood ratio with token-level aggregation; v2 masks a KL on collapsing tokens."""

from typing import Annotated, Literal

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.ratio import log_ratio
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import K1, K2, K3, AbsoluteLogRatio, Estimator, TokenMean
from ..core.parts.part import Part, Penalty
from ..core.parts.surrogate import Clip, FixedBounds, GeometricToken
from ..core.ranges import NotNegative
from ..core.types import Batch, Trust
from .options import High, Low
from .paper import Paper

PAPER = Paper(
    "Token-Level Policy Optimization: Linking Group-Level Rewards to Token-Level Aggregation",
    "2510.09369",
    "second-hand + reconstructed",
    "the clip is unknown; of tepo's KL so are beta, target and estimator, and its mask is a heuristic",
    version="v1",
    later=("v2", "2604.12736"),
    about="""
    Defaults: ours. Two sources agree that s_i is the geometric mean of the response's ratios.
    Reductions: beta = 0 is v1; v1 is GSPO-token with token mean and its clip.
    """,
)


class BelowOld(Part):
    """Entropy is decreasing where H < H_old."""

    reads = {"entropy", "old_entropy"}
    idle_on_policy = True

    def __call__(self, batch: Batch) -> Tensor:
        return batch.need("entropy") < batch.need("old_entropy")


class StepSign(Part):
    """Entropy decreases when one logit-space step is taken: A (p (lp + H) − Σ_v p_v² (log p_v + H)) > 0."""

    reads = {"entropy", "entropy_drift"}

    def __call__(self, batch: Batch) -> Tensor:
        lp = batch.policy.logprob
        change = lp.exp() * (lp + batch.need("entropy")) - batch.need("entropy_drift")
        return batch.credit.advantage * change > 0


class BelowReference(Part):
    """Entropy counts as decreased where the sampled token surprises less than under the reference: lp > lp_ref."""

    reads = {"ref_logprob"}

    def __call__(self, batch: Batch) -> Tensor:
        return batch.policy.logprob > batch.need("ref_logprob")


class MaskedKl(Penalty):
    """beta ≥ 0 · estimator of the log-ratio on tokens with A > 0 and decreasing entropy; the mask has no gradient."""

    follows_advantage = True
    beta: NotNegative
    decreasing: BelowOld | StepSign | BelowReference
    estimator: Estimator = K3()
    to_reference: bool = False

    @property
    def idle_on_policy(self) -> bool:
        return self.estimator.stationary and not self.to_reference

    @property
    def reads(self) -> set[str]:
        return {"ref_logprob"} if self.to_reference else set()

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        # The advantage of padding is 0.
        held = (batch.credit.advantage > 0) & self.decreasing(batch)
        return self.beta * self.estimator(self.log_ratio(batch)) * held

    def log_ratio(self, batch: Batch) -> Tensor:
        """[N, T] lp − lp_old, or lp_ref − lp as in GRPO; nats."""
        if not self.to_reference:
            return log_ratio(batch.policy.logprob, batch.rollouts.old_logprob)
        return log_ratio(batch.need("ref_logprob"), batch.policy.logprob)


@PAPER
def tepo_v1(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """One ratio for the whole response at every token, with a token mean.

        s_i = exp(mean_t log r_it),   s_it = sg[s_i] · exp(lp − sg[lp])
        J = 1/Σ|o_i| Σ_i Σ_t min(s_it A_i, clip(s_it, 1−low, 1+high) A_i)

    The ratio is the whole response's, the gradient the token's own.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricToken()), TokenMean())


@PAPER
def tepo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the masked KL"] = 1.0,
    decreasing: Annotated[
        Literal["delta", "analytic", "reference"], "entropy falls: H < H_old, by one step on the logits, or lp > lp_ref"
    ] = "delta",
    kl_target: Annotated[Literal["old", "reference"], "the policy from which the KL is measured"] = "old",
    estimator: Annotated[
        Literal["k3", "abs", "k1", "k2"], "estimator of the KL, from lp − lp_old or lp_ref − lp"
    ] = "k3",
) -> Objective:
    """One ratio for the whole response, and a KL on tokens of right answers whose entropy is falling.

        s_i = exp(mean_t log r_it),   s_it = sg[s_i] · exp(lp − sg[lp]),   M_it = 1[A_i > 0 and the entropy decreases]
        J = 1/Σ|o_i| Σ_i Σ_t [ min(s_it A_i, clip(s_it, 1−low, 1+high) A_i) − beta M_it k3(r_it) ]

    The KL is from the old policy: k3(r) = r − 1 − log r. This is the paper's second version.
    Options: decreasing="delta" marks tokens with H < H_old: none in the first update on a batch.
    "analytic" marks tokens whose entropy one step on the logits lowers: A (p (lp + H) − Σ_v p_v² (log p_v + H)) > 0.
    "reference" (ours) marks tokens with lp > lp_ref; with kl_target="reference" it acts in the first update too.
    Departures: the theory given for the mask has reported errors. At lp = lp_old only the estimator k1 has a gradient.
    If two engines score the old and the current policy, rounding decides there which tokens are marked.
    """
    rule = {"delta": BelowOld(), "analytic": StepSign(), "reference": BelowReference()}[decreasing]
    divergence = {"k3": K3(), "abs": AbsoluteLogRatio(), "k1": K1(), "k2": K2()}[estimator]
    penalties = (MaskedKl(beta, rule, divergence, kl_target == "reference"),) if beta else ()
    clip = Clip(FixedBounds(low, high), ratio=GeometricToken())
    return Objective(GroupAdvantage(), clip, TokenMean(), penalties=penalties)
