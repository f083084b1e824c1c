"""What methods compare inside a group, from one full forward pass per response and sums over pairs, in float64."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def passes(
    lm: Any, prompts: Sequence[Sequence[int]], owner: Tensor, token_ids: Tensor, mask: Tensor, temperature: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each row: final hidden states [T, H] and log-probabilities [T, V] at each token's temperature, up to its last
    token."""
    for row in range(len(mask)):
        length = int((mask[row] * torch.arange(1, mask.shape[1] + 1)).max())
        prompt, target = prompts[int(owner[row])], token_ids[row, :length]
        with torch.no_grad():
            out = lm.model(torch.tensor([[*prompt, *target.tolist()]]), output_hidden_states=True)
        at = slice(len(prompt) - 1, len(prompt) - 1 + length)
        logits = out.logits[0, at].double() / temperature[row, :length, None].double()
        yield out.hidden_states[-1][0, at].double(), logits.log_softmax(-1)


def naive_influence(
    lm: Any, prompts: Sequence[Sequence[int]], owner: Tensor, token_ids: Tensor, mask: Tensor, temperature: Tensor,
    reward: Tensor,
) -> Tensor:  # fmt: skip
    """The double sum: ⟨g, g'⟩⟨h, h'⟩ of every pair of tokens, over those of right responses of the same group."""
    found = torch.zeros(mask.shape, dtype=torch.float64)
    rows, columns, gs, hs = [], [], [], []
    for row, (h, logp) in enumerate(passes(lm, prompts, owner, token_ids, mask, temperature)):
        for t in mask[row].nonzero()[:, 0].tolist():
            rows, columns = [*rows, row], [*columns, t]
            one_hot = torch.eye(logp.shape[1], dtype=torch.float64)[token_ids[row, t]]
            gs, hs = [*gs, one_hot - logp[t].exp()], [*hs, h[t]]
    g, h = torch.stack(gs), torch.stack(hs)
    pairs = (g @ g.T) * (h @ h.T)
    for group in range(len(prompts)):
        rewards = {row: reward[row].item() for row in set(rows) if owner[row] == group}
        mean = sum(rewards.values()) / max(1, len(rewards))
        if len(set(rewards.values())) < 2:
            continue
        right = [i for i, row in enumerate(rows) if rewards.get(row, mean) > mean]
        for j, row in enumerate(rows):
            if row in rewards:
                found[row, columns[j]] = sum(pairs[j, right].tolist())
    return found


def naive_divergence(
    lm: Any, prompts: Sequence[Sequence[int]], owner: Tensor, token_ids: Tensor, mask: Tensor, temperature: Tensor
) -> Tensor:
    """d_t by its definition, position by position; a response without a token there counts as uniform."""
    found = torch.zeros(mask.shape, dtype=torch.float64)
    laws = [logp for _, logp in passes(lm, prompts, owner, token_ids, mask, temperature)]
    v = laws[0].shape[1]
    for group in range(len(prompts)):
        rows = [row for row in range(len(mask)) if owner[row] == group and mask[row].any()]
        for t in range(mask.shape[1]):
            alive = [row for row in rows if mask[row, t]]
            uniform = torch.full((v,), -math.log(v), dtype=torch.float64)
            table = [laws[row][t] if row in alive else uniform for row in rows]
            if alive:
                mean = sum(table) / len(rows)
                parts = [(mean - law).clamp(-11, 11) for law in table]
                found[alive, t] = sum((d.exp() - d - 1).sum() for d in parts) / len(rows)
    return found


def naive_prompt_logprob(lm: Any, prompts: Sequence[Sequence[int]], temperature: float) -> list[float]:
    """The mean log-probability of each prompt's tokens after the first; 0 where there is none."""
    found = []
    for prompt in prompts:
        with torch.no_grad():
            logp = (lm.model(torch.tensor([prompt])).logits[0].double() / temperature).log_softmax(-1)
        seen = [float(logp[t, token]) for t, token in enumerate(prompt[1:])]
        found.append(sum(seen) / len(seen) if seen else 0.0)
    return found


def naive_collision(
    lm: Any, prompts: Sequence[Sequence[int]], owner: Tensor, token_ids: Tensor, mask: Tensor, temperature: Tensor
) -> Tensor:
    """Σ p² by its definition, response by response."""
    found = torch.zeros(mask.shape, dtype=torch.float64)
    for row, (_, logp) in enumerate(passes(lm, prompts, owner, token_ids, mask, temperature)):
        found[row, : len(logp)] = (logp.exp() ** 2).sum(1) * mask[row, : len(logp)]
    return found
