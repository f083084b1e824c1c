"""What a server gives an objective: the inputs that it has, and responses as the tensors of a rollout batch.

A server's responses hold tokens and their log-probabilities. These are also the old log-probabilities, because updates
start from the weights that sampled. `tinker` is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

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

ENGINE = "the Tinker engine"
# Inputs that need whole distributions or hidden states; the API returns only the log-probabilities of sampled tokens.
_LOGITS = {"entropy", "old_entropy", "entropy_drift", "teacher_divergence"}
# The engines that have them; an input that is not named is the embedded engine's alone.
_ENGINES = {
    **dict.fromkeys(("entropy", "old_entropy"), "the embedded engine, TRL or verl"),
    **dict.fromkeys(("entropy_drift", "teacher_divergence"), "the embedded engine or TRL"),
}
PROVIDES = OPTIONAL - _LOGITS - {"value", "version"} | {"prompt_logprob"}
REMEDIES: dict[str, str] = {
    name: "the API returns log-probabilities of the sampled tokens and no logits: choose a method that reads no more, "
    f"or train with {_ENGINES.get(name, 'the embedded engine')}"
    for name in sorted(_LOGITS)
} | {
    "value": "the API returns no hidden states: train with the embedded engine (tokenpo train), which has a value head",
    "teacher_logprob": "say which of the server's models the teacher is: --set teacher.path=NAME",
}
# A server's sampler and trainer are two programs, mostly in half precision.
RATIO = RatioCheck(
    ENGINE,
    "set rollout.rescore = true, which takes the old log-probs from the server's own trainer, or a larger "
    "train.ratio_tolerance",
    HALF_TOLERANCE,
    "mean",
)


def require(objective: Objective, provides: frozenset[str] = PROVIDES) -> None:
    """Raises Unsupported if an objective reads an input that no server gives, or adapts the temperature per token."""
    heat = (
        f"{objective.name} adapts the temperature from token to token ({objective.temperature!r}), which {ENGINE} "
        "cannot ask a server for: choose another method, or train with the embedded engine, TRL or verl"
    )
    refuse([None if objective.temperature is None else heat, *missing(objective, provides, ENGINE, REMEDIES)])


class Table(NamedTuple):
    """N responses, padded on the right."""

    token_ids: Tensor  # [N, T]
    mask: Tensor  # [N, T]
    logprob: Tensor  # [N, T] nats, under the weights that sampled
    prompt: Tensor  # [N] number of the prompt
    finished: Tensor  # [N] bool, whether the response ended by itself


def table_of(responses: Sequence[SampleResponse], ends: Collection[int] | None = None) -> Table:
    """N = P·G responses to P prompts, in order.

    Args:
        ends: ids of the tokens that can end a response; None does not check that a response holds its end.

    Raises:
        TokenPOError: groups of different sizes, or a token without a log-probability.
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
    return Table(
        token_ids=token_ids,
        mask=torch.arange(token_ids.shape[1]) < length[:, None],
        logprob=logprob,
        prompt=torch.arange(len(responses)).repeat_interleave(sizes.pop()),
        finished=torch.tensor([row.stop_reason == "stop" for row in rows]),
    )


def rollouts(
    responses: Sequence[SampleResponse], reward: Tensor, ends: Collection[int] | None = None, version: int | None = None
) -> Rollouts:
    """Rollouts from the responses to P prompts, sampled at temperature 1 without top-k and top-p.

    Args:
        responses: one for each prompt, G sequences in each.
        reward: [N] of each sequence, N = P·G.
        ends: as in `table_of`.
        version: number of updates behind the weights that sampled; None if a batch is trained on at once.

    Raises:
        TokenPOError: as `table_of` and `Rollouts`.
    """
    out = table_of(responses, ends)
    return Rollouts(
        mask=out.mask,
        reward=reward,
        group=out.prompt,
        old_logprob=out.logprob,
        rollout_logprob=out.logprob,
        temperature=torch.ones_like(out.logprob),
        token_ids=out.token_ids,
        version=None if version is None else torch.full_like(out.token_ids, version),
    )


def _require_whole(number: int, row: SampledSequence, ends: Collection[int] | None) -> None:
    if row.logprobs is None or len(row.logprobs) != len(row.tokens):
        raise TokenPOError("the server returned a response without a log-probability for each token: take another one")
    if not all(map(math.isfinite, row.logprobs)):
        raise NotFinite(f"the server returned a log-probability that is not finite in response {number}", number)
    if ends is not None and row.stop_reason == "stop" and (not row.tokens or row.tokens[-1] not in ends):
        raise Unsupported(f"{ENGINE} wants responses with the token that ends them: take a server that keeps it")
