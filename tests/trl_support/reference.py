"""The embedded engine at the weights that TRL had: the expected loss and gradient."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tokenpo
from guessing import Guess
from tokenpo.core.learner import Learner, Step
from tokenpo.train import models as language
from tokenpo.train.recipe.config import Train
from tokenpo.train.run.updates import Forward, Trainer, gradients


class Reference:
    """The embedded engine for one objective, with the seed and the longest response of TRL's run."""

    def __init__(
        self,
        model: Path,
        objective: tokenpo.Objective,
        *,
        seed: int,
        longest: int,
        micro_rows: int = 256,
        kl: tokenpo.KLHold | None = None,
    ) -> None:
        self.lm, self.ref = language.load(model), language.load(model)
        self.objective = objective
        needs = objective.needs
        drift, graph = "entropy_drift" in needs, objective.entropy_gradient
        forward = Forward(self.lm, micro_rows, 10**6, drift=drift, entropy_grad=graph)
        optimizer = torch.optim.SGD(self.lm.model.parameters(), lr=0.0)
        learner = Learner(objective, length=longest, seed=seed, kl=kl)
        self.trainer = Trainer(self.lm, learner, forward, optimizer, Train(lr=0.0))

    def scored(
        self, facts: dict[str, Any], prompts: list[list[int]], weights: dict[str, torch.Tensor]
    ) -> tokenpo.Rollouts:
        """Rollouts with the inputs that the objective reads, as the embedded engine makes them at these weights."""
        self.weigh(weights)
        bare = tokenpo.Rollouts.of({"old_logprob": torch.zeros(facts["mask"].shape), **facts})
        with torch.no_grad():
            old = self.trainer.forward.policy(bare, prompts)
            ref = Forward(self.ref, 256, 10**6).policy(bare, prompts)
            asked = {"old_entropy": lambda: old.entropy, "ref_logprob": lambda: ref.logprob}
            more = {name: find() for name, find in asked.items() if name in self.objective.needs}
            made = dataclasses.replace(bare, old_logprob=old.logprob)
            sampler = Guess(self.lm, prompts)
            extra = {part.gives: part.supply(made, sampler) for part in self.objective.supplied}
        return dataclasses.replace(made, **more, extra=extra)

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
        self.weigh(weights)
        learner, passes = self.trainer.learner, len(self.objective.split())
        begun = Step(self.objective, rollouts, credit, learner.memory, learner.length, learner.seed)
        update = begun.update(torch.tensor(rows), int(share * passes), step)
        value = sum(float(loss.value) for _, _, loss in gradients(self.trainer, update, prompts))
        return value, {n: x.grad for n, x in self.lm.model.named_parameters()}

    def moved(self, rollouts: tokenpo.Rollouts, prompts: list[list[int]]) -> float:
        """The largest |log-ratio| of the weights last used to the rollouts' old policy."""
        with torch.no_grad():
            now = self.trainer.forward.policy(rollouts, prompts).logprob
        return float((now - rollouts.old_logprob).abs().max())

    def weigh(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, x in self.lm.model.named_parameters():
                x.copy_(weights[f"weight/{name}"])


def apart(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Norm of the difference between two gradients, and of the second; both by the name of the parameter."""
    left = torch.cat([theirs[name].flatten() for name in ours])
    right = torch.cat([x.flatten() for x in ours.values()])
    return float((left - right).norm()), float(right.norm())


def agrees(directory: Path, ran: dict[str, Any], batch: int, updates: int, reference: Reference, state: Any) -> Any:
    """Asserts that loss and gradient of every step of a rollout batch are the embedded engine's; its rollouts."""
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
        difference, norm = apart({name: tensors[f"grad/{name}"] for name in grads}, grads)
        assert difference <= 1e-5 * norm, f"gradient of step {k} of rollout batch {batch}"
        compared |= norm > 1e-3
    assert compared
    return rollouts


def heated(model: Path, directory: Path, ran: dict[str, Any]) -> None:
    """Two rollout batches of two updates under HAPO with tau = 0.4 at the base temperature 1.2: each token was drawn at
    the rule's temperature, and loss and gradient are the embedded engine's at the base temperature."""
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
        torch.testing.assert_close(facts["sampled_at"][mask], expected, rtol=1e-4, atol=1e-4)
        assert (facts["sampled_at"][mask].std() > 0.05) == (batch == 1)
        assert (facts["temperature"][mask] == torch.tensor(base)).all()
        if "rollout_logprob" in facts:
            at_heat = reference.scored({**given, "temperature": facts["sampled_at"]}, prompts, weights)
            assert (facts["rollout_logprob"] - at_heat.old_logprob)[mask].abs().max() < 1e-3
            assert ((facts["rollout_logprob"] - facts["old_logprob"])[mask].abs().max() > 0.05) == (batch == 1)
        if "applied" in ran:
            applied = torch.tensor(ran["applied"][batch]).T[mask[:, : len(ran["applied"][batch])]]
            torch.testing.assert_close(applied, expected, rtol=1e-4, atol=1e-4)
        rollouts = agrees(directory, ran, batch, 2, reference, state)
        state = objective.after(state, rollouts)
        if batch == 0:
            assert ran["memory"][1] == [pytest.approx(dict(state[adaptive]), rel=1e-3)]
