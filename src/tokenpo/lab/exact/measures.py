"""Measures of a method's update at a fixed policy. g is the update's direction, −∂loss/∂logits, as one vector.

E is the expectation over rollout batches of the setting's size; a population of `POPULATION` batches approximates it.
With a network, g and the true gradients are those to its parameters.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from ...core.types import OPTIONAL, Rollouts
from ..estimate import Estimate, combined, jackknife
from .contestant import Contestant, push
from .model import Table, drifted, policy
from .sampling import Walk, rollouts, walk
from .setting import USUAL, Setting
from .truth import deciding, slopes

POPULATION, REPLICATES = 16, 8  # batches of a population; number of populations


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of a method at one policy. R replicates (populations), K batches of each, D parameters.

    Args:
        whole: [R, D], of each population as one batch.
        single: [R, K, D], of each batch of a population.
        slopes: the true gradients [D] of J, entropy and length, by name.
        share: [R, K] share of |g|² on states whose token matters.
    """

    whole: Tensor
    single: Tensor
    slopes: dict[str, Tensor]
    share: Tensor


def cosine(of: Directions) -> Estimate:
    """cos(E g, ∇J), E over large batches; 1 if the method follows the gradient of the mean reward."""
    return jackknife(
        lambda g: float((_along(g.mean(0), of.slopes["J"]) / root(squared_mean(g))).clamp(-1, 1)), of.whole
    )


def useful(of: Directions) -> Estimate:
    """E⟨g, ∇J⟩ / (sqrt(E|g|²) |∇J|): progress of a small batch's step per root mean square step; at most 1."""
    return jackknife(
        lambda single: float(_along(single, of.slopes["J"]).mean() / root(sum(_moments(single)))), of.single
    )


def single_cosine(of: Directions) -> Estimate:
    """E cos(g, ∇J) over small batches, independent of the steps' lengths; a batch with g = 0 counts as 0."""
    return jackknife(lambda single: float(_along(unit(single), of.slopes["J"]).mean()), of.single)


def snr(of: Directions) -> Estimate:
    """|E g|² / E|g − E g|² of a small batch: the signal's power over the noise's."""

    def estimate(single: Tensor) -> float:
        signal, noise = _moments(single)
        return float(signal / noise) if noise > 0 else 0.0

    return jackknife(estimate, of.single)


def slope(of: Directions, name: str) -> Estimate:
    """E⟨g/|g|, ∇X⟩: first-order change of entropy (nats per token) or mean length (tokens) in a step of length 1."""
    return jackknife(lambda single: float((unit(single) @ of.slopes[name]).mean()), of.single)


def deciding_share(of: Directions) -> Estimate:
    """Mean share of |g|², g in the logits, on states whose token changes the expected reward."""
    return jackknife(lambda share: float(share.mean()), of.share)


MEASURES = {
    "cosine": cosine, "useful": useful, "single": single_cosine, "snr": snr, "deciding": deciding_share,
    "entropy": functools.partial(slope, name="entropy"), "length": functools.partial(slope, name="length"),
}  # fmt: skip


def captured(method: Estimate, dapo: Estimate, perfect: Estimate) -> Estimate:
    """(useful − useful of DAPO) / (useful of perfect credit − useful of DAPO): the share of the possible gain."""
    return combined(lambda x, low, high: (x - low) / (high - low) if high > low else 0.0, method, dapo, perfect)


def observe(contestant: Contestant, model: Table, name: str, setting: Setting = USUAL) -> Directions:
    """The method's directions at one of `POLICIES`, on the same rollouts as every other method."""
    world, at = model.world, policy(model, name)
    logits, chosen = model.logits(at), deciding(world)
    sampler, whole, single, share = setting.sampled_by(logits), [], [], []

    def pushed(walked: Walk, facts: Rollouts) -> Tensor:
        learner = contestant.learner(world)
        return push(learner, contestant.begin(learner, world, walked, logits, sampler, facts), walked, logits)

    for replicate in range(REPLICATES):
        population, facts = _population(model, name, setting, replicate), _facts(model, name, setting, replicate)
        whole.append(model.back(at, pushed(population, facts)).flatten())
        for piece in torch.arange(len(population.group)).split(setting.group * setting.batch):
            g = pushed(population.rows(piece), facts.rows(piece))
            single.append(model.back(at, g).flatten())
            share.append((unit(g.flatten()).view_as(g)[chosen] ** 2).sum())
    return Directions(
        torch.stack(whole), torch.stack(single).unflatten(0, (REPLICATES, -1)), _slopes(model, at),
        torch.stack(share).unflatten(0, (REPLICATES, -1)),
    )  # fmt: skip


