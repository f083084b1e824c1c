"""OPSM: GRPO that forgets the wrong responses which the policy has left, with an unbiased divergence.

    keep_i = 0 where A_i < 0 and mean_t(lp_b,it − lp_it) > delta, 1 elsewhere;   lp_b: before the update
    J = 1/N Σ_i 1/|o_i| Σ_t [ keep_i · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta r_it k3(lp_ref,it − lp_it) ]

A wrong response that the policy would hardly give any more adds noise only; a right one still teaches. The ratio on the
divergence, with gradient through both, makes its expected gradient that of the current policy's divergence.
Defaults: delta 0.5, the example in TRL's help, which has it off; slime's is 1e-4. beta 0, as in TRL. GRPO's clip.
Options: anchor="rollout" takes lp_b from the sampler, as TRL does where it has it; anchor="old" is slime's default.
Departures: what is masked counts in the denominators, and its divergence stays, as in TRL and slime; ms-swift masks the
divergence too. Log-ratios are bounded to ±20.
Reductions: delta = inf, beta = 0 is GRPO. With anchor="old" it does nothing at lp = lp_old.
"""

from typing import Annotated, Literal

from ..core.objective import Objective
from ..core.parts import Clip, Drop, FixedBounds, GroupAdvantage, ReferenceKl, Reweighted, SequenceMean, Strayed
from ..core.ranges import AboveZero, NotNegative
from .options import High, Low
from .paper import TRL, Paper


@Paper(
    "DeepSeek-V3.2: Pushing the frontier of open large language models", "2512.02556", "code",
    "its equation 9 was read through the comments of two frameworks only; delta is not the paper's",
    code=f"{TRL}; THUDM/slime@624b824:slime/backends/megatron_utils/loss.py",
)  # fmt: skip
def opsm(
    *,
    delta: Annotated[AboveZero, "largest mean log-ratio of a wrong response, nats"] = 0.5,
    anchor: Annotated[Literal["old", "rollout"], "the policy whose log-probabilities come before the update"] = "old",
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "unbiased divergence from the reference"] = 0.0,
) -> Objective:
    """Wrong responses that the policy has left are masked."""
    drop, penalties = Drop(Strayed(delta, anchor == "rollout")), (Reweighted(ReferenceKl(beta)),) if beta else ()
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(drop,), penalties=penalties
    )
