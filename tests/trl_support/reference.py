"""The embedded engine at the weights that TRL had: what its loss and gradient should have been."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

import tokenpo
from tokenpo import models as language
from tokenpo.core.learner import Learner, Step
from tokenpo.engines.embedded.forward import Forward
from tokenpo.engines.embedded.updates import Trainer, gradients
from tokenpo.recipe.config import Train


class Reference:
    """The embedded engine for one objective, with the seed and the longest response of the run it stands beside."""

    def __init__(
        self, model: Path, objective: tokenpo.Objective, *, seed: int, longest: int, micro_rows: int = 256
    ) -> None:
        self.lm, self.ref = language.load(model), language.load(model)
        self.objective = objective
        needs = objective.needs
        drift, graph = "entropy_drift" in needs, objective.entropy_gradient
        forward = Forward(self.lm, micro_rows, 10**6, drift=drift, entropy_grad=graph)
        optimizer = torch.optim.SGD(self.lm.model.parameters(), lr=0.0)
        learner = Learner(objective, length=longest, seed=seed)
        self.trainer = Trainer(self.lm, learner, forward, optimizer, Train(lr=0.0))

    def scored(
        self, facts: dict[str, Any], prompts: list[list[int]], weights: dict[str, torch.Tensor]
    ) -> tokenpo.Rollouts:
        """Rollouts with what the embedded engine knows of them at these weights, as far as the objective reads it."""
        self._set(weights)
        bare = tokenpo.Rollouts(**{"old_logprob": torch.zeros(facts["mask"].shape), **facts})
        with torch.no_grad():
            old = self.trainer.forward.policy(bare, prompts)
            ref = Forward(self.ref, 256, 10**6).policy(bare, prompts)
            asked = {
                "old_entropy": lambda: old.entropy,
                "ref_logprob": lambda: ref.logprob,
                "influence": lambda: self.trainer.forward.influence(bare, prompts),
                "divergence": lambda: self.trainer.forward.divergence(bare, prompts),
                "prompt_logprob": lambda: self.trainer.forward.prompt_logprob(bare, prompts, 1.0),
            }
            more = {name: find() for name, find in asked.items() if name in self.objective.needs}
        return dataclasses.replace(bare, old_logprob=old.logprob, **more)

    def gradient(
        self,
        weights: dict[str, torch.Tensor],
        rows: list[int],
        step: int,
        share: float,
        rollouts: tokenpo.Rollouts,
        prompts: list[list[int]],
        credit: tokenpo.Credit,
    ) -> tuple[float, dict[str, torch.Tensor]]:
        """Loss and gradient of one optimiser step.

        Args:
            weights: before it.
            step: its number in the run.
            share: of the rollout batch's steps, how many came before.
        """
        self._set(weights)
        learner, passes = self.trainer.learner, len(self.objective.split())
        begun = Step(self.objective, rollouts, credit, learner.length, learner.seed)
        update = begun.update(torch.tensor(rows), int(share * passes), step)
        value = sum(float(loss.value) for _, _, loss in gradients(self.trainer, update, prompts))
        return value, {n: x.grad for n, x in self.lm.model.named_parameters()}

    def moved(self, rollouts: tokenpo.Rollouts, prompts: list[list[int]]) -> float:
        """The largest |log-ratio| of the weights last used to the rollouts' old policy."""
        with torch.no_grad():
            now = self.trainer.forward.policy(rollouts, prompts).logprob
        return float((now - rollouts.old_logprob).abs().max())

    def _set(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, x in self.lm.model.named_parameters():
                x.copy_(weights[f"weight/{name}"])


def apart(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Norm of the difference between two gradients, and of the second; both by the name of the parameter."""
    left = torch.cat([theirs[name].flatten() for name in ours])
    right = torch.cat([x.flatten() for x in ours.values()])
    return float((left - right).norm()), float(right.norm())


def same(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], what: str) -> bool:
    """Asserts that gradients agree to 1e-5 of their norm; whether there was one to compare."""
    difference, norm = apart({name: theirs[f"grad/{name}"] for name in ours}, ours)
    assert difference <= 1e-5 * norm, what
    return norm > 1e-3
