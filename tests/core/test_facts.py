"""A declaration reaches every reader, of the inputs that there are and of the one that CONTRIBUTING adds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import tokenpo
from tokenpo.core import types
from tokenpo.core.facts import collision, entropy, entropy_drift, facts_of
from tokenpo.core.trial import example
from tokenpo.core.types import FACTS, OPTIONAL, Fields, Policy, Rollouts
from tokenpo.runs.rollouts.response import KNOWN

ADDED = re.search(r"```diff\n(.*?)```", (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_input_is_drawn_checked_recorded_and_explained(name: str) -> None:
    """`example` makes values that are accepted, and so is its neutral value where that is a number."""
    inputs, fact = example(), FACTS[name]
    owner = Rollouts if name in inputs.rollouts else Policy
    assert f"{name}: {fact.described}" in (owner.__doc__ or "") and not fact.meaning.endswith(".")
    assert name in KNOWN
    given = {**inputs.rollouts, **inputs.policy}
    assert owner.of(given, {name}).need(name).shape == given[name].shape
    assert owner.of(given, ()).only({name}) and getattr(owner.of(given, ()), name) is None
    if isinstance(fact.neutral, float) and fact.shape == "[N, T]":
        neutral = torch.full_like(given["old_logprob"], fact.neutral)
        owner.of({**given, name: neutral.long() if fact.kind.whole else neutral}, {name})


def test_the_input_that_contributing_adds() -> None:
    """Its declaration is read as those of `Rollouts`: the likeliest of 1/2, 3/8 and 1/8 has 1/2."""
    assert ADDED is not None
    lines = [line[1:] for line in ADDED[1].splitlines() if line.startswith("+    ")]
    space = {**vars(types), "dataclass": dataclasses.dataclass}
    exec("@dataclass(frozen=True, eq=False)\nclass More(Fields):\n" + "\n".join(lines), space)
    more = space["More"]
    assert issubclass(more, Fields)
    (name,) = facts_of(more)
    assert name not in FACTS, "it has become a real one: show another"
    formula = facts_of(more)[name].formula
    assert formula is not None
    assert float(formula(torch.tensor([0.5, 0.375, 0.125]).log())) == pytest.approx(0.5)


def test_formulas_by_hand() -> None:
    """Of 1/2, 1/4, 1/4: H = 3/2 bits, Σ p² = 3/8, Σ p² (log p + H) = 1/4 · 1/2 bit − 2 · 1/16 · 1/2 bit = 1/16 bit."""
    logp, bit = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log(), torch.tensor(2.0).log().double()
    assert float(entropy(logp) / bit) == pytest.approx(1.5, rel=1e-6)
    assert float(collision(logp)) == pytest.approx(0.375)
    assert float(entropy_drift(logp) / bit) == pytest.approx(1 / 16, rel=1e-6)


def test_an_absent_input_is_named_with_its_shape() -> None:
    rollouts = example().values()[0].only(())
    with pytest.raises(tokenpo.TokenPOError, match=r"give Rollouts\(prompt_logprob=...\) with shape \[N\]"):
        rollouts.need("prompt_logprob")
