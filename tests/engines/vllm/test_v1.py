"""V1: rows come, go, move and swap; those that ask for it are at the rule's temperature, the rest is untouched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tokenpo.models.token_draw import draw
from vllm_support import flat, heat, oracle, random_logits, settings


@pytest.fixture
def processor(engine):
    return engine.processor(settings(), torch.device("cpu"), False)


def request(engine, one, temperature: float = 1.0):
    return engine.SamplingParams(temperature=temperature, extra_args=None if one is None else flat(one))


def update(engine, size: int, removed=(), added=(), moved=()):
    filled = [(row, params, [1], []) for row, params in added]
    return engine.BatchUpdate(batch_size=size, removed=list(removed), added=filled, moved=list(moved))


def check(processor, rows, seed: int) -> None:
    """`rows` are the heats that the batch should hold; every row is compared with the formula."""
    # Nothing is kept of rows that are gone: it would cost time, and come back with a row that is moved.
    assert set(processor.chosen._rows) == {row for row, one in enumerate(rows) if one is not None}
    x = random_logits(len(rows), seed)
    before = x.clone()
    got = processor.apply(x)
    for row, one in enumerate(rows):
        if one is None:
            assert torch.equal(got[row].view(torch.int32), before[row].view(torch.int32)), row
        else:
            factor = oracle(before[row].numpy(), 1.0, flat(one))
            expected = before[row].numpy().astype(np.float64) / factor
            np.testing.assert_allclose(got[row], expected, rtol=2e-6, err_msg=str(row))


def test_any_order_of_updates(engine, processor):
    """400 steps of a batch that vLLM might run: finished rows leave, new ones fill the gaps, the rest is condensed."""
    g = np.random.default_rng(0)
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
            added.append((row, request(engine, table[row])))
        while gaps and table and max(table) > gaps[0]:
            source, target = max(table), gaps.pop(0)
            moved.append((source, target, one_way))
            table[target] = table.pop(source)
        for _ in range(g.integers(0, 2) if len(table) > 1 else 0):
            a, b = (int(x) for x in g.choice(len(table), 2, replace=False))
            moved.append((a, b, swap))
            table[a], table[b] = table[b], table[a]
        rows = [table[row] for row in range(len(table))]
        changed = removed or added or moved
        processor.update_state(update(engine, len(rows), removed, added, moved) if changed else None)
        if step % 10 == 0 or len(before) > 6:
            check(processor, rows, step)


def test_removed_then_added_then_moved(engine, processor):
    """Row 0 holds A, row 1 B. One update: 0 leaves, 2 gets C, then 2 moves to 0 and 0 swaps with 1: B, C."""
    a, b, c = heat(1), heat(2), heat(3)
    processor.update_state(update(engine, 2, added=[(0, request(engine, a)), (1, request(engine, b))]))
    check(processor, [a, b], 1)
    moves = [(2, 0, engine.MoveDirectionality.UNIDIRECTIONAL), (0, 1, engine.MoveDirectionality.SWAP)]
    processor.update_state(update(engine, 2, removed=[0], added=[(2, request(engine, c))], moved=moves))
    check(processor, [b, c], 2)
    # A row that is removed and filled in one update holds the new request.
    processor.update_state(update(engine, 2, removed=[1], added=[(1, request(engine, a))]))
    check(processor, [b, a], 3)
    # A move may replace a row that was not reported as removed.
    processor.update_state(update(engine, 1, moved=[(1, 0, engine.MoveDirectionality.UNIDIRECTIONAL)]))
    check(processor, [a], 6)
    processor.update_state(update(engine, 2, added=[(0, request(engine, b)), (1, request(engine, a))]))
    # A row without keys that moves clears its target.
    processor.update_state(update(engine, 3, added=[(2, request(engine, None))]))
    processor.update_state(update(engine, 2, removed=[0], moved=[(2, 0, engine.MoveDirectionality.UNIDIRECTIONAL)]))
    check(processor, [None, a], 4)
    processor.update_state(update(engine, 2, added=[(1, request(engine, None))]))
    check(processor, [None, None], 5)


def test_it_is_our_sampler_after_the_temperature(engine, processor):
    """z / T as vLLM has it by then: our sampler's temperature and log-probability, at every row's own base."""
    one, z = heat(4), random_logits(12, 8)
    base = [0.6, 0.9, 1.0, 1.3] * 3
    params = [(row, request(engine, one, temperature)) for row, temperature in enumerate(base)]
    processor.update_state(update(engine, 12, added=params))
    got = processor.apply(z / torch.tensor(base)[:, None]).log_softmax(-1)
    for row, temperature in enumerate(base):
        point = torch.tensor([0.37], dtype=torch.float64)
        ours = draw(z[row : row + 1], point, temperature, lambda h, t: one.rule(h, t, one.scale._asdict()))
        assert ours.temperature.item() == pytest.approx(oracle(z[row].numpy(), temperature, flat(one)), rel=2e-6)
        assert got[row, ours.token].item() == pytest.approx(ours.rollout_logprob.item(), rel=1e-5, abs=1e-5)


def test_without_keys_the_very_tensor_comes_back(engine, processor):
    z = random_logits(3, 1)
    processor.update_state(update(engine, 3, added=[(row, request(engine, None)) for row in range(3)]))
    before = z.clone()
    assert processor.apply(z) is z and torch.equal(z, before)
    processor.update_state(None)
    assert processor.apply(z) is z and torch.equal(z, before)


def test_new_numbers_in_every_step_do_not_pile_up(engine, processor):
    for step in range(50):
        processor.update_state(update(engine, 1, removed=[0], added=[(0, request(engine, heat(step)))]))
        check(processor, [heat(step)], step)
    assert len(processor.chosen._numbers._numbers) <= 2


def test_what_it_tells_vllm(engine, processor):
    assert isinstance(processor, engine.V1) and processor.is_argmax_invariant() is True
    with pytest.raises(ValueError, match="tokenpo_tau = 2"):
        type(processor).validate_params(engine.SamplingParams(extra_args={**flat(heat(1)), "tokenpo_tau": 2}))
    type(processor).validate_params(engine.SamplingParams())
