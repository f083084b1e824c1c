"""Rollouts that a model drew in a run of TRL's, as `real_run.drawing` left them, beside the embedded engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tokenpo

from .reference import Reference, same


def agrees(directory: Path, ran: dict[str, Any], batch: int, updates: int, reference: Reference, state: Any) -> Any:
    """Loss and gradient of every step of a rollout batch are the embedded engine's; the rollouts, rescored."""
    facts = load_file(directory / f"batch{batch}.safetensors")
    mask, prompts = facts["mask"], [reference.lm.encode(text) for text in ran["prompts"][batch][::4]]
    steps = [load_file(directory / f"step{batch * updates + k}.safetensors") for k in range(updates)]
    given = {name: facts[name] for name in ("mask", "reward", "group", "token_ids", "temperature")}
    given["temperature"] = given["temperature"].where(mask, 1.0)
    rollouts = reference.scored(given, prompts, steps[0])
    torch.testing.assert_close(facts["old_logprob"][mask], rollouts.old_logprob[mask], rtol=1e-4, atol=1e-5)
    if rollouts.old_entropy is not None:
        torch.testing.assert_close(facts["old_entropy"][mask], rollouts.old_entropy[mask], rtol=1e-4, atol=1e-5)
    credit, compared = reference.objective.prepare(rollouts, state), False
    for k, tensors in enumerate(steps):
        seen = [micro for micro in ran["seen"] if micro["step"] == batch * updates + k]
        rows = sorted(row for micro in seen for row in micro["rows"] if mask[row].any())
        if not rows:
            continue
        loss, grads = reference.gradient(tensors, rows, batch * updates + k, k / updates, rollouts, prompts, credit)
        processes = len(seen)
        assert sum(micro["loss"] for micro in seen) / processes == pytest.approx(loss, rel=1e-4, abs=1e-6)
        compared |= same(tensors, grads, f"gradient of step {k} of rollout batch {batch}")
    assert compared
    return rollouts


def heated(model: Path, directory: Path, ran: dict[str, Any]) -> None:
    """The temperature that a token was drawn at is the rule's of the entropy of its logits at the base temperature, and
    loss and gradient are the embedded engine's at the temperatures that were recorded.

    Of two rollout batches of two updates under HAPO with tau = 0.4 at the base temperature 1.2.
    """
    objective, base = tokenpo.method("hapo", tau=0.4), 1.2
    reference = Reference(model, objective, seed=3, longest=8)
    adaptive, state = objective.temperature, objective.start()
    assert adaptive is not None
    for batch in range(2):
        facts = load_file(directory / f"batch{batch}.safetensors")
        mask, prompts = facts["mask"], [reference.lm.encode(text) for text in ran["prompts"][batch][::4]]
        weights = load_file(directory / f"step{2 * batch}.safetensors")
        given = {name: facts[name] for name in ("mask", "reward", "group", "token_ids")}
        at_base = reference.scored({**given, "temperature": torch.full(mask.shape, base)}, prompts, weights)
        expected = adaptive(at_base.old_entropy[mask], base, state[adaptive])
        torch.testing.assert_close(facts["temperature"][mask], expected, rtol=1e-4, atol=1e-4)
        assert (facts["temperature"][mask].std() > 0.05) == (batch == 1)
        rollouts = agrees(directory, ran, batch, 2, reference, state)
        state = objective.after(state, rollouts)
        if batch == 0:
            assert ran["memory"][1] == [pytest.approx(dict(state[adaptive]), rel=1e-3)]