def drift(contestant: Contestant, model: Table, of: Directions, way: str, setting: Setting = USUAL) -> Estimate:
    """⟨E g(θ'), ∇J(θ')⟩ / (sqrt(E|g(θ)|²) |∇J(θ')|): `useful` after the policy has moved to θ', per on-policy step.

    About the on-policy `useful` if no token is clipped, 0 if all are.

    Args:
        of: the result of `observe` at the initial policy θ, which sampled.
        way: one of `DRIFTS`.
    """
    world, at = model.world, policy(model, "init")
    to, logits, moved = drifted(model, way), model.logits(at), []
    for replicate in range(REPLICATES):
        population, facts = _population(model, "init", setting, replicate), _facts(model, "init", setting, replicate)
        learner = contestant.learner(world, moved=True)
        step = contestant.begin(learner, world, population, logits, setting.sampled_by(logits), facts)
        moved.append(model.back(to, push(learner, step, population, model.logits(to))).flatten())
    J = _slopes(model, to)["J"]
    return jackknife(
        lambda at, to: float(_along(to.mean(0), J) / root(sum(_moments(at)))), of.single, torch.stack(moved)
    )


# Results that all methods share are cached.


@functools.lru_cache(maxsize=512)
def _population(model: Table, name: str, setting: Setting, replicate: int) -> Walk:
    draws = keyed_generator(replicate, f"exact/{model.world.name}/{name}")
    sampler = setting.sampled_by(model.logits(policy(model, name)))
    return walk(model.world, sampler, setting.batch * POPULATION, setting.group, draws, even=True)


@functools.lru_cache(maxsize=512)
def _facts(model: Table, name: str, setting: Setting, replicate: int) -> Rollouts:
    """Every input that a method may need; an objective reads only those that it declares."""
    logits = model.logits(policy(model, name))
    population = _population(model, name, setting, replicate)
    return rollouts(model.world, population, logits, OPTIONAL, setting.sampled_by(logits))


@functools.lru_cache(maxsize=512)
def _slopes(model: Table, at: Tensor) -> dict[str, Tensor]:
    """The true gradients [D] to the parameters, by name."""
    return {name: model.back(at, x).flatten() for name, x in slopes(model.world, model.logits(at)).items()}


def _along(g: Tensor, way: Tensor) -> Tensor:
    """[...] component of g [..., D] along a direction [D]."""
    return g @ (way / way.norm())


def unit(g: Tensor) -> Tensor:
    size = g.norm(dim=-1, keepdim=True)
    return torch.where(size > 0, g / size.clamp(min=1e-300), 0.0)


def squared_mean(g: Tensor) -> Tensor:
    """Unbiased estimate of |E g|² from replicates [R, D], by products of different replicates."""
    count = len(g)
    return (g.sum(0).square().sum() - g.square().sum()) / (count * (count - 1))


def _moments(single: Tensor) -> tuple[Tensor, Tensor]:
    """(|E g|², E|g − E g|²) from populations [R, K, D], each divided into K batches.

    A population's mean is close to the expectation, so its batches deviate from that mean with (K − 1)/K of the
    variance.
    """
    mean, count = single.mean(1), single.shape[1]
    noise = (single - mean[:, None]).square().sum(-1).mean() * count / (count - 1)
    return mean.mean(0).square().sum(), noise


def root(square: Tensor | float) -> float:
    """The square root; infinite for 0, so that a method whose g is 0 has no progress."""
    return float(square) ** 0.5 if square > 1e-30 else float("inf")
