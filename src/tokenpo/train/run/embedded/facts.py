"""Inputs that take a forward pass of their own: influence, divergence, the prompt's log-probability, any formula.

All are computed under the current weights, without gradient. The responses to one prompt are a group; responses without
a token belong to none. If the head is plain, at most one chunk of logits is alive at a time.

Axes: P prompts, N rollouts, T response tokens (padded), M tokens of a group, H hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ....core.facts import facts_of
from ....core.head.projection import chunk_rows
from ....core.head.softmax import wide
from ....core.ops import kl, masked
from ....core.ops.group import Groups
from ....core.types import Rollouts
from ...models.model import LanguageModel
from ...models.score import MAX_TOKENS, Predictions, has_plain_head, predictions, score

# Differences of log-probabilities are clamped to this, as in the authors' code: e^11 is 6e4, so sums stay finite.
_FURTHEST = 11.0
Prompts = Sequence[Sequence[int]]
Texts = tuple[Prompts, Tensor, Tensor, Tensor, Tensor]  # prompts, the one of each row, token_ids, mask, temperature


@torch.no_grad()
def influence(lm: LanguageModel, texts: Texts, reward: Tensor, max_tokens: int = MAX_TOKENS) -> Tensor:
    """[N, T] Σ ⟨g, g'⟩⟨h, h'⟩ over the tokens of the group's responses whose reward [N] exceeds its mean (2505.18830).

    h is the final hidden state that predicts a token; g is the token's one-hot minus the probabilities at its sampling
    temperature. The exact gradient g hᵀ in the head's weights has a factor 1/temperature, which is left out: a constant
    factor scales scores and thresholds equally. With M = Σ g' h'ᵀ the sum is gᵀ M h, so the cost grows with the number
    of tokens, not with its square; M [V, H] of one group is held in float32 at least.

    Returns:
        0 where mask is false, and in groups whose rewards are all equal.
    """
    prompts, owner, token_ids, mask, temperature = texts
    groups = Groups.of(owner, mask.any(1))
    mixed, right = groups.varied(reward), groups.above_mean(reward).to(lm.device)
    table = torch.zeros(mask.shape, dtype=wide(lm.model.dtype), device=lm.device)
    for tokens in _by_group(lm, (prompts, owner, token_ids, mask & mixed[:, None], temperature), max_tokens):
        table[tokens.row, tokens.column] = _scores(lm, tokens, right[tokens.row])
    return table


@torch.no_grad()
def divergence(lm: LanguageModel, texts: Texts, max_tokens: int = MAX_TOKENS) -> Tensor:
    """[N, T] distance between the group's next-token distributions at position t (2505.24718); 0 where mask is false.

        d_t = mean_i Σ_v (exp(D) − D − 1),   D = mean_j L_jtv − L_itv clamped to ±11

    L are the log-probabilities at the temperature of sampling, and −log V for a response of the group without a token
    at t (it has ended).
    """
    table = torch.zeros(texts[3].shape, dtype=wide(lm.model.dtype), device=lm.device)
    for tokens in _by_group(lm, texts, max_tokens):
        table[tokens.row, tokens.column] = _distances(lm, tokens)
    return table


def by_formula(lm: LanguageModel, texts: Texts, formula: Callable[[Tensor], Tensor], max_tokens: int) -> Tensor:
    """[N, T] a function of the log-probabilities [..., V] of the distribution that each token was drawn from."""
    mask = texts[3]
    table = torch.zeros(mask.shape, dtype=wide(lm.model.dtype), device=lm.device)
    chunk = chunk_rows(lm.model.get_output_embeddings().weight.shape[0])
    for tokens in predictions(lm, *texts, max_tokens):
        for at in torch.arange(len(tokens.row), device=lm.device).split(chunk):
            table[tokens.row[at], tokens.column[at]] = formula(_log_probabilities(lm, tokens, at))
    return table


@torch.no_grad()
def prompt_logprob(lm: LanguageModel, prompts: Prompts, temperature: float, max_tokens: int = MAX_TOKENS) -> Tensor:
    """[P] nats, the mean log-probability of a prompt's tokens after the first; 0 for a prompt of one token."""
    width = max(2, *(len(prompt) for prompt in prompts)) - 1
    length = torch.tensor([len(prompt) - 1 for prompt in prompts])
    token_ids = torch.tensor([[*prompt[1:], *[0] * (width + 1 - len(prompt))] for prompt in prompts])
    mask = torch.arange(width) < length[:, None]
    first = [prompt[:1] for prompt in prompts]
    policy = score(lm, first, torch.arange(len(prompts)), token_ids, mask, temperature, max_tokens=max_tokens)
    return masked.mean(policy.logprob, mask.to(lm.device), dim=1)[:, 0]


def texts(rollouts: Rollouts, prompts: Prompts) -> Texts:
    """(prompts in use, number of each row's prompt, token ids, mask and temperature [N, T])."""
    used, of_row = torch.unique(rollouts.group, return_inverse=True)
    mine = [list(prompts[group]) for group in used.tolist()]
    mask, heat = rollouts.mask, rollouts.need("temperature")
    return mine, of_row, rollouts.need("token_ids"), mask, heat.where(mask, 1.0)


