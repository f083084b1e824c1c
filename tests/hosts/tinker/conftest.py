"""A server that averages."""

import collections

import pytest

from tinker_support.server import Weights


@pytest.fixture
def averaging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that divides a step's gradient by its number of sequences, as SkyRL's jax backend does."""
    passed, stepped, counts = Weights.forward_backward, Weights.step, collections.Counter()

    def forward_backward(self: Weights, data, forward_only: bool, kind: str = "cross_entropy"):
        counts[id(self)] += 0 if forward_only else len(data)
        return passed(self, data, forward_only, kind)

    def step(self: Weights, params) -> None:
        count = counts.pop(id(self))
        for each in self.parameters:
            if each.grad is not None:
                each.grad /= count
        stepped(self, params)

    monkeypatch.setattr(Weights, "forward_backward", forward_backward)
    monkeypatch.setattr(Weights, "step", step)
