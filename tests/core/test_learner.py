"""The learner carries an objective through a run as a straight-line loop over prepare, observe and loss would."""

import dataclasses
import json
import math
import pickle
import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import tokenpo
from oracle_support import ragged, tensors
from tokenpo.base.errors import NotFinite, TokenPOError, UnknownName, Unsupported
from tokenpo.core.learner import Learner, deal
from tokenpo.core.on_policy import RatioCheck
from tokenpo.core.parts import Weight
from tokenpo.core.parts.correction import Criterion, Rejection
from tokenpo.core.seeds import keyed_generator
from tokenpo.core.types import Batch, Credit, Policy, Rollouts, Totals

LENGTH = 12
# A memory, the look at the whole step, two passes, a penalty: what a learner carries.
METHODS = ["grpo", "ha_dw", "clip_cov", "lopti", "hapo", "kl_cov"]


def batch_of(seed: int, needs: frozenset[str] = frozenset()) -> tuple[Rollouts, Policy]:
    known = tensors(ragged(seed).alive())
    return Rollouts.of(known, needs), Policy.of(known, needs)


def loose(objective: Any) -> Learner:
    """A learner that lets the policy be another than the one that sampled."""
    objective = tokenpo.method(objective) if isinstance(objective, str) else objective
    return Learner(objective, length=LENGTH, ratio=None)


def leaf(policy: Policy) -> Policy:
    return dataclasses.replace(policy, logprob=policy.logprob.clone().requires_grad_())


def straight(objective: Any, batches: list[tuple[Rollouts, Policy]], seed: int, epochs: int, minibatches: int) -> list:
    """(loss, gradient at the log-probs) of each update, written out: no learner, no micro-batches."""
    state, number, found = objective.start(), 0, []
    for rollouts, policy in batches:
        credit = objective.prepare(rollouts, state)
        state = objective.after(state, rollouts)
        draws = keyed_generator(seed, "minibatches", number)
        plan = deal(rollouts.group, epochs, minibatches, "groups", draws)
        for part in objective.split():
            for rows in plan:
                seen = leaf(policy.rows(rows))
                batch = Batch(rollouts.rows(rows), credit.rows(rows), seen)
                batch = part.observe(batch, keyed_generator(seed, "observe", number))
                loss = part.loss(batch, Totals.of(batch.rollouts, LENGTH))
                loss.value.backward()
                found.append((float(loss.value), seen.logprob.grad))
                number += 1
    return found


@pytest.mark.parametrize("name", METHODS)
def test_is_the_loop_written_out(name: str) -> None:
    objective = tokenpo.method(name)
    batches = [batch_of(seed, objective.needs) for seed in range(3)]
    learner, found = Learner(objective, length=LENGTH, seed=7, ratio=None), []
    for rollouts, policy in batches:
        for update in learner.begin(rollouts).updates(epochs=2, minibatches=3):
            seen = leaf(policy.rows(update.rows))
            update.observe(policy.rows(update.rows))
            value = 0.0
            for places in torch.arange(len(update.rows)).split(4):  # micro-batches add up
                _, loss = update.evaluate(seen.rows(places), update.rows[places])
                loss.value.backward()
                value += float(loss.value)
            learner.check(update)
            found.append((value, seen.logprob.grad))
    expected = straight(objective, batches, 7, 2, 3)
    assert len(found) == len(expected) == learner.updates == 3 * 2 * 3 * len(objective.split())
    for (value, gradient), (wanted, wanted_gradient) in zip(found, expected, strict=True):
        assert value == pytest.approx(wanted, rel=1e-12, abs=1e-14)
        torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-12, atol=1e-14)


def test_resumed_it_goes_on_as_if_it_had_never_stopped() -> None:
    """HA-DW remembers the accuracy of batches, Clip-Cov draws tokens by the number of the update."""
    for name in ("ha_dw", "clip_cov"):
        objective = tokenpo.method(name)
        batches = [batch_of(seed, objective.needs) for seed in range(4)]

        def values(learner: Learner, some: list, found: list[float]) -> list[float]:
            for rollouts, policy in some:
                for update in learner.begin(rollouts).updates(minibatches=2):
                    update.observe(policy.rows(update.rows))
                    found.append(float(update.evaluate(policy.rows(update.rows))[1].value))
            return found

        whole = values(loose(objective), batches, [])
        first, second = loose(objective), loose(objective)
        seen = values(first, batches[:2], [])
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert values(second, batches[2:], seen) == whole


