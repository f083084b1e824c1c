"""The processors twice: on a stand-in for vLLM's interfaces, and on vLLM itself where it is installed."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from vllm_support import stand_in

OURS = "tokenpo.hosts.vllm.processor"
MISSING = "vLLM is not installed: the processors ran on a stand-in for its interfaces only"


@pytest.fixture(params=["stand-in", "vllm"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """What the tests use of vLLM, and our processor imported on top of it."""
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
    sys.modules.pop(OURS, None)
    if kind == "stand-in":
        sys.modules.update(stand_in.modules())
    else:
        pytest.importorskip("vllm", reason=MISSING)
    try:
        yield _engine()
    finally:
        for name in set(sys.modules) - set(before):
            if name == OURS or kind == "stand-in":
                del sys.modules[name]
        sys.modules.update(before)


def _engine() -> SimpleNamespace:
    v1 = importlib.import_module("vllm.v1.sample.logits_processor")
    v2 = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor")
    return SimpleNamespace(
        SamplingParams=importlib.import_module("vllm").SamplingParams,
        V1=v1.LogitsProcessor,
        V2=v2.LogitsProcessor,
        BatchUpdate=v1.BatchUpdate,
        MoveDirectionality=v1.MoveDirectionality,
        LogitsContext=v2.LogitsContext,
        LogitsProcRequestState=v2.LogitsProcRequestState,
        processor=importlib.import_module(OURS).AdaptiveTemperatureProcessor,
    )
