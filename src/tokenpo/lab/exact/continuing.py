"""Continuations from the middle of responses: what `Rollouts.gain` is made of, and what it costs in sampled tokens."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.parts import Continuations
from ...core.seeds import keyed_generator
from ...core.types import Rollouts
from .sampling import Walk, onward
from .world import World


class Continued(NamedTuple):
    """Facts with `gain`, and the number of tokens that were sampled for it."""

    facts: Rollouts
    tokens: int


def continued(world: World, walked: Walk, logits: Tensor, facts: Rollouts, plan: Continuations) -> Continued:
    """Draws the continuations of a plan under the policy with these logits [S, V].

    As in an engine, responses of a group that share a prefix share what is drawn from its end. The draws are keyed by
    the responses, so that the same ones are always continued alike.
    """
    cuts = plan.at(facts)
    if not cuts.any():
        return Continued(
            dataclasses.replace(facts, gain=plan.gain(facts, cuts, torch.zeros_like(facts.old_logprob))), 0
        )
    prefix, place = torch.unique(_prefixes(walked)[cuts], return_inverse=True)
    at = torch.empty_like(prefix).scatter_(0, place, walked.states[cuts]).repeat_interleave(plan.count)
    key = hashlib.sha256(walked.tokens.numpy().tobytes()).hexdigest()
    draws = keyed_generator(0, f"exact/continuations/{world.name}/{key}")
    drawn = onward(world, logits, at, torch.arange(len(prefix)).repeat_interleave(plan.count), draws, even=False)
    mean = drawn.reward.view(-1, plan.count).mean(1)
    value = torch.zeros_like(facts.old_logprob)
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
