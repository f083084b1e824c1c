"""The loop of docs/own_loop.md, run: it learns, and a run that was saved and resumed goes on to the same bytes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenpo
from tokenpo.core.head.token_stats import stats_from_logits

PAGES = Path(__file__).parents[1] / "docs"
PAGE = (PAGES / "own_loop.md").read_text(encoding="utf-8")
N, T, V, GROUP = 32, 6, 10, 8


@pytest.fixture
def train() -> Callable[..., dict[str, Any]]:
    (code,) = re.findall(r"```python\n(def train\(.*?)```", PAGE, re.DOTALL)
    assert len(code.splitlines()) <= 15
    names: dict[str, Any] = {"torch": torch, "tokenpo": tokenpo}
    exec(code, names)
    return names["train"]


class World:
    """A policy that is a table of logits; token 0 ends a response, which is right when it holds a 3."""

    def __init__(self) -> None:
        self.logits = torch.zeros(T, V, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.logits], lr=5.0)
        self.generator = torch.Generator().manual_seed(0)
        self.rewards: list[float] = []

    def sample(self) -> tokenpo.Rollouts:
        with torch.no_grad():
            ids = torch.multinomial(self.logits.softmax(-1), N, replacement=True, generator=self.generator).T
            self.ids, self.mask = ids, ((ids == 0).cumsum(1) - (ids == 0).long()) == 0
            old = self.policy(torch.arange(N))
        reward = ((ids == 3) & self.mask).any(1).float()
        self.rewards.append(float(reward.mean()))
        group = torch.arange(N) // GROUP
        facts = {"old_logprob": old.logprob, "old_entropy": old.entropy, "ref_logprob": old.logprob}
        return tokenpo.Rollouts(mask=self.mask, reward=reward, group=group, **facts)

    def policy(self, rows: torch.Tensor) -> tokenpo.Policy:
        flat = self.logits.expand(len(rows), T, V).reshape(-1, V)
        stats = stats_from_logits(flat, self.ids[rows].reshape(-1), 1.0)
        return tokenpo.Policy(stats.logprob.view(len(rows), T), stats.entropy.view(len(rows), T))


# Plain, with a memory, with a look at the whole update that draws tokens, with two passes.
@pytest.mark.parametrize("name", ["tepo", "ha_dw", "clip_cov", "lopti"])
def test_it_learns_and_resumes(train: Callable[..., dict[str, Any]], name: str) -> None:
    objective = tokenpo.method(name)
    whole = World()
    train(objective, whole.sample, whole.policy, whole.optimizer, 20)
    assert sum(whole.rewards[-5:]) > sum(whole.rewards[:5]) + 1
    halves = World()
    saved = train(objective, halves.sample, halves.policy, halves.optimizer, 10)
    train(objective, halves.sample, halves.policy, halves.optimizer, 10, json.loads(json.dumps(saved)))
    assert torch.equal(halves.logits, whole.logits)
    forgetful = World()
    for _ in range(2):
        train(objective, forgetful.sample, forgetful.policy, forgetful.optimizer, 10)
    assert not torch.equal(forgetful.logits, whole.logits)


@pytest.mark.parametrize("sizes", [[3], [1, 2]])
def test_demonstrations_have_their_own_denominator(sizes: list[int]) -> None:
    """The step of docs/any_method.md on a table of log-probabilities, however its rows are cut."""
    page = PAGES / "any_method.md"
    (code,) = re.findall(r"```python\n(def step\(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    world, shown = World(), torch.tensor([[-0.2, -1.0], [-3.0, -0.5], [-0.1, -0.7]], requires_grad=True)
    mask, mu = torch.tensor([[True, True], [True, False], [True, True]]), 0.25
    optimizer = torch.optim.SGD([world.logits, shown], lr=1.0)
    update = next(tokenpo.Learner(tokenpo.method("dapo"), length=T).begin(world.sample()).updates())
    (alone,) = torch.autograd.grad(update.evaluate(world.policy(update.rows), update.rows)[1].value, world.logits)
    before = world.logits.detach().clone(), shown.detach().clone()
    cuts = [(lambda x=x: x, part) for x, part in zip(shown.split(sizes), mask.split(sizes), strict=True)]
    names["step"](update, world.policy, cuts, optimizer, mu=mu)
    p = before[1].exp()
    torch.testing.assert_close(before[0] - world.logits.detach(), (1 - mu) * alone)
    torch.testing.assert_close(before[1] - shown.detach(), torch.where(mask, -mu * p * (1 - p) / 5, 0.0))
