"""Statistics of several ranks put together are those of one that saw everything.

The KL of a batch held by the learning rate.
"""

import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle_support import assemble, ragged, tensors
from tokenpo import KLHold, Learner, Policy, Rollouts, method
from tokenpo.base.errors import TokenPOError
from tokenpo.core.statistics import Statistics
from tokenpo.core.trial import example
from tokenpo.core.types import Loss, Totals


def _seen(rows: list[slice]) -> Statistics:
    objective, found = method("grpo"), Statistics()
    step = assemble(objective, tensors(ragged(0).alive()))
    found.add_minibatch(step.totals)
    for part in rows:
        piece = step.batch.rows(part)
        found.add(piece, objective.loss(piece, step.totals))
    return found


def _together(one: Statistics, other: Statistics) -> Statistics:
    sent: list[torch.Tensor] = []
    other.across(lambda x: sent.append(x) or x, lambda x: sent.append(x) or x, "cpu")
    return one.across(lambda x: x + sent[0], lambda x: torch.maximum(x, sent[1]), "cpu")


@pytest.mark.parametrize("rows", [([slice(0, 7)], [slice(7, 20)]), ([slice(0, 20)], [])])
def test_two_ranks_are_one(rows: tuple[list[slice], list[slice]]) -> None:
    """A rank without a row to evaluate adds nothing."""
    whole = _seen([slice(0, 20)]).summary()
    assert whole["clip_fraction"] > 0
    found = _together(_seen(rows[0]), _seen(rows[1])).summary()
    assert found == pytest.approx(whole, rel=1e-6, nan_ok=True)


def test_no_update_and_two_by_hand() -> None:
    """Of four tokens none was evaluated. Then losses of the critic 1 and 2, norms 3 and 5."""
    found = Statistics()
    found.add_minibatch(Totals(tokens=4, sequences=2, length=3))
    unknown = dict.fromkeys(("ratio_mean", "ratio_min", "ratio_max", "kl", "lr"), math.nan)
    clipped = dict.fromkeys(("clip_fraction", "clip_low_fraction", "clip_high_fraction", "effective_tokens"), 0.0)
    rest = {"loss": 0.0, "grad_norm": 0.0, "skipped_updates": 0}
    assert found.summary() == pytest.approx(unknown | clipped | rest, nan_ok=True)
    for loss, norm, lr in ((1.0, 3.0, 0.5), (2.0, 5.0, 0.25)):
        found.add_value(Loss(torch.tensor(loss), {}))
        found.add_update(torch.tensor(norm), lr)
    made = {"value_loss": 1.5, "grad_norm": 4.0, "lr": 0.25}
    assert found.summary() == pytest.approx(unknown | clipped | rest | made, nan_ok=True)


def test_the_rule_by_hand() -> None:
    hold = KLHold(target=0.004)
    assert hold.start == 0.125 and hold.limit == 0.008
    assert hold.next(0.5, 0.004) == 0.5
    assert hold.next(0.5, 0.016) == pytest.approx(0.25, rel=1e-15)  # four times the KL, half the step
    assert hold.next(0.5, 0.001) == hold.next(0.5, 1e-9) == 1.0  # at most doubles
    assert hold.next(0.5, 1.0) == hold.next(0.5, math.inf) == pytest.approx(0.1, rel=1e-15)  # at least a fifth
    assert hold.next(0.5, math.nan) == hold.next(0.5, 0.0) == 0.5  # nothing was learnt, or no token was there
    # Of a quarter of the rows or more it rises as ever; of an eighth by half a doubling, of none not at all.
    assert hold.next(0.5, 1e-9, 0.25) == 1.0 and hold.next(0.5, 1e-9, 0.0) == 0.5
    assert hold.next(0.5, 1e-9, 0.125) == pytest.approx(0.5 * math.sqrt(2), rel=1e-15)
    assert hold.next(0.5, 0.016, 0.0) == pytest.approx(0.25, rel=1e-15)  # it falls as ever


