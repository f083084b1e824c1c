"""VinePPO: the value of a step is the mean reward of continuations drawn from there.

    V(s)  = mean R of `continuations` continuations from s, at the first token of every step
    A_it  = V(behind the step of t) − V(before it);   behind the last step R_i takes the place of V      (`gain`)
    Â_it  = (A_it − mean A) / √(var A + 1e-8),   over all tokens of the batch
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it Â_it, clip(r_it, 1−low, 1+high) Â_it)

Defaults: 9 continuations, clip 0.2/0.2 (code). A step is `every` tokens, 16 (ours): the authors cut at the lines of a
solution, which separator=ID does, where ID is the token of a newline.
Departures: the variance has ddof 1, as everywhere here. The scripts add a divergence of 0.0001 from the reference,
which `train.reference_kl` adds here. Responses that were cut off keep the reward that the task gives them.
Note: the continuations are sampled tokens: `continued_tokens` of a run counts them.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import BehindToken, Clip, Continuations, EveryTokens, FixedBounds, TokenMean, WhitenedGain
from ..core.ranges import Count, whole
from .options import High, Low
from .paper import Paper

TokenId = Annotated[int, whole(0)]


@Paper(
    "VinePPO: Refining Credit Assignment in RL Training of LLMs", "2410.01679", "code",
    code="McGill-NLP/VinePPO@efe7228:src/treetune/episode_generators/math_episode_generator_with_mc_advantages.py; "
    "McGill-NLP/VinePPO@efe7228:src/treetune/trainers/ppo_trainer.py",
)  # fmt: skip
def vineppo(
    *,
    every: Annotated[Count, "tokens of a step"] = 16,
    separator: Annotated[TokenId | None, "id of the token that ends a step, in place of `every`"] = None,
    continuations: Annotated[Count, "drawn from each step"] = 9,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """A step is worth what it adds to the mean reward of continuations drawn before and behind it."""
    cuts = EveryTokens(every) if separator is None else BehindToken(separator)
    return Objective(WhitenedGain(Continuations(cuts, continuations)), Clip(FixedBounds(low, high)), TokenMean())
