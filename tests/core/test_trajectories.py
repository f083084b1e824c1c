"""Rows that are parts of one sampled trajectory count as one response."""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from method_kinds import of_each_kind
from own_part import made
from tokenpo.base.errors import TokenPOError
from tokenpo.core.culprit import broken
from tokenpo.core.learner import Learner
from tokenpo.core.ops.trajectory import Join
from tokenpo.core.parts import Weight
from tokenpo.core.trial import Inputs, close, fitting, same
from tokenpo.core.types import Batch, Credit, Policy, Rollouts, Totals

T, F = True, False


def sampled(lengths: list[int], reward: list[int], group: list[int], trajectory: list[int] | None) -> Rollouts:
    """Rows of these lengths, old log-probabilities -1."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = None if trajectory is None else torch.tensor(trajectory)
    old = torch.full(mask.shape, -1.0, dtype=torch.float64)
    return Rollouts(mask, torch.tensor(reward).double(), torch.tensor(group), old, trajectory=ids)


def pushes(objective: tokenpo.Objective, rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """(advantage, sum of the gradient) of each row where the policy has not moved."""
    credit, logprob = objective.prepare(rollouts), rollouts.old_logprob.clone().requires_grad_()
    loss = objective.loss(Batch(rollouts, credit, Policy(logprob)), Totals.of(rollouts))
    loss.value.backward()
    assert logprob.grad is not None
    return credit.advantage[:, 0], logprob.grad.sum(1)


def cut(inputs: Inputs, seed: int = 0) -> tuple[Inputs, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return inputs.cut(torch.rand(inputs.rollouts["mask"].shape, generator=draws) < 0.3)


def test_five_rows_push_as_one_does() -> None:
    """Rewards 1 1 0 0, ten tokens each; the last trajectory as five rows of two tokens. By hand."""
    grpo = tokenpo.method("grpo")
    advantage, push = pushes(grpo, sampled([10] * 4, [1, 1, 0, 0], [0] * 4, None))
    expected = torch.tensor([0.5, 0.5, -0.5, -0.5], dtype=torch.float64) * 3**0.5
    torch.testing.assert_close(advantage, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(push, -expected / 4, rtol=1e-5, atol=0)  # .866 / 4 = .217
    rows = [10, 10, 10] + [2] * 5, [1, 1, 0, 0, 0, 0, 0, 0], [0] * 8
    advantage, push = pushes(grpo, sampled(*rows, [0, 1, 2, 3, 3, 3, 3, 3]))
    expected = torch.cat([expected[:3], expected[3:].expand(5)])
    torch.testing.assert_close(advantage, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(push[:3], -expected[:3] / 4, rtol=1e-5, atol=0)
    torch.testing.assert_close(push[3:], -expected[3:] / 20, rtol=1e-5, atol=0)
    # As rows of their own, the fourth and fifth trajectory were pushed 1 : 5, and all advantages differed.
    advantage, push = pushes(grpo, sampled(*rows, None))
    torch.testing.assert_close(advantage[[0, 2]], torch.tensor([1.620, -0.540]).double(), rtol=1e-3, atol=0)
    torch.testing.assert_close(push[[0, 2, 3]], torch.tensor([-0.2025, 0.0675, 0.0675]).double(), rtol=1e-3, atol=0)


def test_denominators_count_trajectories() -> None:
    rollouts = sampled([3, 2, 4, 1], [1, 0, 1, 0], [0, 0, 0, 0], [7, 5, 7, 2])
    assert Totals.of(rollouts) == Totals(10, 3, 7)
    assert Totals.of(rollouts, 16) == Totals(10, 3, 16)


def test_joined_credits_keep_the_lengths_of_their_trajectories() -> None:
    one, other = (Credit(torch.ones(2, 3), length=torch.tensor(lengths)) for lengths in ([7, 7], [4, 2]))
    joined = Credit.joined([one, other])
    assert joined.length is not None and joined.length.tolist() == [7, 7, 4, 2]
    assert Credit.joined([Credit(torch.ones(1, 3)), Credit(torch.ones(1, 3))]).length is None


def test_rows_are_joined_in_their_order_and_taken_apart() -> None:
    """A gap inside a row stays, padding behind its last token goes; a row without tokens adds none."""
    mask = torch.tensor([[T, F, T, F], [F, T, F, F], [T, T, T, T], [F, F, F, F], [T, F, F, F]])
    join = Join.by(torch.tensor([9, 4, 9, 4, 9]), mask)
    x = torch.arange(1.0, 21.0).view(5, 4)
    assert join.of.tolist() == [0, 1, 0, 1, 0]
    assert join.first.tolist() == [0, 1]
    assert join.tokens(x).tolist() == [[1, 2, 3, 9, 10, 11, 12, 17], [5, 6, 0, 0, 0, 0, 0, 0]]
    assert join.tokens(mask).tolist() == [[T, F, T, T, T, T, T, T], [F, T] + [F] * 6]
    assert torch.equal(join.apart(join.tokens(x))[mask], x[mask])
    assert not join.apart(join.tokens(x))[3].any()


@pytest.mark.parametrize("name", of_each_kind())
def test_trajectories_of_one_row_change_no_bit(name: str) -> None:
    objective = tokenpo.method(name)
    inputs = fitting(objective, 3)
    ids = (torch.arange(16) * 7919 + 13) % 101
    whole, alone = inputs.evaluate(objective), inputs.replace(trajectory=ids).evaluate(objective)
    assert torch.equal(alone.loss.value, whole.loss.value)
    assert torch.equal(alone.gradient, whole.gradient)
    assert all(torch.equal(x.nan_to_num(), alone.loss.terms[k].nan_to_num()) for k, x in whole.loss.terms.items())


def test_the_response_ratio_is_that_of_the_trajectory() -> None:
    """exp of the mean log-ratio over five tokens in two rows, by hand; a tool's token lies between."""
    gspo = tokenpo.method("gspo", low=0.9, high=9.0)
    mask = torch.tensor([[T, F, T], [T, T, T], [T, T, T]])
    old = torch.full(mask.shape, -1.0, dtype=torch.float64)
    rollouts = Rollouts(
        mask, torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0, 0, 0]), old, trajectory=torch.tensor([1, 1, 0])
    )
    moved = torch.tensor([[0.1, 9.0, 0.3], [0.2, 0.2, -0.3], [0.0, 0.0, 0.0]], dtype=torch.float64)
    batch = Batch(rollouts, gspo.prepare(rollouts), Policy(old + moved))
    terms = gspo.loss(batch, Totals.of(rollouts)).terms
    torch.testing.assert_close(terms["ratio"][:2][mask[:2]].log(), torch.full((5,), 0.1).double())
    assert terms["coefficient"].tolist() == [[0.1, 0, 0.1], [0.1] * 3, [1 / 6] * 3]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"group": [0, 0, 1, 1]}, "Rollouts.group differs in rows 1 and 3 of trajectory 8: give all rows of a"),
        ({"reward": [0.0, 0, 1, 1]}, "Rollouts.reward differs in rows 1 and 3 of trajectory 8"),
        ({"turn": [[0, 0], [0, 1], [0, 0], [0, 0]]}, "Joined trajectories: Rollouts.turn[1, 2] is 0, less than"),
        ({"trajectory": [0, 1, 2, -1]}, "Rollouts.trajectory[3] is -1"),
    ],
)
def test_rows_of_a_trajectory_must_agree(change: dict[str, Any], sentence: str) -> None:
    known = {"reward": [0.0, 0, 1, 0], "group": [0, 0, 1, 0], "trajectory": [3, 8, 5, 8]} | change
    known = {name: torch.tensor(x) for name, x in known.items()}
    with pytest.raises(TokenPOError, match=re.escape(sentence)):
        Rollouts.of({"mask": torch.ones(4, 2).bool(), "old_logprob": -torch.ones(4, 2), **known})