def test_a_stop_alone_leaves_the_rate() -> None:
    hold = KLHold.of(None, 0.01)
    assert hold == KLHold(stop=0.01) and KLHold.of(None, None) is None
    assert (hold.start, hold.limit, hold.next(1.0, 5.0)) == (1.0, 0.01, 1.0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "target is None and stop None"),
        ({"target": 0.0}, "target is 0.0 and stop None: .* above 0"),
        ({"target": 0.01, "stop": 0.01}, "a stop above the target"),
    ],
)
def test_what_it_refuses(options: dict[str, float], text: str) -> None:
    with pytest.raises(TokenPOError, match=text):
        KLHold(**options)


N, T, V = 32, 4, 6


class Table:
    """A policy that is a table of logits [T, V], trained by SGD."""

    def __init__(self, kl: KLHold | None, lr: float, *, ends: bool = True) -> None:
        self.ends = ends
        self.logits = torch.zeros(T, V, dtype=torch.float64, requires_grad=True)
        self.learner, self.lr = Learner(method("grpo"), length=T, kl=kl), lr
        self.seen: list[dict[str, float]] = []

    def policy(self, token_ids: Tensor) -> Policy:
        return Policy(self.logits.log_softmax(-1).expand(len(token_ids), T, V).gather(2, token_ids[..., None])[..., 0])

    def batch(self, number: int, minibatches: int = 4, epochs: int = 2) -> dict[str, float]:
        draws = torch.Generator().manual_seed(number)
        with torch.no_grad():
            probs = self.logits.softmax(-1).expand(N, T, V).reshape(-1, V)
            token_ids = torch.multinomial(probs, 1, generator=draws).view(N, T)
            old = self.policy(token_ids).logprob
        group, reward = torch.arange(N) // 4, (token_ids[:, 0] < 2).double()
        rollouts = Rollouts(mask=torch.ones(N, T, dtype=torch.bool), reward=reward, group=group, old_logprob=old)
        for update in self.learner.begin(rollouts).updates(minibatches=minibatches, epochs=epochs):
            self.logits.grad = None
            _, loss = update.evaluate(self.policy(token_ids[update.rows]))
            loss.value.backward()
            if self.learner.check(update):
                with torch.no_grad():
                    self.logits -= self.lr * self.learner.rate * self.logits.grad
        if self.ends and self.learner.measures_end:
            self.learner.end(update, self.policy(token_ids[update.rows]))
        self.seen.append(self.learner.metrics())
        return self.seen[-1]


@pytest.mark.parametrize("lr", [0.3, 30.0])
def test_a_hundredfold_of_learning_rates_ends_at_the_target(lr: float) -> None:
    table = Table(KLHold(target=0.001), lr)
    for number in range(32):
        table.batch(number)
    assert sum(held["kl_reached"] for held in table.seen[8:]) / 24 == pytest.approx(0.001, rel=0.2)
    rates = [held["kl_rate"] for held in table.seen]
    assert rates[0] == 0.125
    assert all(0.2 - 1e-12 <= after / before <= 2 + 1e-12 for before, after in pairwise(rates))


def test_above_the_limit_the_rest_of_a_batch_is_left_out_and_counted() -> None:
    table = Table(KLHold(stop=1e-3), lr=100.0)
    before = table.logits.detach().clone()
    held = table.batch(0)
    step = table.learner.step
    assert step is not None and step.made >= 1 and step.made + step.left_out == 8
    assert held["kl_left_out"] == step.left_out >= 1 and held["kl_rate"] == 1.0
    assert not torch.equal(before, table.logits)
    shorter = Table(None, lr=100.0)
    shorter.learner.check = _at_most(shorter.learner, step.made)
    shorter.batch(0)
    assert torch.equal(shorter.logits, table.logits)  # the updates before it were made as ever


def _at_most(learner: Learner, count: int) -> Any:
    check = learner.check
    return lambda update: update.number < count and check(update)


