"""The part that a loss or a gradient which is not finite comes from."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from own_part import gives
from tokenpo import Batch, Objective, Policy, Rollouts, Totals
from tokenpo.core.culprit import broken
from tokenpo.core.parts import SignalWeight, Unclipped
from tokenpo.core.parts.part import Aggregate, CreditStage, Penalty, Shaping, Signal, SurrogateStage, Weight

GRPO = tokenpo.method("grpo")
MASK = torch.tensor([[True, True, True], [True, True, False]])
AT = (1, 1)


def _batch(objective: Objective) -> tuple[Batch, Totals]:
    old = torch.full(MASK.shape, -0.5, dtype=torch.float64)
    rollouts = Rollouts(MASK, torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), old)
    batch = Batch(rollouts, objective.prepare(rollouts), Policy(old.clone().requires_grad_()))
    return batch, Totals.of(rollouts)


def _bad(value: float = torch.nan, at: tuple[int, int] = AT) -> Tensor:
    """Ones [N, T] but for one entry."""
    x = torch.ones(MASK.shape, dtype=torch.float64)
    x[at] = value
    return x


TRUST = Unclipped()(_batch(GRPO)[0])


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"shaping": (gives(Shaping, torch.tensor([0.0, torch.nan])),)}, "shaping Mine() is nan on token 0"),
        ({"credit": gives(CreditStage, _bad())}, "credit Mine() is nan on token 1"),
        ({"weights": (SignalWeight(gives(Signal, _bad())),)}, "signal Mine() is nan on token 1"),
        ({"surrogate": gives(SurrogateStage, dataclasses.replace(TRUST, value=_bad()))}, "surrogate Mine() is nan on"),
        (
            {"surrogate": gives(SurrogateStage, dataclasses.replace(TRUST, ratio=_bad(torch.inf)))},
            "ratio of surrogate Mine() is inf on token 1",
        ),
        ({"weights": (gives(Weight, _bad(1.0)), gives(Weight, _bad(torch.inf)))}, "weight Mine() is inf on token 1"),
        ({"penalties": (gives(Penalty, _bad(-torch.inf)),)}, "penalty Mine() is -inf on token 1"),
        ({"aggregate": gives(Aggregate, torch.tensor([[1.0], [torch.nan]]))}, "aggregate Mine() is nan on token 0"),
        ({"aggregate": gives(Aggregate, float("nan"))}, "aggregate Mine() is nan on token 0 of rollout 0"),
        # Where the mask is false it is multiplied by 0.
        ({"weights": (gives(Weight, _bad(torch.inf, (1, 2))),)}, "weight Mine() is inf behind the end of rollout 1"),
    ],
)
def test_the_first_part_is_named(slots: dict, words: str) -> None:
    objective = dataclasses.replace(GRPO, **slots)
    batch, totals = _batch(objective)
    found = broken(objective, batch, totals)
    assert found is not None
    assert str(found).startswith(words)
    assert str(found).endswith(f"of rollout {found.row}")


@dataclass(frozen=True)
class Root(Penalty):
    """sqrt(r − 1), which is 0 with an infinite slope where the policy has not moved; r and its graph are another's."""

    def __call__(self, batch: Batch, trust: Any) -> Tensor:
        moved = trust.ratio - 1
        return torch.where(moved > 0, moved.sqrt(), 0.0)


def test_a_gradient_is_that_of_a_part_whose_answer_is_finite() -> None:
    objective = dataclasses.replace(GRPO, penalties=(Root(),))
    batch, totals = _batch(objective)
    assert objective.loss(batch, totals).value.isfinite()
    found = str(broken(objective, batch, totals))
    assert found == "the gradient of penalty Root() is nan on token 0 of rollout 0"


def test_none_is_named_where_each_is_finite() -> None:
    """1e200 · 1e200 is an infinity, of two weights that are not."""
    huge = gives(Weight, torch.full(MASK.shape, 1e200, dtype=torch.float64))
    objective = dataclasses.replace(GRPO, weights=(huge, huge))
    batch, totals = _batch(objective)
    assert not objective.loss(batch, totals).value.isfinite()
    assert broken(objective, batch, totals) is None