def test_a_part_of_a_trajectory() -> None:
    """A loss of one row alone is right where tokens are judged alone, and refused where whole responses are."""
    inputs, _ = cut(fitting(None, 5))
    rollouts, policy = inputs.without("version").values()
    for name in ("grpo", "dr_grpo", "dapo", "hapo", "kl_cov"):
        objective = tokenpo.method(name)
        pieces = inputs.evaluate(objective, [torch.tensor([i]) for i in reversed(range(len(rollouts)))])
        same(pieces, inputs.evaluate(objective))
    gspo = tokenpo.method("gspo")
    batch = Batch(rollouts, gspo.prepare(rollouts), policy.only(()))
    missing = "gspo: GeometricSequence reads whole trajectories, and a row of one is missing: give all rows"
    with pytest.raises(TokenPOError, match=missing):
        gspo.loss(batch.rows(slice(1)), Totals.of(rollouts))
    with pytest.raises(TokenPOError, match=missing):  # twice is not once
        gspo.loss(batch.rows(torch.arange(len(rollouts)).repeat(2)), Totals.of(rollouts))
    kl_cov = tokenpo.method("kl_cov")
    with pytest.raises(TokenPOError, match="kl_cov: a row of a trajectory is missing: observe the whole step"):
        kl_cov.observe(Batch(rollouts, kl_cov.prepare(rollouts), policy.only(kl_cov.needs)).rows(slice(1)))
    with pytest.raises(TokenPOError, match="give prepare\\(rollouts\\) of these rollouts"):
        gspo.loss(
            dataclasses.replace(batch, rollouts=dataclasses.replace(rollouts, trajectory=None)), Totals.of(rollouts)
        )


