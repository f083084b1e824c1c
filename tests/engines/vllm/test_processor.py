"""One name for both runners, found by vLLM's own loaders; an interface that moved is one sentence."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import sys

import pytest
import torch

from tokenpo.base.errors import Unsupported
from tokenpo.engines.vllm import PROCESSOR
from tokenpo.engines.vllm.runners import V1Rows, V2Slots
from vllm_support import flat, heat, settings, stand_in

OURS = "tokenpo.engines.vllm.processor"


def test_one_class_serves_both_runners(engine):
    module, _, name = PROCESSOR.partition(":")
    assert getattr(sys.modules[module], name) is engine.processor
    assert issubclass(engine.processor, engine.V1) and issubclass(engine.processor, engine.V2)
    params = engine.SamplingParams(temperature=0.8, extra_args=flat(heat(1)))
    z = torch.randn(1, 17, generator=torch.Generator().manual_seed(0))

    first = engine.processor(settings(), torch.device("cpu"), False)
    assert isinstance(first.chosen, V1Rows) and first.is_argmax_invariant() is True
    first.update_state(engine.BatchUpdate(1, [], [(0, params, [1], [])], []))
    one = first.apply(z / 0.8)

    states = engine.LogitsProcRequestState(torch.device("cpu"), 4, 17, None, None, None, None)
    second = engine.processor(settings(), states)
    assert isinstance(second.chosen, V2Slots) and second.add_request(2, params) is True
    second.apply_staged_writes()
    rows = torch.tensor([2])
    two = second.apply(z.clone(), engine.LogitsContext(rows, rows, rows.numpy(), rows, rows, rows, rows.numpy()))
    assert not torch.allclose(one, z / 0.8)
    torch.testing.assert_close(one, two / 0.8)

    engine.processor.validate_params(engine.SamplingParams(min_p=0.5, extra_args={"kv_transfer_params": {}}))


@pytest.fixture
def changed(monkeypatch):
    """Modules like vLLM's, for a test to change, in the place of what is installed."""
    for name in [name for name in sys.modules if name.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    made = stand_in.modules()
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    # Forgotten again when the test ends.
    monkeypatch.setitem(sys.modules, OURS, None)
    del sys.modules[OURS]
    return made


def ours():
    return importlib.import_module(OURS)


def test_a_runner_that_is_not_there_is_no_obstacle(changed, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu.sample.logits_processor", None)
    only = ours().AdaptiveTemperatureProcessor
    assert issubclass(only, stand_in.V1) and not issubclass(only, stand_in.V2)
    assert only(settings(), torch.device("cpu"), False).is_argmax_invariant()
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", None)
    monkeypatch.delitem(sys.modules, OURS)
    with pytest.raises(
        Unsupported, match=r"vLLM's logits processors are at neither .*: tokenpo's logits processor ran with"
    ):
        ours()


def test_an_interface_that_moved_is_the_trouble_of_its_own_runner(changed):
    class Moved(stand_in.V2):
        def apply(self, logits, ctx, more): ...

    changed["vllm.v1.worker.gpu.sample.logits_processor"].LogitsProcessor = Moved
    both = ours().AdaptiveTemperatureProcessor
    assert both(settings(), torch.device("cpu"), False).is_argmax_invariant()
    sentence = (
        r"LogitsProcessor.apply has \(logits, ctx, more\), not \(logits, ctx\): tokenpo's logits processor ran with "
        r"vLLM 0.31 to 0.33 and this is stand-in; install one of those versions, or switch the adaptive temperature off"
    )
    with pytest.raises(Unsupported, match=sentence):
        both(settings(), object())


@pytest.mark.parametrize(
    ("name", "other", "sentence"),
    [
        (
            "BatchUpdate",
            dataclasses.make_dataclass("Fewer", ["removed"]),
            r"has \(removed\), not \(removed, added, moved",
        ),
        ("MoveDirectionality", enum.Enum("Other", ["BOTH"]), r"MoveDirectionality has \(BOTH\), not \(SWAP\): "),
        ("MoveDirectionality", None, "MoveDirectionality is gone: tokenpo's"),
        ("LogitsProcessor", type("Half", (stand_in.V1,), {"update_state": None}), "Processor.update_state is gone: "),
    ],
)
def test_what_is_gone_or_has_other_names_is_named(changed, name, other, sentence):
    both = ours().AdaptiveTemperatureProcessor
    setattr(changed["vllm.v1.sample.logits_processor"], name, other)
    with pytest.raises(Unsupported, match=sentence):
        both(settings(), torch.device("cpu"), False)


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
    with pytest.raises(VLLMValidationError, match="tokenpo_tau = 1 must be in"):
        validate(vllm.SamplingParams(extra_args={**flat(heat(1)), "tokenpo_tau": 1.0}))


def test_vllms_v1_sampler_reports_our_samplers_log_probabilities(vllm):
    """The whole V1 sampler: temperature, processor, draw, processed log-probabilities."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    from tokenpo.models.token_draw import draw

    one, base = heat(6), 0.8
    z = torch.randn(8, 17, generator=torch.Generator().manual_seed(1)) * 2
    processor = vllm.processor(settings(), torch.device("cpu"), False)
    params = vllm.SamplingParams(temperature=base, extra_args=flat(one))
    processor.update_state(vllm.BatchUpdate(8, [], [(row, params, [1], []) for row in range(7)], []))
    fields = dict.fromkeys(SamplingMetadata.__dataclass_fields__)
    fields |= {
        "temperature": torch.full((8,), base), "all_greedy": False, "all_random": True, "generators": {},
        "max_num_logprobs": 0, "no_penalties": True, "output_token_ids": [[]] * 8, "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors([processor]),
    }  # fmt: skip
    torch.manual_seed(0)
    out = Sampler("processed_logprobs")(z.clone(), SamplingMetadata(**fields))
    token, logprob = out.sampled_token_ids[:, 0].long(), out.logprobs_tensors.logprobs[:, 0]
    point = torch.zeros(8, dtype=torch.float64)
    heats = draw(z, point, base, lambda h, t: one.rule(h, t, one.scale._asdict())).temperature
    heats[7] = base
    expected = (z / heats[:, None]).log_softmax(-1).gather(-1, token[:, None])[:, 0]
    assert len({round(x, 4) for x in heats.tolist()}) > 4
    torch.testing.assert_close(logprob, expected, rtol=1e-5, atol=1e-5)
