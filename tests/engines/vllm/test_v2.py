"""V2: slots are recycled, rows are reordered and repeated; the temperature comes afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tokenpo.base.errors import Unsupported
from tokenpo.models.token_draw import draw
from vllm_support import flat, heat, oracle, random_logits, settings

SLOTS = 9


@pytest.fixture
def processor(engine):
    return engine.processor(settings(), states(engine))


def states(engine):
    return engine.LogitsProcRequestState(torch.device("cpu"), SLOTS, 17, None, None, None, None)


def context(engine, slots, repeats=1):
    """The layout of a step: batch position to slot, and each request's rows (several under speculative decoding)."""
    np_slots = np.array(slots, dtype=np.int32)
    rows = torch.from_numpy(np_slots).repeat_interleave(torch.as_tensor(repeats))
    empty = torch.zeros(len(rows), dtype=torch.int32)
    return engine.LogitsContext(
        rows, torch.from_numpy(np_slots), np_slots, empty, empty, empty, np_slots
    ), rows.tolist()


def check(processor, engine, held, slots, repeats, seed: int) -> None:
    """`held` maps a slot to (heat, base temperature)."""
    ctx, rows = context(engine, slots, repeats)
    z = random_logits(len(rows), seed)
    before = z.clone()
    got = processor.apply(z, ctx)
    for row, slot in enumerate(rows):
        one, base = held[slot]
        if one is None:
            assert torch.equal(got[row].view(torch.int32), before[row].view(torch.int32))
        else:
            expected = before[row].numpy().astype(np.float64) * base / oracle(before[row].numpy(), base, flat(one))
            np.testing.assert_allclose(got[row], expected, rtol=2e-6)


def test_slots_are_recycled_and_rows_reordered(engine, processor):
    """300 steps: requests enter free or used slots, any subset runs in any order, some with several rows."""
    g = np.random.default_rng(1)
    heats = [None, heat(1), heat(2), heat(3)]
    held: dict = {}
    for step in range(300):
        for _ in range(g.integers(0, 3)):
            slot, one, base = int(g.integers(SLOTS)), heats[g.integers(len(heats))], round(g.uniform(0.4, 1.5), 3)
            held[slot] = one, base
            extra = None if one is None else flat(one)
            asked = processor.add_request(slot, engine.SamplingParams(temperature=base, extra_args=extra))
            assert asked is (one is not None)
        processor.apply_staged_writes()
        if held and step % 6 == 0:
            slots = g.permutation(sorted(held))[: g.integers(1, len(held) + 1)]
            check(processor, engine, held, slots, g.integers(1, 4, len(slots)).tolist(), step)


def test_it_is_our_sampler_before_the_temperature(engine, processor):
    one, z = heat(4), random_logits(4, 8)
    base = [0.6, 0.9, 1.0, 1.3]
    for slot, temperature in enumerate(base):
        processor.add_request(slot, engine.SamplingParams(temperature=temperature, extra_args=flat(one)))
    processor.apply_staged_writes()
    ctx, _ = context(engine, [0, 1, 2, 3])
    got = (processor.apply(z.clone(), ctx) / torch.tensor(base)[:, None]).log_softmax(-1)
    for row, temperature in enumerate(base):
        point = torch.tensor([0.37], dtype=torch.float64)
        ours = draw(z[row : row + 1], point, temperature, lambda h, t: one.rule(h, t, one.scale._asdict()))
        assert ours.temperature.item() == pytest.approx(oracle(z[row].numpy(), temperature, flat(one)), rel=2e-6)
        assert got[row, ours.token].item() == pytest.approx(ours.rollout_logprob.item(), rel=1e-5, abs=1e-5)


def test_a_step_of_requests_without_keys_is_left_alone(engine, processor):
    processor.add_request(0, engine.SamplingParams(extra_args=flat(heat(1))))
    processor.add_request(1, engine.SamplingParams(extra_args={"other": 1}))
    processor.apply_staged_writes()
    z = random_logits(1, 0)
    before = z.clone()
    ctx, _ = context(engine, [1])
    assert processor.apply(z, ctx) is z and torch.equal(z, before)


def test_what_a_running_step_reads_is_not_overwritten(engine, processor):
    processor.add_request(0, engine.SamplingParams(extra_args=flat(heat(1))))
    processor.apply_staged_writes()
    slots, base = processor.chosen._on_device
    copies = slots.clone(), base.clone()
    processor.add_request(0, engine.SamplingParams(temperature=0.5, extra_args=flat(heat(2))))
    processor.apply_staged_writes()
    assert torch.equal(slots, copies[0]) and torch.equal(base, copies[1])
    assert processor.chosen._on_device[0][0] == 2 and processor.chosen._on_device[1][0] == 0.5


def test_new_numbers_in_every_step_do_not_pile_up(engine, processor):
    for step in range(50):
        slot = step % 2
        processor.add_request(slot, engine.SamplingParams(extra_args=flat(heat(step))))
        check(processor, engine, {slot: (heat(step), 1.0)}, [slot], 1, step)
    assert len(processor.chosen._numbers._numbers) <= 3


def test_what_it_tells_vllm(engine, processor):
    assert isinstance(processor, engine.V2)
    with pytest.raises(ValueError, match="tokenpo_tau = 2"):
        type(processor).validate_params(engine.SamplingParams(extra_args={**flat(heat(1)), "tokenpo_tau": 2}))
    with pytest.raises(Unsupported, match="logprobs_mode='raw_logprobs'"):
        engine.processor(settings("raw_logprobs"), states(engine))