def steps(objective: tokenpo.Objective, inputs: Inputs, places: Tensor, by: Any) -> Iterator[tuple[Any, float, Tensor]]:
    """(number, loss, gradient at the flattened whole responses) of each update of two batches; last the state."""
    rollouts, policy = inputs.without("version").values()
    learner = Learner(objective, length=9, ratio=None)
    for _ in range(2):
        step = learner.begin(rollouts)
        for update in step.updates(epochs=2, minibatches=3, by=by):
            leaf = policy.logprob.nan_to_num().requires_grad_()
            update.observe(policy.rows(update.rows))
            value = 0.0
            for piece in update.pieces(5):
                whole = rollouts.trajectory is not None and len(rollouts.trajectory[piece].unique()) == 1
                assert len(piece) <= 5 or (whole and objective.of_response)
                _, loss = update.evaluate(dataclasses.replace(policy, logprob=leaf).rows(piece), piece)
                loss.value.backward()
                value += loss.value.item()
            learner.check(update)
            gradient = torch.zeros(16 * 9, dtype=torch.float64)
            if leaf.grad is not None:
                gradient[places[rollouts.mask]] = leaf.grad[rollouts.mask]
            yield update.number, value, gradient
        yield step.live(), step.metrics()["kl"], torch.zeros(())
    state = learner.state_dict()
    assert json.loads(json.dumps(state)) == state
    yield [x for memory in state["memory"] for x in memory.values()], 0.0, torch.zeros(())


@pytest.mark.parametrize("by", ["groups", "rows"])
@pytest.mark.parametrize("name", ["grpo", "gspo", "kl_cov", "hapo", "lopti", "ppo", "ha_dw"])
def test_a_learner_keeps_trajectories_whole(name: str, by: Any) -> None:
    """Minibatches and micro-batches of rows make the updates of whole responses, memories included."""
    objective = tokenpo.method(name)
    inputs = fitting(objective, 4)
    rows, places = cut(inputs)
    rows = rows.replace(trajectory=torch.unique(rows.rollouts["trajectory"], return_inverse=True)[1])
    whole = torch.arange(inputs.rollouts["mask"].numel()).view(inputs.rollouts["mask"].shape)
    # The ids in the order of the whole rows, so that both are dealt alike.
    of_row = places.amax(1) // whole.shape[1]
    number = torch.empty(16, dtype=torch.long)
    number[rows.rollouts["trajectory"][of_row >= 0]] = of_row[of_row >= 0]
    rows = rows.replace(trajectory=number[rows.rollouts["trajectory"]])
    for one, other in zip(steps(objective, inputs, whole, by), steps(objective, rows, places, by), strict=True):
        assert one[0] == pytest.approx(other[0])
        assert one[1] == pytest.approx(other[1], rel=1e-10, abs=1e-13)
        close(other[2], one[2])


def test_a_row_without_advantage_lives_with_its_trajectory() -> None:
    """Where one token has an advantage, GSPO's ratio gives all of its trajectory a gradient."""
    rollouts = sampled([2, 2, 2, 2], [1, 1, 0, 0], [0] * 4, [0, 0, 1, 2])
    credit = torch.zeros(4, 2, dtype=torch.float64)
    credit[0, 1], credit[3] = 1.0, -1.0
    update = next(Learner(tokenpo.method("gspo"), length=4).begin(rollouts, credit=credit).updates())
    assert update.live().tolist() == [0, 1, 3]
    assert [piece.tolist() for piece in update.pieces(1)] == [[0, 1], [3]]
    leaf = rollouts.old_logprob.clone().requires_grad_()
    for piece in update.pieces(1):
        update.evaluate(Policy(leaf[piece]), piece)[1].value.backward()
    # J = 1/3 (1/4 · s_0 − s_3), with ds_i / dlp = 1/4 for each of four tokens, 1/2 for each of two.
    expected = torch.tensor([-1 / 48, -1 / 48, 0, 1 / 6], dtype=torch.float64)[:, None].expand(4, 2)
    assert leaf.grad is not None
    close(leaf.grad, expected)


def test_an_update_takes_whole_trajectories() -> None:
    rollouts = cut(fitting(None, 4).without("version"))[0].values()[0]
    step = Learner(tokenpo.method("grpo"), length=9).begin(rollouts)
    for rows in (torch.arange(3), torch.arange(len(rollouts)).repeat(2)):
        with pytest.raises(TokenPOError, match="an update takes whole trajectories: give all rows of each"):
            step.update(rows)


def test_a_bad_number_is_named_by_its_row() -> None:
    objective = dataclasses.replace(tokenpo.method("grpo"), weights=(made(Weight, _bad_at_four),))
    rollouts = sampled([3, 2, 3], [1, 0, 1], [0, 0, 0], [5, 6, 5])
    batch = Batch(rollouts, objective.prepare(rollouts), Policy(rollouts.old_logprob.clone().requires_grad_()))
    assert str(broken(objective, batch, Totals.of(rollouts))) == "weight Mine() is nan on token 1 of rollout 2"


def _bad_at_four(self: Any, batch: Batch, trust: Any) -> Tensor:
    weight = torch.ones_like(trust.ratio)
    weight[0, 4] = torch.nan
    return weight
