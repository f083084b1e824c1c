"""What a sampling client returned, as the tensors of a rollout batch.

A server's responses hold tokens and their log-probabilities. They are the old log-probabilities, too: the weights that
sampled are those that the update starts from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import TokenPOError, Unsupported
from ...core.types import Rollouts
from ...models import Samples
from .needs import ENGINE

if TYPE_CHECKING:
    from tinker import SampledSequence, SampleResponse


def samples(responses: Sequence[SampleResponse], ends: Collection[int] | None = None) -> Samples:
    """N = P·G responses to P prompts, in order.

    Args:
        ends: ids of the tokens that can end a response; None leaves it unchecked that a response holds its end.

    Raises:
        TokenPOError: groups of different sizes, or a response without log-probabilities.
        Unsupported: a response without the token that ended it, so that nothing could learn to end.
    """
    sizes = {len(response.sequences) for response in responses}
    if len(sizes) != 1 or 0 in sizes:
        raise TokenPOError(f"the server returned groups of {sorted(sizes)} responses: ask for one number, at least 1")
    rows = [row for response in responses for row in response.sequences]
    for row in rows:
        _require_whole(row, ends)
    # One column at least, also where no response has a token.
    token_ids, logprob = (
        pad_sequence([*table, table[0].new_zeros(1)], batch_first=True)[:-1]
        for table in (
            [torch.tensor(row.tokens, dtype=torch.int64) for row in rows],
            [torch.tensor(row.logprobs, dtype=torch.float32) for row in rows],
        )
    )
    length = torch.tensor([len(row.tokens) for row in rows])
    return Samples(
        token_ids=token_ids,
        mask=torch.arange(token_ids.shape[1]) < length[:, None],
        logprob=logprob,
        entropy=None,
        temperature=torch.ones_like(logprob),
        rollout_logprob=logprob,
        prompt=torch.arange(len(responses)).repeat_interleave(sizes.pop()),
        finished=torch.tensor([row.stop_reason == "stop" for row in rows]),
    )


def rollouts(
    responses: Sequence[SampleResponse],
    reward: Tensor,
    ends: Collection[int] | None = None,
    version: int | None = None,
) -> Rollouts:
    """Facts of the responses to P prompts, sampled at temperature 1 without top-k and top-p.

    Args:
        responses: one for each prompt, G sequences in each.
        reward: [N] of each sequence, N = P·G.
        ends: as `samples` takes them.
        version: how many updates the weights had had that sampled; None where all is trained on at once.

    Raises:
        TokenPOError, Unsupported: as `samples`, and what `Rollouts` refuses.
    """
    out = samples(responses, ends)
    return Rollouts(
        mask=out.mask,
        reward=reward,
        group=out.prompt,
        old_logprob=out.logprob,
        rollout_logprob=out.rollout_logprob,
        temperature=out.temperature,
        token_ids=out.token_ids,
        version=None if version is None else torch.full_like(out.token_ids, version),
    )


def _require_whole(row: SampledSequence, ends: Collection[int] | None) -> None:
    if row.logprobs is None or len(row.logprobs) != len(row.tokens):
        raise TokenPOError("the server returned a response without a log-probability for each token: take another one")
    if ends is not None and row.stop_reason == "stop" and (not row.tokens or row.tokens[-1] not in ends):
        raise Unsupported(
            f"{ENGINE} wants responses with the token that ends them, which the loss has inside, and this server "
            "returned one that stopped without it: take a server that keeps it"
        )
