"""Every response of a small world, one by one: what the exact values are tested against."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tokenpo.lab.exact.worlds import World


@dataclass(frozen=True, eq=False)
class Responses:
    """All M responses.

    Args:
        states, tokens: [M, T] int; where the mask is false, 0.
        mask: [M, T] bool.
        reward: [M].
        prompt: [M] int.
    """

    states: Tensor
    tokens: Tensor
    mask: Tensor
    reward: Tensor
    prompt: Tensor


def enumerated(world: World) -> Responses:
    """Every response to every prompt."""
    found: list[tuple[int, list[tuple[int, int]], float]] = []

    def follow(prompt: int, path: list[tuple[int, int]], state: int, earned: float) -> None:
        for token, (target, reward) in enumerate(
            zip(world.next[state].tolist(), world.reward[state].tolist(), strict=True)
        ):
            way = [*path, (state, token)]
            if target < 0:
                found.append((prompt, way, earned + reward))
            else:
                follow(prompt, way, target, earned + reward)

    for prompt, start in enumerate(world.starts.tolist()):
        follow(prompt, [], start, 0.0)
    padded = torch.zeros(len(found), world.length, 2, dtype=torch.long)
    for row, (_, way, _) in enumerate(found):
        padded[row, : len(way)] = torch.tensor(way)
    lengths = torch.tensor([len(way) for _, way, _ in found])
    mask = torch.arange(world.length) < lengths[:, None]
    prompt = torch.tensor([row[0] for row in found])
    reward = torch.tensor([row[2] for row in found], dtype=torch.float64)
    return Responses(padded[..., 0], padded[..., 1], mask, reward, prompt)