def test_no_other_objective_takes_its_state() -> None:
    """Nor one of as few memories."""
    for was in ("ha_dw", "dapo"):
        state = Learner(tokenpo.method(was), length=1).state_dict()
        with pytest.raises(TokenPOError, match=rf"another objective than grpo as it is now.*\n*objective {was}"):
            Learner(tokenpo.method("grpo"), length=1).load_state_dict(state)
    for other in ({"learner": state}, {}, None):
        with pytest.raises(TokenPOError, match="is not a Learner"):
            Learner(tokenpo.method("grpo"), length=1).load_state_dict(other)


def test_a_name_is_not_an_objective() -> None:
    with pytest.raises(TokenPOError, match=r"give tokenpo.method\('dapo'\)"):
        Learner("dapo", length=1)


def test_memories_see_all_that_was_drawn() -> None:
    (rollouts, _), (more, _) = batch_of(0), batch_of(1)
    objective = tokenpo.method("ha_dw")
    learner = Learner(objective, length=LENGTH)
    step = learner.begin(rollouts, drawn=more)
    assert torch.equal(step.credit.advantage, objective.prepare(rollouts).advantage)  # as the memory was before
    assert learner.memory == objective.after(objective.start(), more) != objective.after(objective.start(), rollouts)
    before = learner.memory
    learner.look(rollouts)
    assert learner.memory == before


def test_an_update_can_be_sent_to_where_its_losses_are_made() -> None:
    objective = tokenpo.method("clip_cov")
    rollouts, policy = batch_of(3)
    (update,) = Learner(objective, length=LENGTH, seed=2).begin(rollouts).updates()
    update.observe(policy)
    sent = pickle.loads(pickle.dumps(update))
    assert float(sent.evaluate(policy)[1].value) == float(update.evaluate(policy)[1].value)