def test_off_it_changes_no_bit() -> None:
    plain, held = Table(None, 1.0), Table(KLHold(stop=math.inf), 1.0)
    for number in range(3):
        assert str(plain.batch(number))[1:-1] in str(held.batch(number))  # as text: a nan is equal to itself
    assert torch.equal(plain.logits, held.logits)
    assert set(held.learner.state_dict()) - set(plain.learner.state_dict()) == {"rate"}


def test_a_resumed_learner_goes_on_as_if_it_had_never_stopped() -> None:
    whole = Table(KLHold(target=0.001), 3.0)
    for number in range(4):
        whole.batch(number)
    half = Table(KLHold(target=0.001), 3.0)
    half.batch(0)
    half.batch(1)
    again = Table(KLHold(target=0.001), 3.0)
    again.learner.load_state_dict(json.loads(json.dumps(half.learner.state_dict())))
    again.logits = half.logits
    again.batch(2)
    again.batch(3)
    assert str(again.seen) == str(whole.seen[2:]) and torch.equal(again.logits, whole.logits)


def test_the_rate_of_a_state_is_for_who_holds_a_kl() -> None:
    held, plain = (Learner(method("grpo"), length=1, kl=kl) for kl in (KLHold(target=1.0), None))
    state = {**held.state_dict(), "rate": 0.5}
    for learner in (held, plain):
        learner.load_state_dict(state)
    assert (held.rate, plain.rate) == (0.5, 1.0)


def test_the_last_step_of_a_batch_counts() -> None:
    """Of two updates the second moves the policy after the last KL that is measured before one."""
    seen, blind = (
        Table(KLHold(target=0.001, stop=math.inf), 30.0),
        Table(KLHold(target=0.001, stop=math.inf), 30.0, ends=False),
    )
    for table in (seen, blind):
        held = table.batch(0, minibatches=2, epochs=1)
        after = 2 * held["kl"]  # of the second update; before the first it is 0
        table.batch(1, minibatches=2, epochs=1)
        assert held["kl_reached"] > 1.5 * after if table is seen else held["kl_reached"] == pytest.approx(after)
    assert seen.learner.rate < 0.9 * blind.learner.rate


def test_the_kl_of_the_end_by_hand() -> None:
    learner = Learner(method("grpo"), length=2, kl=KLHold(target=1.0))
    mask = torch.tensor([[True, True], [True, False]])
    rollouts = Rollouts(mask, torch.tensor([0.0, 1.0]), torch.zeros(2).long(), torch.full((2, 2), -1.0))
    (update,) = learner.begin(rollouts).updates()
    update.evaluate(Policy(torch.full((2, 2), -1.0, requires_grad=True)))
    learner.check(update)
    assert learner.measures_end and learner.metrics()["kl_reached"] == 0
    # k3 of 2^-24 is 2^-49, which the difference of two float32 numbers of the size of 2^-24 would lose.
    learner.end(update, Policy(torch.full((2, 2), -1 + 2.0**-24)))
    assert learner.metrics()["kl_reached"] == pytest.approx(2.0**-49, rel=1e-6, abs=0)
    learner.end(update, Policy(torch.tensor([[-1.5, -1.0], [0.0, 7.0]])))
    wanted = (math.exp(-0.5) + 0.5 - 1 + math.exp(1.0) - 1 - 1) / 3
    assert learner.metrics()["kl_reached"] == pytest.approx(wanted, rel=1e-6)
    assert learner.state_dict()["rate"] == pytest.approx(0.125 * math.sqrt(1 / wanted), rel=1e-6)


def test_one_update_a_batch_is_held_by_its_end_and_by_nothing_else() -> None:
    table = Table(KLHold(target=0.001), 30.0)
    for number in range(16):
        table.batch(number, minibatches=1, epochs=1)
    assert sum(held["kl_reached"] for held in table.seen[8:]) / 8 == pytest.approx(0.001, rel=0.75)
    blind = Table(KLHold(target=0.001), 30.0, ends=False)
    blind.batch(0, minibatches=1, epochs=1)
    with pytest.raises(TokenPOError, match=r"call Learner\.end"):
        blind.batch(1, minibatches=1, epochs=1)


