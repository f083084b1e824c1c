"""Both runners: rows come, go, move and swap (V1), slots are recycled and repeated (V2). Rows whose request carries a
heat are at the rule's temperature, the rest keeps every bit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tokenpo.base.errors import Unsupported
from tokenpo.engines.vllm.runners import Numbers, divide
from tokenpo.models.request_temperature import factors
from tokenpo.models.token_draw import draw
from vllm_support import flat, heat, oracle, random_logits, settings

SLOTS = 12


def bits(x: Tensor) -> Tensor:
    return x.view(torch.int32)


class Rows:
    """V1: divides by the temperature first; a request has a row."""

    def __init__(self, engine: SimpleNamespace) -> None:
        self.engine = engine
        self.processor = engine.processor(settings(), torch.device("cpu"), False)

    def request(self, one: Any, base: float = 1.0) -> Any:
        return self.engine.SamplingParams(temperature=base, extra_args=None if one is None else flat(one))

    def update(self, size: int, removed: Any = (), added: Any = (), moved: Any = ()) -> None:
        filled = [(row, self.request(one), [1], []) for row, one in added]
        update = self.engine.BatchUpdate(batch_size=size, removed=list(removed), added=filled, moved=list(moved))
        self.processor.update_state(update)

    def fill(self, requests: list[Any]) -> None:
        added = [(row, params, [1], []) for row, params in enumerate(requests)]
        self.processor.update_state(self.engine.BatchUpdate(len(added), [], added, []))

    def run(self, z: Tensor) -> Tensor:
        return self.processor.apply(z)

    def check(self, rows: list[Any], seed: int) -> None:
        """`rows` are the heats that the batch should hold; every row is compared with the formula."""
        # A row that is gone would cost time, and come back with one that is moved.
        assert set(self.processor.chosen._rows) == {row for row, one in enumerate(rows) if one is not None}
        same_as_formula(self.run, random_logits(len(rows), seed), [(one, 1.0) for one in rows], after=True)


class Slots(Rows):
    """V2: divides by the temperature afterwards; a request has a slot."""

    def __init__(self, engine: SimpleNamespace) -> None:
        self.engine = engine
        self.processor = engine.processor(settings(), states(engine))

    def fill(self, requests: list[Any]) -> None:
        for slot, params in enumerate(requests):
            assert self.processor.add_request(slot, params) is (params.extra_args is not None)
        self.processor.apply_staged_writes()

    def run(self, z: Tensor, slots: Any = None, repeats: Any = 1) -> Tensor:
        """`repeats` are the rows of each request, several under speculative decoding."""
        order = np.array(range(len(z)) if slots is None else slots, dtype=np.int32)
        rows = torch.from_numpy(order).repeat_interleave(torch.as_tensor(repeats))
        empty = torch.zeros(len(rows), dtype=torch.int32)
        context = self.engine.LogitsContext(rows, torch.from_numpy(order), order, empty, empty, empty, order)
        return self.processor.apply(z, context)


def states(engine: SimpleNamespace) -> Any:
    return engine.LogitsProcRequestState(torch.device("cpu"), SLOTS, 17, None, None, None, None)


def same_as_formula(run: Any, z: Tensor, held: list[tuple[Any, float]], *, after: bool) -> None:
    """`held` are the heat and base temperature of each row; `after` the division by the base comes first."""
    before = z.clone()
    got = run(z)
    for row, (one, base) in enumerate(held):
        if one is None:
            assert torch.equal(bits(got[row]), bits(before[row])), row
            continue
        factor = oracle(before[row].numpy(), 1.0 if after else base, flat(one)) / (1.0 if after else base)
        np.testing.assert_allclose(got[row], before[row].numpy().astype(np.float64) / factor, rtol=2e-6)


@pytest.fixture(params=[Rows, Slots], ids=["v1", "v2"])
def runner(request: pytest.FixtureRequest, engine: SimpleNamespace) -> Any:
    return request.param(engine)


def test_it_is_our_sampler_at_every_rows_own_base(runner: Any) -> None:
    one, z, base = heat(4), random_logits(12, 8), [0.6, 0.9, 1.0, 1.3] * 3
    runner.fill([runner.request(one, temperature) for temperature in base])
    divisor = torch.tensor(base)[:, None]
    scaled = runner.run(z.clone()) / divisor if isinstance(runner, Slots) else runner.run(z / divisor)
    got = scaled.log_softmax(-1)
    for row, temperature in enumerate(base):
        point = torch.tensor([0.37], dtype=torch.float64)
        ours = draw(z[row : row + 1], point, temperature, lambda h, t: one.rule(h, t, one.scale._asdict()))
        assert ours.temperature.item() == pytest.approx(oracle(z[row].numpy(), temperature, flat(one)), rel=2e-6)
        assert got[row, ours.token].item() == pytest.approx(ours.rollout_logprob.item(), rel=1e-5, abs=1e-5)


def test_without_keys_the_very_tensor_comes_back(runner: Any) -> None:
    runner.fill([runner.request(None) for _ in range(3)])
    z = random_logits(3, 1)
    before = z.clone()
    assert runner.run(z) is z and torch.equal(z, before)


def test_new_numbers_in_every_step_do_not_pile_up(runner: Any) -> None:
    for step in range(50):
        runner.fill([runner.request(heat(step))])
        same_as_formula(runner.run, random_logits(1, step), [(heat(step), 1.0)], after=True)
    assert len(runner.processor.chosen._numbers._numbers) <= 3


def test_it_refuses_wrong_keys_and_raw_log_probabilities(runner: Any, engine: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="tokenpo_tau = 2"):
        runner.processor.validate_params(engine.SamplingParams(extra_args={**flat(heat(1)), "tokenpo_tau": 2}))
    runner.processor.validate_params(engine.SamplingParams())
    given = (states(engine),) if isinstance(runner, Slots) else (torch.device("cpu"), False)
    with pytest.raises(Unsupported, match="logprobs_mode='raw_logprobs'"):
        engine.processor(settings("raw_logprobs"), *given)


def test_any_order_of_updates(engine: SimpleNamespace) -> None:
    """400 steps of a batch that vLLM might run: finished rows leave, new ones fill the gaps, the rest is condensed."""
    g, batch = np.random.default_rng(0), Rows(engine)
    heats = [None, None, heat(1), heat(2), heat(3)]
    rows: list = []
    one_way, swap = engine.MoveDirectionality.UNIDIRECTIONAL, engine.MoveDirectionality.SWAP
    for step in range(400):
        before = list(rows)
        removed = [row for row in range(len(rows)) if g.random() < 0.2]
        added, moved = [], []
        gaps = sorted(removed)
        table = {row: one for row, one in enumerate(rows) if row not in removed}
        for _ in range(g.integers(0, 3)):
            row = gaps.pop(0) if gaps else max([len(rows) - 1, *table]) + 1
            if row in removed and g.random() < 0.5:
                # vLLM reports a row that is filled again as added alone.
                removed.remove(row)
            table[row] = heats[g.integers(len(heats))]
            added.append((row, table[row]))
        while gaps and table and max(table) > gaps[0]:
            source, target = max(table), gaps.pop(0)
            moved.append((source, target, one_way))
            table[target] = table.pop(source)
        for _ in range(g.integers(0, 2) if len(table) > 1 else 0):
            a, b = (int(x) for x in g.choice(len(table), 2, replace=False))
            moved.append((a, b, swap))
            table[a], table[b] = table[b], table[a]
        rows = [table[row] for row in range(len(table))]
        if removed or added or moved:
            batch.update(len(rows), removed, added, moved)
        else:
            batch.processor.update_state(None)
        if step % 10 == 0 or len(before) > 6:
            batch.check(rows, step)


def test_removed_then_added_then_moved(engine: SimpleNamespace) -> None:
    """Row 0 holds A, row 1 B. One update: 0 leaves, 2 gets C, then 2 moves to 0 and 0 swaps with 1: B, C."""
    a, b, c, batch = heat(1), heat(2), heat(3), Rows(engine)
    one_way, swap = engine.MoveDirectionality.UNIDIRECTIONAL, engine.MoveDirectionality.SWAP
    batch.update(2, added=[(0, a), (1, b)])
    batch.check([a, b], 1)
    batch.update(2, removed=[0], added=[(2, c)], moved=[(2, 0, one_way), (0, 1, swap)])
    batch.check([b, c], 2)
    # A row that is removed and filled in one update holds the new request.
    batch.update(2, removed=[1], added=[(1, a)])
    batch.check([b, a], 3)
    # A move may replace a row that was not reported as removed.
    batch.update(1, moved=[(1, 0, one_way)])
    batch.check([a], 6)
    batch.update(2, added=[(0, b), (1, a)])
    # A row without keys that moves clears its target.
    batch.update(3, added=[(2, None)])
    batch.update(2, removed=[0], moved=[(2, 0, one_way)])
    batch.check([None, a], 4)
    batch.update(2, added=[(1, None)])
    batch.check([None, None], 5)


def test_slots_are_recycled_and_rows_reordered(engine: SimpleNamespace) -> None:
    """300 steps: requests enter free or used slots, any subset runs in any order, some with several rows."""
    g, runner = np.random.default_rng(1), Slots(engine)
    heats = [None, heat(1), heat(2), heat(3)]
    held: dict = {}
    for step in range(300):
        for _ in range(g.integers(0, 3)):
            slot, one, base = int(g.integers(SLOTS)), heats[g.integers(len(heats))], round(g.uniform(0.4, 1.5), 3)
            held[slot] = one, base
            assert runner.processor.add_request(slot, runner.request(one, base)) is (one is not None)
        runner.processor.apply_staged_writes()
        if held and step % 6 == 0:
            slots = g.permutation(sorted(held))[: g.integers(1, len(held) + 1)]
            repeats = g.integers(1, 4, len(slots))
            rows = [held[slot] for slot in np.repeat(slots, repeats).tolist()]
            z = random_logits(len(rows), step)
            same_as_formula(lambda z, s=slots, r=repeats: runner.run(z, s, r.tolist()), z, rows, after=False)


def test_a_running_steps_tensors_are_not_overwritten(engine: SimpleNamespace) -> None:
    runner = Slots(engine)
    runner.fill([runner.request(heat(1))])
    slots, base = runner.processor.chosen._on_device
    copies = slots.clone(), base.clone()
    runner.fill([runner.request(heat(2), 0.5)])
    assert torch.equal(slots, copies[0]) and torch.equal(base, copies[1])
    assert runner.processor.chosen._on_device[0][0] == 2 and runner.processor.chosen._on_device[1][0] == 0.5


def test_odd_rows_keep_every_bit_and_the_order_of_tokens_stays() -> None:
    """Without a heat even a row of NaN keeps its bits; with one, excluded tokens stay excluded, the best stays best."""
    z = random_logits(50, 5)
    z[3], z[5] = torch.nan, -torch.inf
    before, which = z.clone(), torch.tensor([0, 1] * 25)
    which[[3, 5]] = 0
    idle = which == 0
    got = divide(z, factors(z, which, {1: heat(4)}))
    assert got is z
    assert torch.equal(bits(z[idle]), bits(before[idle])) and not torch.equal(z[~idle], before[~idle])
    assert torch.equal(z[~idle] == -torch.inf, before[~idle] == -torch.inf)
    assert torch.equal(z[~idle].argmax(-1), before[~idle].argmax(-1))


def test_equal_heats_share_a_number_and_old_ones_are_let_go() -> None:
    numbers = Numbers("cpu")
    assert numbers.of(None, set()) == 0
    first, again = numbers.of(heat(1), set()), numbers.of(heat(1), {1})
    second = numbers.of(heat(2), {first})
    assert (first, again, second) == (1, 1, 2)
    assert {number: h.rule for number, h in numbers.named({0, 2}).items()} == {2: heat(2).rule}
    third = numbers.of(heat(3), {second})
    assert third == 3 and set(numbers.named({1, 2, 3})) == {2, 3}
    assert numbers.of(heat(1), {2, 3}) == 4, "a number is never given twice"
