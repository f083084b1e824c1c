"""HA-DW by hand, and what is special about it."""

import json
import math

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, facts, outcome, ragged, run, score


def state_of(objective: tokenpo.Objective, past: list[float]) -> dict:
    """The memory after batches of these mean rewards, the oldest first."""
    state = objective.start()
    for mean in past:
        state = objective.after(state, facts(by_hand([[1.0], [1.0]], [mean, mean])))
    return dict(state)


@pytest.mark.parametrize("past", [[], [0.3], [0.9, 0.1, 0.4, 0.35]])
@pytest.mark.parametrize("options", [{}, {"scale": 1.0, "history": 2}, {"anchor": "current", "scale": 1.5, "low": 0.1}])
@pytest.mark.parametrize("binary", [True, False])
def test_is_its_oracle(past: list[float], options: dict, binary: bool) -> None:
    sample, objective = ragged(0, binary=binary), tokenpo.method("ha_dw", **options)
    close(run(objective, sample, state=state_of(objective, past)), score("ha_dw", sample, past=past, **options))


def test_by_hand() -> None:
    """One right of four, C = 0.5: p̂ - C = -1/4, so right answers weigh e^(1/4) and wrong ones e^(-1/4).

    A = 0.75 / (1/2 + 1e-6) and -0.25 / (1/2 + 1e-6), as the deviation of 1, 0, 0, 0 is 1/2.
    """
    sample = by_hand([[1.0]] * 4, [1, 0, 0, 0])
    objective = tokenpo.method("ha_dw", scale=1.0)
    got = run(objective, sample, state=state_of(objective, [0.5]))
    a = 1 / (0.5 + 1e-6)
    expected = -np.array([[0.75 * math.exp(0.25)], *[[-0.25 * math.exp(-0.25)]] * 3]) * a / 4
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-12)


def test_it_remembers_the_newest_batches() -> None:
    objective = tokenpo.method("ha_dw", history=3)
    (numbers,) = state_of(objective, [0.1, 0.2, 0.3, 0.4]).values()
    assert numbers == pytest.approx({"1": 0.4, "2": 0.3, "3": 0.2}, rel=1e-14)


def test_the_oldest_batch_is_forgotten_however_its_numbers_were_stored() -> None:
    """A trainer's JSON may sort "10" before "2"."""
    objective = tokenpo.method("ha_dw", history=10)
    state = state_of(objective, [i / 20 for i in range(1, 12)])
    ((memory, numbers),) = state.items()
    shuffled = {memory: json.loads(json.dumps(numbers, sort_keys=True))}
    assert list(shuffled[memory])[:2] == ["1", "10"]
    sample = facts(by_hand([[1.0], [1.0]], [1, 0]))
    (after,) = objective.after(shuffled, sample).values()
    assert after == {"1": 0.5, **{str(age): numbers[str(age - 1)] for age in range(2, 11)}}


def test_rewards_on_another_scale_stay_finite() -> None:
    """exp(1e6) would be infinite: the exponent stops at ±20."""
    rollouts = facts(by_hand([[1.0], [1.0], [1.0], [1.0]], [3e6, 1e6, 0, 0], [0, 0, 1, 1]))
    objective = tokenpo.method("ha_dw")
    batch = tokenpo.Batch(rollouts, objective.prepare(rollouts), tokenpo.Policy(rollouts.old_logprob))
    weight = objective.loss(batch, tokenpo.Totals.of(rollouts)).terms["weight"].flatten().tolist()
    assert weight[:2] == pytest.approx([1.3 * math.exp(-20), 1.3 * math.exp(20)], rel=1e-12)


def test_a_row_without_tokens_is_in_no_mean() -> None:
    objective = tokenpo.method("ha_dw")
    sample = by_hand([[1.0], [1.0], []], [1, 0, 1])
    (numbers,) = objective.after(objective.start(), facts(sample)).values()
    assert numbers == {"1": 0.5}


def test_a_prompt_as_hard_as_usual_is_grpo() -> None:
    """Every group at p̂ = 1/2 and C = 1/2, scale 1."""
    sample = by_hand([[1.1, 0.9], [1.3], [0.7], [1.0]], [1, 0, 0, 1], [0, 0, 1, 1])
    objective = tokenpo.method("ha_dw", scale=1.0)
    ours = run(objective, sample, state=state_of(objective, [0.5]))
    close(ours, outcome("grpo", sample), rtol=1e-13)
