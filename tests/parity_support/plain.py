"""Loss and gradient of one optimiser step with nothing of an engine: one forward pass a row, with all its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad

import tokenpo


def plainly(
    model: Any,
    objective: tokenpo.Objective,
    rollouts: tokenpo.Rollouts,
    prompts: Sequence[Sequence[int]],
    credit: tokenpo.Credit,
    length: int,
    generator: torch.Generator,
) -> tuple[float, dict[str, torch.Tensor]]:
    """The objective on the whole step at once, and its gradient by the name of the parameter.

    Args:
        prompts: token ids of each group's prompt.
        length: the longest response that was allowed.
        generator: for what objectives of batch scope draw.
    """
    assert rollouts.token_ids is not None
    width, views = rollouts.mask.shape[1], []
    for row, (group, ids) in enumerate(zip(rollouts.group.tolist(), rollouts.token_ids, strict=True)):
        said = ids[: int(rollouts.mask[row].sum())]
        prompt = torch.tensor(prompts[group])
        logits = model(input_ids=torch.cat([prompt, said])[None]).logits[0, len(prompt) - 1 : -1]
        log_p = logits.float().log_softmax(-1)  # every token of these rollouts was sampled at 1
        entropy = -(log_p.exp() * log_p).sum(-1)
        drift = ((2 * log_p).exp() * (log_p + entropy[:, None])).sum(-1)
        found = log_p.gather(1, said[:, None])[:, 0], entropy, drift
        views.append([pad(x, (0, width - len(said))) for x in found])
    logprob, entropy, drift = (torch.stack(view) for view in zip(*views, strict=True))
    if not objective.entropy_gradient:
        entropy = entropy.detach()
    batch = tokenpo.Batch(rollouts, credit, tokenpo.Policy(logprob, entropy, drift.detach()))
    if objective.scope == "batch":
        batch = objective.observe(batch, generator)
    loss = objective.loss(batch, tokenpo.Totals.of(rollouts, length)).value
    names, parameters = zip(*model.named_parameters(), strict=True)
    return float(loss.detach()), dict(
        zip(names, torch.autograd.grad(loss, parameters, materialize_grads=True), strict=True)
    )