# Input that takes a forward pass of its own -> its maker (model, rollouts, prompts, most tokens of a pass).
MAKERS: dict[str, Callable[[LanguageModel, Rollouts, Prompts, int], Tensor]] = {
    name: lambda lm, facts, prompts, most, formula=fact.formula: by_formula(lm, texts(facts, prompts), formula, most)
    for name, fact in facts_of(Rollouts).items()
    if fact.formula is not None
} | {
    "influence": lambda lm, facts, prompts, most: influence(lm, texts(facts, prompts), facts.reward, most),
    "divergence": lambda lm, facts, prompts, most: divergence(lm, texts(facts, prompts), most),
    "prompt_logprob": lambda lm, facts, prompts, most: prompt_logprob(
        lm, prompts, float(facts.need("temperature")[facts.mask][0]), most
    )[facts.group],
}


def _by_group(lm: LanguageModel, texts: Texts, max_tokens: int) -> Iterator[Predictions]:
    """Yields the tokens of one group at a time. Small groups share forward passes; a large group may need several."""
    prompts, owner, token_ids, mask, temperature = texts
    for rows in _whole_groups(prompts, owner, mask, max_tokens):
        texts = prompts, owner[rows], token_ids[rows], mask[rows], temperature[rows]
        pieces = list(predictions(lm, *texts, max_tokens))
        row, column, target, out = (
            torch.cat(part) for part in zip(*((p.row, p.column, p.target, p.out) for p in pieces), strict=True)
        )
        row = rows.to(row.device)[row]
        heat, group = temperature.to(row.device)[row, column], owner.to(row.device)[row]
        for one in group.unique():
            at = (group == one).nonzero()[:, 0]
            yield Predictions(row[at], column[at], target[at], heat[at], out[at])


def _whole_groups(prompts: Prompts, owner: Tensor, mask: Tensor, max_tokens: int) -> Iterator[Tensor]:
    """Rows with a token, in batches of whole groups: at most `max_tokens` tokens, or a single group."""
    length, members = mask.sum(1).tolist(), dict[int, list[int]]()
    for row, group in enumerate(owner.tolist()):
        if length[row]:
            members.setdefault(group, []).append(row)
    batch: list[int] = []
    tokens = 0
    for group, rows in members.items():
        size = sum(len(prompts[group]) + length[row] for row in rows)
        if batch and tokens + size > max_tokens:
            yield torch.tensor(batch, device=owner.device)
            batch, tokens = [], 0
        batch += rows
        tokens += size
    if batch:
        yield torch.tensor(batch, device=owner.device)


def _scores(lm: LanguageModel, tokens: Predictions, right: Tensor) -> Tensor:
    """[M] gᵀ M h of the tokens of one group, with M summed over the tokens that are `right` [M]."""
    shape = lm.model.get_output_embeddings().weight.shape
    chunk = chunk_rows(shape[0])
    scores = torch.zeros(len(tokens.row), dtype=wide(lm.model.dtype), device=right.device)
    matrix = torch.zeros(shape, dtype=scores.dtype, device=right.device)
    exact = torch.autocast(right.device.type, enabled=False)  # no autocast: products keep their precision
    for at in right.nonzero()[:, 0].split(chunk):
        g, h = _residual(lm, tokens, at)
        with exact:
            matrix += g.T @ h
    for at in torch.arange(len(scores), device=right.device).split(chunk):
        g, h = _residual(lm, tokens, at)
        with exact:
            scores[at] = (g * (h @ matrix.T)).sum(1)
    return scores


def _residual(lm: LanguageModel, tokens: Predictions, at: Tensor) -> tuple[Tensor, Tensor]:
    """One-hot − probabilities [·, V], and the hidden states [·, H], of the tokens at `at`."""
    g = -_log_probabilities(lm, tokens, at).exp()
    g[torch.arange(len(at), device=at.device), tokens.target[at]] += 1
    return g, tokens.out[at].to(g.dtype)


def _distances(lm: LanguageModel, tokens: Predictions) -> Tensor:
    """[M] d at the position of each token of one group."""
    rows, row = tokens.row.unique(return_inverse=True)
    columns, column = tokens.column.unique(return_inverse=True)
    place = torch.full((len(rows), len(columns)), -1, device=row.device)
    place[row, column] = torch.arange(len(row), device=row.device)
    distances = torch.zeros(len(columns), dtype=wide(lm.model.dtype), device=row.device)
    vocabulary = lm.model.get_output_embeddings().weight.shape[0]
    step = max(1, chunk_rows(vocabulary) // len(rows))
    for at in torch.arange(len(columns), device=row.device).split(step):
        alive = place[:, at] >= 0
        logp = distances.new_full((*alive.shape, vocabulary), -math.log(vocabulary))
        logp[alive] = _log_probabilities(lm, tokens, place[:, at][alive])
        difference = (logp.mean(0) - logp).clamp(-_FURTHEST, _FURTHEST)
        distances[at] = kl.k3(difference).sum(-1).mean(0)
    return distances[column]


def _log_probabilities(lm: LanguageModel, tokens: Predictions, at: Tensor) -> Tensor:
    """[·, V] at the temperature of the tokens at `at`."""
    out = tokens.out[at]
    logits = (lm.model.get_output_embeddings()(out) if has_plain_head(lm) else out).to(wide(lm.model.dtype))
    return (logits / torch.as_tensor(tokens.temperature)[at, None]).log_softmax(-1)
