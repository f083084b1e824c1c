"""What a server gives an objective: the inputs that it has, and responses as the tensors of a rollout batch.

A server's responses hold tokens and their log-probabilities. These are also the old log-probabilities, because updates
start from the weights that sampled. `tinker` is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import NotFinite, TokenPOError, Unsupported, refuse
from ...core.negotiation import missing
from ...core.objective import Objective
from ...core.on_policy import HALF_TOLERANCE, RatioCheck
from ...core.types import OPTIONAL, Rollouts

if TYPE_CHECKING:
    from tinker import SampledSequence, SampleResponse

HOST = "a Tinker server"
# Inputs that need whole distributions or hidden states.
_UNKNOWN = {"entropy", "old_entropy", "entropy_drift", "teacher_divergence", "value"}
PROVIDES = OPTIONAL - _UNKNOWN - {"version"} | {"prompt_logprob"}
_REMEDY = "the API returns log-probabilities alone: choose a method that reads no more, or train with tokenpo train"
# A server's sampler and trainer are two programs, mostly in half precision.
RATIO = RatioCheck(
    HOST, "take old_logprob from Trainer.score, or give Trainer a ratio of a larger tolerance", HALF_TOLERANCE, "mean"
)


def require(objective: Objective) -> None:
    """Raises Unsupported if an objective reads an input that no server gives, or adapts the temperature per token."""
    heat = (
        f"{objective.name} adapts the temperature from token to token ({objective.temperature!r}), which {HOST} "
        "cannot be asked for: choose another method, or train with TRL, verl or tokenpo train"
    )
    lacking = missing(objective, PROVIDES, HOST, dict.fromkeys(_UNKNOWN, _REMEDY))
    refuse([None if objective.temperature is None else heat, *lacking])


def rollouts(
    responses: Sequence[SampleResponse], reward: Tensor, ends: Collection[int] | None = None, version: int | None = None
) -> Rollouts:
    """Rollouts from the responses to P prompts, sampled at temperature 1 without top-k and top-p.

    Args:
        responses: one for each prompt, G sequences in each.
        reward: [N] of each sequence, N = P·G, in order.
        ends: ids of the tokens that can end a response; None does not check that a response holds its end.
        version: number of updates behind the weights that sampled; None if a batch is trained on at once.

    Raises:
        TokenPOError: groups of different sizes, or a token without a log-probability; and as `Rollouts`.
        NotFinite: a log-probability is not finite.
        Unsupported: a response lacks the token that ended it, so the model could not learn to end.
    """
    sizes = {len(response.sequences) for response in responses}
    if len(sizes) != 1 or 0 in sizes:
        raise TokenPOError(f"the server returned groups of {sorted(sizes)} responses: ask for one number, at least 1")
    rows = [row for response in responses for row in response.sequences]
    for number, row in enumerate(rows):
        _require_whole(number, row, ends)
    # At least one column, even if no response has a token.
    token_ids, logprob = (
        pad_sequence([*table, table[0].new_zeros(1)], batch_first=True)[:-1]
        for table in (
            [torch.tensor(row.tokens, dtype=torch.int64) for row in rows],
            [torch.tensor(row.logprobs, dtype=torch.float32) for row in rows],
        )
    )
    length = torch.tensor([len(row.tokens) for row in rows])
    return Rollouts(
        mask=torch.arange(token_ids.shape[1]) < length[:, None],
        reward=reward,
        group=torch.arange(len(responses)).repeat_interleave(sizes.pop()),
        old_logprob=logprob,
        rollout_logprob=logprob,
        temperature=torch.ones_like(logprob),
        token_ids=token_ids,
        version=None if version is None else torch.full_like(token_ids, version),
    )


def _require_whole(number: int, row: SampledSequence, ends: Collection[int] | None) -> None:
    if row.logprobs is None or len(row.logprobs) != len(row.tokens):
        raise TokenPOError("the server returned a response without a log-probability for each token: take another one")
    if not all(map(math.isfinite, row.logprobs)):
        raise NotFinite(f"the server returned a log-probability that is not finite in response {number}", number)
    if ends is not None and row.stop_reason == "stop" and (not row.tokens or row.tokens[-1] not in ends):
        raise Unsupported(f"response {number} lacks the token that ended it: take a server that keeps it")
