"""Golden values of a method: one small step as JSON, for tests of implementations in any language.

They contain the random inputs that the method reads, every intermediate result, the loss and its gradient, all in
float64. Numbers are read back exactly; padding is null.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..base.jsonl import finite
from ..core.trial import evaluate, fitting

FORMAT = "tokenpo golden 1"
GROUPS, SIZE, TOKENS = 2, 4, 5
LONGEST = 8  # largest allowed length of a response, which some methods divide by
MEANINGS = {
    "inputs": "what the method is given: N responses, T tokens; null: padding or no number; entropies and lp in nats",
    "totals": "denominators of the step: response tokens, responses with a token, the longest response allowed",
    "memory": "numbers carried over from earlier batches, by part; here those of the first batch",
    "advantage": "credit of each token, before weights",
    "signals": "numbers at each token that need the whole batch, by part; what was drawn at random stands here too",
    "ratio": "importance ratio, of the token or of what the method takes in its place",
    "low": 'lower bound of the ratio; "-inf" is none',
    "high": 'upper bound of the ratio; "inf" is none',
    "clipped": "the trust region cuts the gradient of this token",
    "weight": "product of the factors on the surrogate",
    "surrogate": "what is maximised at the token, before its weight",
    "penalty": "what is added to the token's loss",
    "loss": "of the token: penalty less weight times surrogate",
    "coefficient": "what the aggregation multiplies the token's loss with",
    "value": "the loss of the step: the sum of loss times coefficient",
    "gradient": "of the value, at each log-probability and, where the method has one, at each entropy or divergence",
}


def golden(name: str, objective: Any, seed: int = 0) -> dict[str, Any]:
    """The golden values, as plain data for JSON, of an objective called `name` on inputs with this seed."""
    rollouts, policy = fitting(objective, seed, groups=GROUPS, size=SIZE, length=TOKENS).values()
    rollouts, policy, mask = rollouts.only(objective.needs), policy.only(objective.needs), rollouts.mask
    state, draws = objective.start(), torch.Generator().manual_seed(seed)
    step = evaluate(objective, rollouts, policy, state=state, length=LONGEST, draws=draws)
    gradient = {"logprob": step.gradient} | ({"entropy": step.entropy_gradient} if objective.entropy_gradient else {})
    gradient |= {} if objective.teacher_beta is None else {"teacher_divergence": step.teacher_gradient}
    derivation = {
        "signals": _plain({repr(key): x for key, x in step.batch.credit.signals.items()}, mask),
        **_plain({key: x.expand(mask.shape) for key, x in step.loss.terms.items()}, mask),
    }
    return {
        "format": FORMAT, "made_by": f"tokenpo {__version__}", "method": name,
        "objective": str(objective).splitlines(), "meanings": MEANINGS,
        "inputs": {"rollouts": _plain(vars(rollouts), mask), "policy": _plain(vars(policy), mask)},
        "totals": dataclasses.asdict(step.totals),
        "memory": {repr(part): dict(numbers) for part, numbers in state.items()}, "derivation": derivation,
        "value": step.loss.value.item(), "gradient": _plain(gradient, mask),
    }  # fmt: skip


def _plain(tensors: Mapping[str, Tensor | None], mask: Tensor) -> dict[str, Any]:
    """The tensors, without those that are None, as lists for JSON.

    NaN, and the padding of [N, T] tensors but the mask, become null; infinities the text "inf" or "-inf".
    """
    shown = {}
    for name, x in tensors.items():
        if x is not None:
            shown[name] = rows = finite(x.tolist(), lambda y: None if math.isnan(y) else str(y))
            for i, t in (~mask).nonzero().tolist() if x.shape == mask.shape and name != "mask" else ():
                rows[i][t] = None
    return shown
