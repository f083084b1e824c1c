"""A method on a world, through the door that every host uses: a `Learner`, its steps and their updates."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...core import facts
from ...core.learner import Learner, Step, Update
from ...core.objective import Objective
from ...core.parts import Continuations
from ...core.ratio_check import RatioCheck
from ...core.seeds import keyed_generator
from ...core.types import Rollouts
from .sampling import Walk, onward, rollouts, view
from .truth import truth
from .world import World


@dataclass(frozen=True, eq=False)
class Contestant:
    """A method that is judged.

    Args:
        label: in tables.
        objective: the method.
        exact: whether Q − V of every token takes the place of its credit: what perfect token credit would do.
    """

    label: str
    objective: Objective
    exact: bool = False

    def learner(self, world: World, seed: int = 0, moved: bool = False) -> Learner:
        """A fresh learner; `moved` where the policy will differ from the one that sampled."""
        return Learner(self.objective, length=world.length, seed=seed, ratio=None if moved else RatioCheck())

    def heat(self, learner: Learner, logits: Tensor) -> Tensor:
        """[S, 1] temperature at which the method has the next batch sampled: 1 but for those that adapt it."""
        rule = self.objective.temperature
        entropy = facts.entropy(logits.log_softmax(-1))
        heat = torch.ones_like(entropy) if rule is None else rule(entropy, 1.0, learner.memory[rule])
        return heat[:, None]

    def begin(
        self, learner: Learner, world: World, walked: Walk, logits: Tensor, sampler: Tensor | None = None
    ) -> Step:
        """Phase one of a rollout batch that the policy with these logits [S, V] sampled.

        Args:
            sampler: [S, V] logits of who sampled, where it was another.
        """
        facts = rollouts(world, walked, logits, self.objective.needs, sampler)
        facts = self.completed(world, walked, logits if sampler is None else sampler, facts)
        return learner.begin(facts, credit=self.credit(world, walked, logits))

    def completed(self, world: World, walked: Walk, sampler: Tensor, facts: Rollouts) -> Rollouts:
        """The facts, with what comes of the continuations that the method has drawn by these logits [S, V]."""
        plan = self.objective.continuations
        return facts if plan is None else continued(world, walked, sampler, facts, plan).facts

    def credit(self, world: World, walked: Walk, logits: Tensor) -> Tensor | None:
        """[N, T] what takes the place of the method's own credit."""
        return truth(world, logits).advantage[walked.states, walked.tokens] if self.exact else None


def direction(learner: Learner, update: Update, walked: Walk, logits: Tensor) -> Tensor:
    """[S, V] the direction of an update, −∂loss/∂logits, at the policy with these logits.

    Args:
        walked: the rollout batch of the step.
    """
    rows, logits = walked.rows(update.rows), logits.detach().requires_grad_()
    policy = view(logits, rows, update.objective.needs)
    if update.observes:
        update.observe(policy)
    loss = update.evaluate(policy)[1].value
    learner.check(update)
    if not loss.requires_grad:
        return torch.zeros_like(logits)
    return -torch.autograd.grad(loss, logits)[0]


def push(learner: Learner, step: Step, walked: Walk, logits: Tensor) -> Tensor:
    """[S, V] the sum of the directions of all passes over a batch, all of them at these logits."""
    return sum((direction(learner, update, walked, logits) for update in step.updates()), torch.zeros_like(logits))


class Continued(NamedTuple):
    """Facts with `gain`, and the number of tokens that were sampled for it."""

    facts: Rollouts
    tokens: int


def continued(world: World, walked: Walk, logits: Tensor, facts: Rollouts, plan: Continuations) -> Continued:
    """Draws the continuations of a plan under the policy with these logits [S, V].

    As in an engine, responses of a group that share a prefix share what is drawn from its end. The draws are keyed by
    the responses, so that the same ones are always continued alike.
    """
    cuts, value = plan.at(facts), torch.zeros_like(facts.old_logprob)
    if not cuts.any():
        return Continued(dataclasses.replace(facts, gain=plan.gain(facts, cuts, value)), 0)
    prefix, place = torch.unique(_prefixes(walked)[cuts], return_inverse=True)
    at = torch.empty_like(prefix).scatter_(0, place, walked.states[cuts]).repeat_interleave(plan.count)
    key = hashlib.sha256(walked.tokens.numpy().tobytes()).hexdigest()
    draws = keyed_generator(0, f"exact/continuations/{world.name}/{key}")
    drawn = onward(world, logits, at, torch.arange(len(prefix)).repeat_interleave(plan.count), draws, even=False)
    mean = drawn.reward.view(-1, plan.count).mean(1)
    value[cuts] = mean[place]
    return Continued(dataclasses.replace(facts, gain=plan.gain(facts, cuts, value)), int(drawn.mask.sum()))


def _prefixes(walked: Walk) -> Tensor:
    """[N, T] a number for what a response of the group has said before the token, another for anything else."""
    node, found, known = walked.group - walked.group.min(), [], 0
    for tokens in walked.tokens.T:
        node = torch.unique(node, return_inverse=True)[1]
        found.append(node + known)
        known += int(node.max()) + 1
        node = node * (int(walked.tokens.max()) + 1) + tokens
    return torch.stack(found, 1)