def test_rows_of_another_update_are_refused() -> None:
    rollouts, policy = batch_of(3)
    one, other = Learner(tokenpo.method("grpo"), length=LENGTH).begin(rollouts).updates(minibatches=2)
    with pytest.raises(TokenPOError, match="rows that are not the update's"):
        one.evaluate(policy.rows(other.rows), other.rows)
    with pytest.raises(UnknownName, match="by='group' is not a choice; did you mean 'groups'"):
        list(Learner(tokenpo.method("grpo"), length=LENGTH).begin(rollouts).updates(by="group"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("over", "largest", "mean", "said"),
    [
        ("largest", 0.5, 0.1, None),  # as much as is allowed
        ("largest", 0.6, 0.1, "the largest |log-prob of the trainer - old log-prob| is 0.6 nats, above 0.5: mend it"),
        ("largest", math.nan, 0.1, "is nan nats"),
        ("mean", 9.0, 0.5, None),
        ("mean", 9.0, 0.6, "the mean |log-prob of the trainer - old log-prob| is 0.6 nats, above 0.5: mend it"),
    ],
)
def test_the_ratio_check_by_hand(over: Any, largest: float, mean: float, said: str | None) -> None:
    check = RatioCheck(remedy="mend it", tolerance=0.5, over=over)
    with nullcontext() if said is None else pytest.raises(Unsupported, match=re.escape(said or "")):
        check("mine", largest, mean)


def test_the_first_update_needs_the_policy_that_sampled() -> None:
    rollouts, _ = batch_of(3)
    off = Policy(rollouts.old_logprob - 0.01)
    learner = Learner(tokenpo.method("grpo"), length=LENGTH)
    (update,) = learner.begin(rollouts).updates()
    update.evaluate(off)
    with pytest.raises(Unsupported, match=r"grpo: before the first update.*largest.*is 0\.01 nats, above 0\.001"):
        learner.check(update)
    assert learner.updates == 0
    learner = Learner(tokenpo.method("grpo"), length=LENGTH, ratio=RatioCheck(tolerance=0.02))
    first, second = learner.begin(rollouts).updates(minibatches=2)
    first.evaluate(off.rows(first.rows))
    learner.check(first)
    second.evaluate(Policy(rollouts.old_logprob[second.rows] - 1))  # by then it has moved
    learner.check(second)
    assert learner.updates == 2


@dataclasses.dataclass(frozen=True)
class Hole(Weight):
    """NaN on the third token of rollout 5, told by its log-probability."""

    logprob: float

    def __call__(self, batch: Batch, trust: Any) -> Tensor:
        return torch.where(batch.rollouts.old_logprob == self.logprob, math.nan, torch.ones_like(trust.ratio))


def test_a_loss_that_is_not_finite_is_stopped_and_its_part_named() -> None:
    rollouts, policy = batch_of(3)
    row = int(rollouts.mask[:, 2].nonzero()[-1])
    hole = Hole(float(rollouts.old_logprob[row, 2]))
    objective = dataclasses.replace(tokenpo.method("grpo"), weights=(hole,), name="mine")
    learner = loose(objective)
    updates = list(learner.begin(rollouts).updates(minibatches=2))
    (update,) = [update for update in updates if row in update.rows.tolist()]
    update.evaluate(policy.rows(update.rows))
    with pytest.raises(NotFinite, match="the loss of mine is nan"):
        learner.check(update)
    for rows in (None, torch.tensor([row])):
        seen = policy.rows(update.rows if rows is None else rows)
        assert f"is nan on token 2 of rollout {row}" in update.culprit(seen, rows)
    learner.skip(update, "it broke")
    assert learner.metrics()["skipped_updates"] == 1 and learner.updates == update.number + 1


def test_a_policy_that_is_not_finite_names_the_row_of_the_rollout_batch() -> None:
    rollouts, policy = batch_of(3)
    update = list(Learner(tokenpo.method("grpo"), length=LENGTH).begin(rollouts).updates(minibatches=2))[1]
    row = int(update.rows[3])
    broken = policy.logprob.clone()
    broken[row] = math.nan
    for rows in (None, update.rows[2:]):
        with pytest.raises(NotFinite, match=f"row {row} of the rollout batch: Policy.logprob") as raised:
            update.evaluate(Policy(broken[update.rows if rows is None else rows]), rows)
        assert raised.value.row == row


def test_credit_of_the_host_takes_the_place_of_the_groups() -> None:
    rollouts, policy = batch_of(3)
    given = torch.randn(rollouts.mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given[~rollouts.mask] = math.nan  # padding may hold anything
    objective = tokenpo.method("dapo")
    step = loose(objective).begin(rollouts, credit=given.clone().requires_grad_())
    assert not step.credit.advantage.requires_grad
    (update,) = step.updates()
    expected = objective.loss(
        Batch(rollouts, Credit(given.where(rollouts.mask, 0.0)), policy), Totals.of(rollouts, LENGTH)
    )
    assert float(update.evaluate(policy)[1].value) == float(expected.value)


@pytest.mark.parametrize("name", ["gtpo", "grpo_s"])
def test_credit_of_the_host_is_refused_where_the_method_is_its_credit(name: str) -> None:
    objective = tokenpo.method(name)
    rollouts, _ = batch_of(3, objective.needs)
    with pytest.raises(Unsupported, match=f"{name} makes its own credit .* leave credit= out"):
        Learner(objective, length=LENGTH).begin(rollouts, credit=torch.zeros(rollouts.mask.shape))


@pytest.mark.parametrize(("reward", "explained"), [([1.0, 0.0], 0.25), ([1.0, 1.0], math.nan)])
def test_what_critic_and_teacher_report_by_hand(reward: list[float], explained: float) -> None:
    """G is the reward: 1, 1, 0 vary by 2/9, and G − V = 0, 1/2, −1/2 by 1/6; equal G by nothing. lp_old − lp_teacher is
    1, 0, 1/2."""

    def table(row: list[float], other: float) -> Tensor:
        return torch.tensor([row, [other, math.nan]], dtype=torch.float64)

    rollouts = Rollouts(
        torch.tensor([[True, True], [True, False]]),
        torch.tensor(reward),
        torch.tensor([0, 0]),
        table([-1, -1], -1),
        value=table([1, 0.5], 0.5),
        teacher_logprob=table([-2, -1], -1.5),
    )
    seen = Learner(tokenpo.method("ppo"), length=2).begin(rollouts).metrics()
    assert seen["explained_variance"] == pytest.approx(explained, rel=1e-12, nan_ok=True)
    assert seen["teacher_kl"] == 0.5


def test_the_share_of_live_rows_by_hand() -> None:
    """A penalty reaches every row with a token; of none, as all tokens have left, the share is 0."""
    old = torch.full((2, 1), -1.0, dtype=torch.float64)
    rollouts = Rollouts(
        torch.tensor([[True], [False]]),
        torch.tensor([1.0, 0]),
        torch.tensor([0, 0]),
        old,
        ref_logprob=old,
        rollout_logprob=old,
    )
    objective = tokenpo.method("grpo", beta=0.1)
    assert Learner(objective, length=1).begin(rollouts).live() == 1.0
    leaving = dataclasses.replace(objective, weights=(Rejection((Criterion(high=0.5),), leaves=True),))
    assert Learner(leaving, length=1).begin(rollouts).live() == 0.0


# The version that sampled ------------------------------------------------------------------------------------


def stale(version: list[int], updates: int, name: str = "dapo") -> tuple[Learner, Rollouts, Policy]:
    """Four responses of a token, whose policies had had so many updates; ratios 1, 1.1, 1.5 and 2."""
    old = torch.full((4, 2), -2.0, dtype=torch.float64)
    rollouts = Rollouts(
        torch.tensor([[True, False]] * 4),
        torch.tensor([1.0, 0, 1, 0]),
        torch.tensor([0, 0, 1, 1]),
        old,
        version=torch.tensor(version)[:, None].expand(4, 2),
    )
    learner = Learner(tokenpo.method(name), length=1)
    learner.updates = updates
    return learner, rollouts, Policy(old + torch.tensor([[1.0], [1.1], [1.5], [2.0]], dtype=torch.float64).log())


def test_metrics_by_lag() -> None:
    """Lags 0, 2, 3 and 8 of the only update: A > 0 at 1.5 is clipped above 1.28, and A < 0 is never at a ratio > 1."""
    learner, rollouts, policy = stale([9, 7, 6, 1], 9)
    (update,) = learner.begin(rollouts).updates()
    update.evaluate(leaf(policy))
    learner.check(update)
    seen = learner.metrics()
    assert {name: x for name, x in seen.items() if name.startswith("lag_") and name.endswith("_share")} == {
        "lag_0_share": 0.25,
        "lag_2_share": 0.5,
        "lag_8_share": 0.25,
    }
    assert [seen[f"lag_{least}_ratio_mean"] for least in (0, 2, 8)] == pytest.approx([1, 1.3, 2], rel=1e-12)
    assert [seen[f"lag_{least}_clip_fraction"] for least in (0, 2, 8)] == [0, 0.5, 0]
    assert not any(name.startswith(("lag_1_", "lag_4_")) for name in seen)
    again = update.statistics.across(lambda x: 2 * x, lambda x: x, "cpu").summary()
    assert again["lag_2_share"] == 0.5 and again["lag_8_ratio_mean"] == pytest.approx(2, rel=1e-6)


def test_the_ratio_check_looks_at_tokens_of_this_version_alone() -> None:
    """Old tokens may be at any ratio; a fresh one at 2 is a mistake, as it is where no version is known."""
    learner, rollouts, policy = stale([9, 8, 8, 8], 9)
    (update,) = learner.begin(rollouts).updates()
    update.evaluate(leaf(policy))
    learner.check(update)
    learner, rollouts, policy = stale([8, 8, 8, 9], 9)
    (update,) = learner.begin(rollouts).updates()
    update.evaluate(leaf(policy))
    with pytest.raises(Unsupported, match="the ratio of new to old policy is not 1"):
        learner.check(update)


def test_versions_that_cannot_be_are_refused() -> None:
    learner, rollouts, _ = stale([3, 3, 3, 4], 3)
    with pytest.raises(TokenPOError, match="a token was sampled after 4 updates, and there were 3: give the number"):
        learner.begin(rollouts)
    with pytest.raises(TokenPOError, match=r"Rollouts\.version\[3, 0\] is -1, but it is counted from 0"):
        stale([3, 3, 3, -1], 3)


@pytest.mark.parametrize("name", ["gpg", "opo", "raft"])
def test_a_method_without_a_ratio_refuses_old_tokens(name: str) -> None:
    learner, rollouts, _ = stale([3, 3, 3, 1], 3, name)
    with pytest.raises(Unsupported, match=rf"{name} takes the policy for the one that sampled .* 2 updates ago: train"):
        learner.begin(rollouts)
    stale([3, 3, 3, 3], 3, name)[0].begin(stale([3, 3, 3, 3], 3)[1])


def test_a_weight_against_the_policy_that_sampled_corrects_for_its_age() -> None:
    learner, rollouts, _ = stale([3, 3, 3, 1], 3)
    learner.objective = tokenpo.corrected(tokenpo.method("gpg"), "tis")
    learner.begin(dataclasses.replace(rollouts, rollout_logprob=rollouts.old_logprob - 0.1))


def test_a_host_that_samples_with_the_policy_as_it_is_dates_what_feeds_several_updates() -> None:
    rollouts, policy = batch_of(3)
    learner = loose("grpo")
    learner.updates = 5
    assert learner.dated(rollouts, 1) is rollouts
    facts = learner.dated(rollouts, 2)
    assert facts.version is not None and set(facts.version[facts.mask].tolist()) == {5}
    assert learner.dated(facts, 2) is facts
    for update in learner.begin(facts).updates(epochs=2):
        update.evaluate(policy)
        learner.check(update)
    seen = learner.metrics()
    assert (seen["lag_0_share"], seen["lag_1_share"]) == (0.5, 0.5)
    for updates in (1, 2):  # of each of two passes
        assert loose("lopti").dated(rollouts, updates).version is not None


def test_every_row_is_in_one_minibatch_of_each_epoch() -> None:
    group = torch.arange(5).repeat_interleave(3)
    for by in ("groups", "rows"):
        plan = deal(group, 3, 2, by, torch.Generator().manual_seed(0))
        assert len(plan) == 6
        for epoch in (plan[:2], plan[2:4], plan[4:]):
            assert torch.cat(epoch).sort().values.tolist() == list(range(15))
            if by == "groups":
                assert not set(group[epoch[0]].tolist()) & set(group[epoch[1]].tolist())
        assert any(not torch.equal(a, b) for a, b in zip(plan[:2], plan[2:4], strict=True))
    assert [len(part) for part in deal(group[:6], 1, 8, "groups", torch.Generator())] == [3, 3]  # fewer units


@pytest.mark.parametrize(
    ("method", "options"),
    [("grpo", {}), ("kl_cov", {"fraction": 0.4}), ("clip_cov", {"fraction": 0.4, "cov_low": -math.inf})],
)
def test_micro_batches_of_rows_that_come_twice_add_up(method: str, options: dict[str, float]) -> None:
    """Rows 0 to 5 and 2 to 4 again: the loss of all nine is that of the six and of the three, in any order."""
    rollouts, policy = batch_of(3)
    step = Learner(tokenpo.method(method, **options), length=LENGTH).begin(rollouts)
    update = step.update(torch.tensor([0, 1, 2, 3, 4, 5, 4, 3, 2]))
    assert update.rows.tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 5]
    update.observe(policy.rows(update.rows))
    whole = update.evaluate(policy.rows(update.rows))[1].value
    parts = [torch.tensor([5, 0, 4, 1, 3, 2]), torch.tensor([2, 4, 3])]
    torch.testing.assert_close(sum(update.evaluate(policy.rows(rows), rows)[1].value for rows in parts), whole)
    assert len(update.credit.signals) == (method != "grpo")
    for signal in update.credit.signals.values():
        # Row 2 stands at places 2 and 3, the next two behind it.
        assert (signal[2:7:2] == signal[3:8:2]).all() and 0 < signal.sum() < update.rollouts.mask.sum()


@pytest.mark.parametrize("how", [{}, {"in_place": True}])
def test_the_head_gives_the_same_loss_gradients_and_statistics(how: dict[str, bool]) -> None:
    rollouts, _ = batch_of(3)
    generator, tokens = torch.Generator().manual_seed(5), int(rollouts.mask.sum())
    hidden = torch.randn(tokens, 4, generator=generator, dtype=torch.float64)
    head = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    ids = torch.randint(7, rollouts.mask.shape, generator=generator)
    rollouts = dataclasses.replace(rollouts, token_ids=ids, temperature=None)
    found = []
    for fused in (False, True):
        learner = Learner(tokenpo.method("dapo"), length=LENGTH, ratio=None)
        (update,) = learner.begin(rollouts).updates()
        leaves = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        if fused:
            batch, scored = update.evaluate_head(*leaves, **how)
            loss = scored.loss
            assert (leaves[1].grad is None) == (not how)  # whether the head's gradient waits for the backward pass
        else:
            logprob = (leaves[0] @ leaves[1].T).log_softmax(-1).gather(-1, ids[rollouts.mask][:, None])[:, 0]
            table = torch.zeros(rollouts.mask.shape, dtype=torch.float64).masked_scatter(rollouts.mask, logprob)
            batch, loss = update.evaluate(Policy(table))
            batch.policy.logprob.retain_grad()
        loss.value.backward()
        learner.check(update)
        found.append([loss.value, batch.policy.logprob.grad, *(x.grad for x in leaves)])
        found[-1] += [torch.tensor(list(learner.metrics().values()), dtype=torch.float64)]
    for plain, headed in zip(*found, strict=True):
        torch.testing.assert_close(headed, plain, rtol=1e-10, atol=1e-12, equal_nan=True)
