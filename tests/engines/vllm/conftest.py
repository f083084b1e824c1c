"""The processors twice: on a stand-in for vLLM's interfaces, and on vLLM itself where it is installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from vllm_support import stand_in

OURS = ("tokenpo.engines.vllm.v1", "tokenpo.engines.vllm.v2", "tokenpo.engines.vllm.processor")
MISSING = "vLLM is not installed: the processors ran on a stand-in for its interfaces only"


@pytest.fixture(params=["stand-in", "vllm"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """What the tests use of vLLM, and our modules imported on top of it."""
    with _imported(request.param) as engine:
        yield engine


@pytest.fixture
def vllm() -> Iterator[SimpleNamespace]:
    """The same, of vLLM itself."""
    with _imported("vllm") as engine:
        yield engine


@contextmanager
def _imported(kind: str) -> Iterator[SimpleNamespace]:
    before = dict(sys.modules)
    for name in OURS:
        sys.modules.pop(name, None)
    if kind == "stand-in":
        sys.modules.update(stand_in.modules())
    else:
        pytest.importorskip("vllm", reason=MISSING)
    try:
        yield _engine()
    finally:
        for name in set(sys.modules) - set(before):
            if name in OURS or kind == "stand-in":
                del sys.modules[name]
        sys.modules.update(before)


def _engine() -> SimpleNamespace:
    v1 = importlib.import_module("vllm.v1.sample.logits_processor")
    v2 = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor")
    ours = [importlib.import_module(name) for name in OURS]
    return SimpleNamespace(
        SamplingParams=importlib.import_module("vllm").SamplingParams,
        V1=v1.LogitsProcessor,
        V2=v2.LogitsProcessor,
        BatchUpdate=v1.BatchUpdate,
        MoveDirectionality=v1.MoveDirectionality,
        LogitsContext=v2.LogitsContext,
        LogitsProcRequestState=v2.LogitsProcRequestState,
        ours_v1=ours[0].AdaptiveTemperatureV1,
        ours_v2=ours[1].AdaptiveTemperatureV2,
        processor=ours[2].AdaptiveTemperatureProcessor,
    )
