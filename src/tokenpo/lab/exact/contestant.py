"""A method in a world, used as every host uses it: through a `Learner`, its steps and their updates."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...base.errors import Unsupported
from ...core.facts import entropy
from ...core.learner import Learner, Step
from ...core.objective import Objective
from ...core.parts import Continuations
from ...core.ratio_check import RatioCheck
from ...core.seeds import keyed_generator
from ...core.types import Rollouts
from ...core.update import Update
from .sampling import Walk, onward, rollouts, view
from .truth import truth
from .world import World


@dataclass(frozen=True, eq=False)
class Contestant:
    """A method in a study; with `exact`, its credit is replaced by Q − V of every token, which is perfect credit."""

    label: str
    objective: Objective
    exact: bool = False

    def learner(self, world: World, seed: int = 0, moved: bool = False) -> Learner:
        """A new learner; without ratio check if `moved`: the policy will differ from the one that sampled."""
        return Learner(self.objective, length=world.length, seed=seed, ratio=None if moved else RatioCheck())

    def heat(self, learner: Learner, logits: Tensor) -> Tensor:
        """[S, 1] temperature at which the method samples the next batch; 1 unless it adapts the temperature."""
        rule, nats = self.objective.temperature, entropy(logits.log_softmax(-1))
        return (torch.ones_like(nats) if rule is None else rule(nats, 1.0, learner.memory[rule]))[:, None]

    def begin(
        self, learner: Learner, world: World, walked: Walk, logits: Tensor, sampler: Tensor | None = None,
        facts: Rollouts | None = None,
    ) -> Step:  # fmt: skip
        """Phase one of a rollout batch under the policy with these logits [S, V].

        Args:
            sampler: [S, V] logits of the policy that sampled; None if it is the same.
            facts: the inputs without continuations, if they are known already.
        """
        if facts is None:
            facts = rollouts(world, walked, logits, self.objective.needs, sampler)
        if self.objective.coalitions is not None or self.objective.drafts is not None:
            raise Unsupported(
                f"{self.objective.name} has parts of a response scored or drafts in its prompts, and a world has "
                "neither: leave it out"
            )
        if self.objective.continuations is not None:
            source = logits if sampler is None else sampler
            facts = continued(world, walked, source, facts, self.objective.continuations).facts
        return learner.begin(facts, credit=walked.taken(truth(world, logits).advantage) if self.exact else None)


def direction(learner: Learner, update: Update, walked: Walk, logits: Tensor) -> Tensor:
    """[S, V] direction −∂loss/∂logits of one update on a rollout batch, at the policy with these logits."""
    rows, logits = walked.rows(update.rows), logits.detach().requires_grad_()
    policy = view(logits, rows, update.objective.needs)
    if update.observes:
        update.observe(policy)
    loss = update.evaluate(policy)[1].value
    learner.check(update)
    return -torch.autograd.grad(loss, logits)[0] if loss.requires_grad else torch.zeros_like(logits)


def push(learner: Learner, step: Step, walked: Walk, logits: Tensor) -> Tensor:
    """[S, V] sum of the directions of all passes over a batch, all at these logits."""
    return sum((direction(learner, update, walked, logits) for update in step.updates()), torch.zeros_like(logits))


class Continued(NamedTuple):
    """Inputs with `gain`, and the number of tokens that were sampled for it."""

    facts: Rollouts
    tokens: int


def continued(world: World, walked: Walk, logits: Tensor, facts: Rollouts, plan: Continuations) -> Continued:
    """Samples the continuations of a plan from the policy with these logits [S, V].

    As in an engine, responses of a group with the same prefix share its continuations. The random numbers are keyed by
    the responses, so that the same responses always get the same continuations.
    """
    cuts, value, tokens = plan.at(facts), torch.zeros_like(facts.old_logprob), 0
    if cuts.any():
        prefix, place = torch.unique(_prefixes(walked)[cuts], return_inverse=True)
        at = torch.empty_like(prefix).scatter_(0, place, walked.states[cuts]).repeat_interleave(plan.count)
        key = hashlib.sha256(walked.tokens.numpy().tobytes()).hexdigest()
        draws = keyed_generator(0, f"exact/continuations/{world.name}/{key}")
        drawn = onward(world, logits, at, torch.arange(len(prefix)).repeat_interleave(plan.count), draws, even=False)
        earned = torch.where(walked.mask, world.reward[walked.states, walked.tokens], 0.0)
        before = (earned.cumsum(1) - earned)[cuts]
        value[cuts], tokens = drawn.reward.view(-1, plan.count).mean(1)[place] + before, int(drawn.mask.sum())
    return Continued(dataclasses.replace(facts, gain=plan.gain(facts, cuts, value)), tokens)


def _prefixes(walked: Walk) -> Tensor:
    """[N, T] int, the number of the prefix before each token; equal for equal prefixes of one group."""
    node, columns, count = walked.group - walked.group.min(), [], 0
    for tokens in walked.tokens.T:
        node = torch.unique(node, return_inverse=True)[1]
        columns.append(node + count)
        count += int(node.max()) + 1
        node = node * (int(walked.tokens.max()) + 1) + tokens
    return torch.stack(columns, 1)