def _moved(stay: float = 0.0) -> tuple[Rollouts, Policy]:
    """Two groups of two tokens; the first is mixed and has moved by 0.2 nats, the other by `stay`."""
    old = torch.full((4, 2), -1.0, dtype=torch.float64)
    rollouts = Rollouts(torch.ones(4, 2).bool(), torch.tensor([1.0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]), old)
    return rollouts, Policy(old + torch.tensor([0.2, 0.2, stay, stay])[:, None])


@pytest.mark.parametrize("every_row", [True, False])
def test_a_held_kl_is_that_of_the_rows_that_learn(every_row: bool) -> None:
    """e^0.2 − 1 − 0.2, whether a host evaluates the rows without a gradient or not, before an update and after it."""
    (rollouts, policy), kl = _moved(), math.exp(0.2) - 1.2
    for target, made in ((0.9 * kl / 2, False), (1.1 * kl / 2, True)):
        learner = Learner(method("dapo"), length=2, kl=KLHold(target=target), ratio=None)
        (update,) = learner.begin(rollouts).updates()
        rows = None if every_row else update.live()
        update.evaluate(policy if rows is None else policy.rows(rows), rows)
        assert learner.check(update) is made
        if made:
            learner.end(update, Policy(policy.logprob + 0.1))
            kl = math.exp(0.3) - 1.3
        assert learner.metrics()["kl_reached"] == pytest.approx(kl, rel=1e-6)


@pytest.mark.parametrize("name", ["hapo", "forking_tokens", "sent"])
def test_an_update_without_a_token_has_nothing_to_look_at(name: str) -> None:
    objective = method(name) if name == "sent" else method(name, entropy="current")
    inputs = example(2)
    facts = {key: inputs.rollouts[key] for key in ("mask", "reward", "group", "old_logprob", "old_entropy")}
    facts["mask"] = facts["mask"] & (facts["group"] != 1)[:, None]
    rollouts, policy = Rollouts.of(facts), Policy(inputs.policy["logprob"], entropy=inputs.policy["entropy"])
    learner = Learner(objective, length=9, ratio=None)
    losses = []
    for update in learner.begin(rollouts).updates(minibatches=4):
        update.observe(policy.rows(update.rows))
        losses.append(float(update.evaluate(policy.rows(update.rows))[1].value))
    assert len(losses) == 4 and losses.count(0.0) == 1


@pytest.mark.parametrize("size", [1, 2])
def test_a_step_by_hand(size: int) -> None:
    """GRPO's clip at 0.2. Of five tokens 1.5 and 1.3 are cut off above (A > 0) and 0.5 below (A < 0), so that two
    have a gradient; in micro-batches of any size."""
    ratio = torch.tensor([[1.5, 1.3, math.nan], [0.5, 1.1, 1.5]], dtype=torch.float64)
    mask = ~ratio.isnan()
    old = torch.full((2, 3), -1.0, dtype=torch.float64)
    rollouts = Rollouts(mask, torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), old)
    learner = Learner(method("grpo"), length=3, ratio=None)
    (update,) = learner.begin(rollouts).updates()
    policy = Policy(old + ratio.log())
    for rows in update.pieces(size):
        update.evaluate(policy.rows(rows), rows)
    assert learner.check(update, lr=0.5)
    found = learner.metrics()
    known = [1.5, 1.3, 0.5, 1.1, 1.5]
    wanted = {
        "ratio_mean": sum(known) / 5, "ratio_min": 0.5, "ratio_max": 1.5, "clip_fraction": 0.6,
        "clip_low_fraction": 0.2, "clip_high_fraction": 0.4, "effective_tokens": 0.4, "lr": 0.5,
        "kl": sum(r - 1 - math.log(r) for r in known) / 5,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)
