"""Options that several methods share: types that carry their range and their meaning.

An option is annotated as `Annotated[TYPE, "its meaning"]`; TYPE is a range of `core.ranges`, `bool` or a `Literal` of
the choices. `signature` reads the annotation. A second string replaces the first: `Annotated[Low, "base clip below"]`.
"""

from typing import Annotated, Literal

from ..core.ranges import AboveOne, Finite, Limit, NotNegative, Share

# The clip of the ratio.
Low = Annotated[Share, "clip below"]
High = Annotated[Limit, "clip above"]
Dual = Annotated[AboveOne | None, "dual clip; None switches it off"]
DualOfScripts = Annotated[Dual, "dual clip, 10 in the authors' scripts; None switches it off"]

# The bounds of a weight that keeps its gradient.
Floor = Annotated[Share, "floor of the weight, ratio ≥ 1 − low; 1 leaves it open"]
Ceiling = Annotated[Limit, "cap of the weight, ratio ≤ 1 + high"]

# The divergence from the reference.
Beta = Annotated[NotNegative, "coefficient of the KL (k3) to the reference"]
BoundedKl = Annotated[bool, "bound log-ratios to the reference by ±5 and k3 by 10, as the authors' code does"]

# Rewards and entropies that select responses or tokens.
Threshold = Annotated[Finite, "a response is right when its reward exceeds this"]
GroupPenalty = Annotated[bool, "add the group-relative overlong penalty"]
OfPolicy = Annotated[Literal["old", "current"], 'entropies of the "old" or of the "current" policy']
OfResponse = Annotated[Share, "quantile of a response's entropies; entropies above it are high"]

# A coefficient that follows the entropy from batch to batch.
Step = Annotated[NotNegative, "change of the coefficient after a rollout batch"]
Bound = Annotated[NotNegative, "bound of the coefficient"]
Start = Annotated[NotNegative, "coefficient before the first batch"]
