"""Scores responses under a model: log-prob with graph, entropy without, at each token's own temperature.

Axes: P prompts, N rollouts, T response tokens (padded), M scored tokens, V vocabulary.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.head.projection import inputs_of, probe_head
from ...core.head.token_stats import TokenStats, stats_from_logits, token_stats
from ...core.types import Policy
from .model import LanguageModel, Prompts
from .packed import Rows, can_pack, packed_logits, run_packed

# Most tokens in a forward pass, unless a single row is longer.
MAX_TOKENS = 16384


def score(
    lm: LanguageModel,
    prompts: Prompts,
    prompt_of_row: Tensor,
    token_ids: Tensor,
    mask: Tensor,
    temperature: Tensor | float = 1.0,
    *,
    drift: bool = False,
    entropy_grad: bool = False,
    max_tokens: int = MAX_TOKENS,
    kept: Tensor | None = None,
) -> Policy:
    """Log-probability and entropy [N, T] (nats) of responses under the current weights.

    Args:
        prompts: token ids of each prompt.
        prompt_of_row: [N] int, index into `prompts`.
        token_ids: [N, T] int, responses from column 0; ids after the last true mask entry are never read.
        mask: [N, T] bool, the tokens to score; false entries before the last true one are context (a tool's output).
        temperature: [N, T] of each token, or one number.
        drift: also compute the entropy drift Σ_v p_v² (log p_v + H).
        entropy_grad: let gradients flow through the entropy too.
        max_tokens: most tokens of a forward pass; a single row may exceed it.
        kept: [N, T, K] int, the tokens that probabilities are over (`Rollouts.kept_ids`); None is the whole vocabulary.

    Returns:
        Policy with [N, T] tensors, 0 where mask is false; logprob carries the graph.
    """
    stats, places = [], []
    for part in predictions(lm, prompts, prompt_of_row, token_ids, mask, temperature, max_tokens):
        own = None if kept is None else kept.to(lm.device)[part.row, part.column]
        stats.append(_stats(lm, part, drift, entropy_grad, own))
        places.append((part.row, part.column))

    def table(values: list[Tensor]) -> Tensor:
        """[N, T] with the values of the scored tokens, zero elsewhere."""
        if not values:
            return torch.zeros(mask.shape, device=lm.device)
        index = tuple(torch.cat(part) for part in zip(*places, strict=True))
        flat = torch.cat(values)
        return flat.new_zeros(mask.shape).index_put(index, flat)

    drifts = table([s.entropy_drift for s in stats if s.entropy_drift is not None]) if drift else None
    return Policy(table([s.logprob for s in stats]), table([s.entropy for s in stats]), drifts)


class Predictions(NamedTuple):
    """M scored tokens and the outputs that predict them.

    Args:
        row, column: [M], the tokens' places in [N, T].
        target: [M], the tokens.
        temperature: [M] or a number, at which the tokens were sampled.
        out: [M, H] final hidden states, or [M, V] logits if the head is not plain.
    """

    row: Tensor
    column: Tensor
    target: Tensor
    temperature: Tensor | float
    out: Tensor


def predictions(
    lm: LanguageModel,
    prompts: Prompts,
    prompt_of_row: Tensor,
    token_ids: Tensor,
    mask: Tensor,
    temperature: Tensor | float,
    max_tokens: int = MAX_TOKENS,
) -> Iterator[Predictions]:
    """Predictions of all tokens in the mask, one forward pass at a time; the arguments are those of `score`."""
    device = lm.device
    token_ids, mask, owner = token_ids.to(device), mask.to(device), prompt_of_row.to(device)
    length = (mask * torch.arange(1, mask.shape[1] + 1, device=device)).amax(1)
    owners, lengths = owner.tolist(), length.tolist()
    run = _packed if can_pack(lm) else _padded
    for rows in _batches(prompts, owners, lengths, max_tokens, packed=run is _packed):
        at = torch.tensor(rows, device=device)
        local, column = mask[at].nonzero(as_tuple=True)
        row = at[local]
        heat = temperature.to(device)[row, column] if isinstance(temperature, Tensor) else temperature
        out = run(lm, prompts, owner[at], token_ids[at], length[at], local, column)
        yield Predictions(row, column, token_ids[row, column], heat, out)


def _packed(
    lm: LanguageModel, prompts: Prompts, owner: Tensor, token_ids: Tensor, length: Tensor, row: Tensor, column: Tensor
) -> Tensor:
    """Hidden states [M, H] (logits [M, V] if the head is not plain) that predict the tokens at [row, column].

    Every prompt is run once; only attention pads.
    """
    used, owner = owner.unique(return_inverse=True)
    prompts = [prompts[i] for i in used.tolist()]
    # The last token of a response is not run, as it predicts no scored token.
    rows = Rows(prompts, owner, length - 1)
    ids = rows.ids(prompts, token_ids, length - 1)
    where = rows.predictor(row, column, owner)
    if has_plain_head(lm):
        return run_packed(lm.model, ids, rows.position, rows).index_select(0, where)
    return packed_logits(lm.model, ids, rows.position, rows, where)


def _padded(
    lm: LanguageModel, prompts: Prompts, owner: Tensor, token_ids: Tensor, length: Tensor, row: Tensor, column: Tensor
) -> Tensor:
    """As `_packed`, for any causal LM: prompt and response in one row, padded on the right."""
    prompts = [prompts[i] for i in owner.tolist()]
    texts = [
        [*prompt, *response[: size - 1]]
        for prompt, response, size in zip(prompts, token_ids.tolist(), length.tolist(), strict=True)
    ]
    longest = max(len(text) for text in texts)
    ids = torch.tensor([text + [lm.pad_id] * (longest - len(text)) for text in texts], device=lm.device)
    sizes = torch.tensor([len(text) for text in texts], device=lm.device).unsqueeze(1)
    inputs = inputs_of(lm.model, ids, (torch.arange(longest, device=lm.device) < sizes).long())
    before = torch.tensor([len(prompt) - 1 for prompt in prompts], device=lm.device)
    if has_plain_head(lm):
        return lm.model.base_model(**inputs).last_hidden_state[row, before[row] + column]
    return lm.model(**inputs).logits[row, before[row] + column]


def _stats(lm: LanguageModel, part: Predictions, drift: bool, entropy_grad: bool, kept: Tensor | None) -> TokenStats:
    tokens, how = (part.target, part.temperature), {"drift": drift, "entropy_grad": entropy_grad, "kept": kept}
    if not has_plain_head(lm):
        return stats_from_logits(part.out, *tokens, **how)
    head = lm.model.get_output_embeddings()
    return token_stats(part.out, head.weight, *tokens, bias=head.bias, **how)


def has_plain_head(lm: LanguageModel) -> bool:
    """Whether logits are exactly head(hidden), without a soft cap (Gemma) or scale (Cohere); probed once per model."""
    if "plain_head" not in lm.abilities:
        lm.abilities["plain_head"] = probe_head(lm.model)
    return lm.abilities["plain_head"]


def _batches(
    prompts: Prompts, owners: list[int], lengths: list[int], max_tokens: int, *, packed: bool
) -> Iterator[list[int]]:
    """Batches, of at most `max_tokens`, of the rows that have a response: in order if packed, else by length."""
    totals = [len(prompts[owner]) + length for owner, length in zip(owners, lengths, strict=True)]
    rows = [row for row, length in enumerate(lengths) if length]
    if not packed:
        rows.sort(key=lambda row: totals[row])
    batch: list[int] = []
    tokens = 0
    for row in rows:
        more = tokens + totals[row] if packed else (len(batch) + 1) * totals[row]
        if batch and more > max_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(row)
        tokens += totals[row]
    if batch:
        yield batch
