"""One name for both runners, found by vLLM's own loaders; and what it refuses."""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tokenpo.base.errors import Unsupported
from tokenpo.core.request_temperature import factors
from tokenpo.hosts.vllm import PROCESSOR
from tokenpo.train.models.token_draw import draw
from vllm_support import flat, heat, oracle, random_logits, settings, stand_in

OURS = "tokenpo.hosts.vllm.processor"


def test_one_class_serves_both_runners(engine):
    module, _, name = PROCESSOR.partition(":")
    assert getattr(sys.modules[module], name) is engine.processor
    assert issubclass(engine.processor, engine.V1) and issubclass(engine.processor, engine.V2)


# Against vLLM itself.


def test_the_stand_in_has_vllms_signatures(vllm):
    for real, bare in ((vllm.V1, stand_in.V1), (vllm.V2, stand_in.V2)):
        for name, method in vars(bare).items():
            if inspect.isfunction(method) or isinstance(method, classmethod):
                there = inspect.signature(getattr(real, name)).parameters
                assert list(there) == list(inspect.signature(getattr(bare, name)).parameters), name
    for real, bare in (
        (vllm.BatchUpdate, stand_in.BatchUpdate),
        (vllm.LogitsContext, stand_in.LogitsContext),
        (vllm.LogitsProcRequestState, stand_in.LogitsProcRequestState),
    ):
        assert list(real.__dataclass_fields__) == list(bare.__dataclass_fields__)
    assert vllm.MoveDirectionality.__members__.keys() == stand_in.MoveDirectionality.__members__.keys()


def test_vllms_loaders_take_the_name(vllm):
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns as load_v1
    from vllm.v1.worker.gpu.sample.logits_processor import loader

    assert load_v1([PROCESSOR]) == [vllm.processor]
    assert loader._load_v2_logitsprocs_by_fqcns([PROCESSOR]) == [vllm.processor]
    validate = loader.build_custom_logits_processors_params_validator([PROCESSOR])
    validate(vllm.SamplingParams(temperature=0.7, extra_args=flat(heat(1))))
    with pytest.raises(VLLMValidationError, match=r"tau is 1\.0, expected a number in \[0, 1\)"):
        validate(vllm.SamplingParams(extra_args={**flat(heat(1)), "tokenpo_tau": 1.0}))


def test_vllms_v1_sampler_reports_our_samplers_log_probabilities(vllm):
    """The whole V1 sampler: temperature, processor, draw, processed log-probabilities."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    one, base = heat(6), 0.8
    z = torch.randn(8, 17, generator=torch.Generator().manual_seed(1)) * 2
    processor = vllm.processor(settings(), torch.device("cpu"), False)
    params = vllm.SamplingParams(temperature=base, extra_args=flat(one))
    processor.update_state(vllm.BatchUpdate(8, [], [(row, params, [1], []) for row in range(7)], []))
    fields = dict.fromkeys(SamplingMetadata.__dataclass_fields__)
    fields |= {
        "temperature": torch.full((8,), base),
        "all_greedy": False,
        "all_random": True,
        "generators": {},
        "max_num_logprobs": 0,
        "no_penalties": True,
        "output_token_ids": [[]] * 8,
        "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors([processor]),
    }
    torch.manual_seed(0)
    out = Sampler("processed_logprobs")(z.clone(), SamplingMetadata(**fields))
    token, logprob = out.sampled_token_ids[:, 0].long(), out.logprobs_tensors.logprobs[:, 0]
    point = torch.zeros(8, dtype=torch.float64)
    heats = draw(z, point, base, lambda h, t: one.rule(h, t, one.scale._asdict())).temperature
    heats[7] = base
    expected = (z / heats[:, None]).log_softmax(-1).gather(-1, token[:, None])[:, 0]
    assert len({round(x, 4) for x in heats.tolist()}) > 4
    torch.testing.assert_close(logprob, expected, rtol=1e-5, atol=1e-5)


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
        filled = [(row, params, [1], []) for row, params in added]
        update = self.engine.BatchUpdate(batch_size=size, removed=list(removed), added=filled, moved=list(moved))
        self.processor.update_state(update)

    def fill(self, requests: list[Any]) -> None:
        self.update(len(requests), added=enumerate(requests))

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


def test_it_refuses_wrong_keys_and_raw_log_probabilities(runner: Any, engine: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match=r"tau is 2\.0"):
        runner.processor.validate_params(engine.SamplingParams(extra_args={**flat(heat(1)), "tokenpo_tau": 2}))
    runner.processor.validate_params(engine.SamplingParams(min_p=0.5, extra_args={"kv_transfer_params": {}}))
    given = (states(engine),) if isinstance(runner, Slots) else (torch.device("cpu"), False)
    with pytest.raises(Unsupported, match="logprobs_mode='raw_logprobs'"):
        engine.processor(settings("raw_logprobs"), *given)


def test_rows_leave_are_filled_again_moved_and_swapped(engine: SimpleNamespace) -> None:
    """As vLLM reports them: a row that is filled again, or that a move replaces, need not be reported as removed."""
    batch, (a, b, c) = Rows(engine), map(heat, (1, 2, 3))
    one_way, swap = engine.MoveDirectionality.UNIDIRECTIONAL, engine.MoveDirectionality.SWAP

    def step(rows: list[Any], removed: Any = (), added: Any = (), moved: Any = ()) -> None:
        batch.update(len(rows), removed, [(row, batch.request(one)) for row, one in added], moved)
        batch.check(rows, len(rows))

    step([a, None, b, c], added=enumerate([a, None, b, c]))
    step([c, None, b], removed=[0], moved=[(3, 0, one_way)])  # the last fills the gap
    step([c, b, None], moved=[(1, 2, swap)])
    step([c, a, None], added=[(1, a)])  # filled again
    step([None, a], moved=[(2, 0, one_way)])  # replaced
    step([None, b, a, c], removed=[1], added=[(1, b), (2, a), (3, c)])
    step([c, b, a, None], moved=[(3, 0, swap)])
    step([c, b], removed=[2, 3])
    batch.processor.update_state(None)
    batch.check([c, b], 9)


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


def test_odd_rows_keep_every_bit_and_the_order_of_tokens_stays(engine: SimpleNamespace) -> None:
    """Without a heat even a row of NaN keeps its bits; with one, excluded tokens stay excluded, the best stays best."""
    z = random_logits(50, 5)
    z[3], z[5] = torch.nan, -torch.inf
    before, which = z.clone(), torch.tensor([0, 1] * 25)
    which[[3, 5]] = 0
    idle = which == 0
    got = sys.modules[OURS].divide(z, factors(z, which, {1: heat(4)}))
    assert got is z
    assert torch.equal(bits(z[idle]), bits(before[idle])) and not torch.equal(z[~idle], before[~idle])
    assert torch.equal(z[~idle] == -torch.inf, before[~idle] == -torch.inf)
    assert torch.equal(z[~idle].argmax(-1), before[~idle].argmax(-1))


@pytest.mark.parametrize(
    ("named", "temperature", "min_p", "without"),
    [("temperature 0", 0.0, 0.0, ""), ("min_p = 0.1", 1.0, 0.1, ""), ("in place of tokenpo_tau", 1.0, 0.0, "spread")],
)
def test_a_request_that_contradicts_itself(engine, named: str, temperature: float, min_p: float, without: str) -> None:
    keys = {key: value for key, value in flat(heat(0)).items() if key != f"tokenpo_{without}"}
    with pytest.raises(ValueError, match=named):
        engine.processor.validate_params(engine.SamplingParams(temperature=temperature, min_p=min_p, extra_args=keys))
