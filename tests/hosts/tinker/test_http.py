"""The real clients over HTTP: a server that breaks, lies or says nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tinker.proto import tinker_public_pb2 as proto

from run_views import lines, numbers
from tinker_support import resume, train
from tinker_support.http import JSON, PROTO, Wire
from tinker_support.http import whole as as_it_is
from tokenpo.base.errors import TokenPOError
from tokenpo.hosts.tinker.gradient import CROSS_ENTROPY

Reply = tuple[int, dict[str, str], bytes] | None
HTML = 200, {"Content-Type": "text/html"}, b"<html>log in</html>"
TRY_AGAIN = 408, JSON, json.dumps({"type": "try_again"}).encode()
FAILED = 200, JSON, json.dumps({"error": "the GPU is on fire", "category": "server"}).encode()
BROKEN = 500, JSON, b'{"detail": "oh"}'


@pytest.fixture(autouse=True)
def unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the probe, as requests are counted from the start of a run."""
    monkeypatch.setattr("tokenpo.train.run.tinker.loop.probe", lambda create, answers: CROSS_ENTROPY)


UNSPOILT: list[Any] = []  # numbers of a run over a whole server, which is the same for every test


@pytest.fixture
def whole(small, wire: Wire, tmp_path: Path) -> Any:
    if not UNSPOILT:
        UNSPOILT.append(numbers(made(small, wire, tmp_path / "whole")))
    return UNSPOILT[0]


def spoil(wire: Wire, kind: str, change: Callable[[bytes], Reply], at: int, count: int = 10**9) -> None:
    """Changes `count` answers of a kind, from the one with this number on; others come as they did before."""
    before, number = wire.fault, itertools.count(1)

    def fault(told: str, body: bytes) -> Reply:
        return change(body) if told == kind and at <= next(number) < at + count else before(told, body)

    wire.fault = fault


def token(body: bytes) -> Reply:
    told = proto.SampleResponse.FromString(body)
    told.sequences[0].tokens = np.array([2**30], np.int32).tobytes() + told.sequences[0].tokens[4:]
    return 200, PROTO, told.SerializeToString()


def fewer(body: bytes) -> Reply:
    told = proto.ForwardBackwardOutput.FromString(body)
    record = told.loss_fn_outputs[0]
    record.num_datums -= 1
    record.fields["logprobs"].offsets = record.fields["logprobs"].offsets[:-8]
    return 200, PROTO, told.SerializeToString()


# (kind of answer, its number in the second step, what comes in its place, words of the sentence)
ENDS: list[Any] = [
    ("sample", 5, token, "the token 1073741824, which its tokenizer does not have"),
    ("sample", 5, lambda body: (200, PROTO, body[:9]), "in sampling: ValueError: Proto"),
    ("sample", 5, lambda body: (200, JSON, b"{}"), "in sampling: ValueError"),
    ("sample", 5, lambda body: (200, PROTO, b""), "in sampling: AssertionError: 4 sequence ids for 0"),
    ("sample", 5, lambda body: FAILED, "the GPU is on fire"),
    ("forward", 3, fewer, "it scored .* sequences, and was sent"),
    ("forward", 3, lambda body: HTML, "in an update: "),
    ("forward", 3, lambda body: (404, JSON, b"{}"), "in an update: ValueError: .* status 404"),
    ("backward", 3, lambda body: (200, PROTO, b""), "in an update: it scored 0 sequences"),
    ("backward", 3, lambda body: FAILED, "the GPU is on fire"),
    ("step", 3, lambda body: (200, JSON, b"[]"), "in an update: "),
    ("sampler", 2, lambda body: (200, JSON, b'{"path": null}'), "in giving the weights to a sampler: "),
    ("save", 1, lambda body: (200, JSON, b'{"path": 7}'), "in saving a checkpoint: "),
    ("promise", 15, lambda body: (401, JSON, b'{"detail": "who are you"}'), "failed "),
]


def made(small: Any, wire: Wire, out: Path | None = None, seconds: float = 600.0) -> Path:
    more = {} if out is None else {"output": {"dir": str(out)}}
    config = small(train={"steps": 2}, tinker={"base_url": wire.address, "seconds": seconds}, **more)
    return train(config).directory


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, *_ in ENDS))
def test_an_answer_that_is_none_ends_the_run_in_one_sentence(kind, small, wire: Wire, whole) -> None:
    """One answer after the other is none, to as many processes that go on with the run."""
    (at, first, words), *others = ((at, change, words) for each, at, change, words in ENDS if each == kind)
    spoil(wire, kind, first, at)
    directory = refused(lambda: made(small, wire), words, small, wire)
    for _, change, words in others:
        wire.fault = as_it_is
        spoil(wire, kind, change, 1)
        refused(lambda: resume(directory), words, small, wire)
    wire.fault = as_it_is
    assert resume(directory).finished and numbers(directory) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "at", "reply"), [("sample", 5, TRY_AGAIN), ("sample", 5, BROKEN), ("step", 3, None)])
def test_an_answer_that_never_comes_ends_the_run_in_one_sentence(kind, at, reply, small, wire: Wire, whole) -> None:
    spoil(wire, kind, lambda body: reply, at)
    directory = refused(lambda: made(small, wire, seconds=20.0), "no answer came in time", small, wire)
    wire.fault = as_it_is
    assert resume(directory).finished and numbers(directory) == whole


def refused(run: Callable[[], Any], words: str, small: Any, wire: Wire) -> Path:
    """The directory of a run that ends in its second step."""
    with pytest.raises(TokenPOError, match=words) as ended:
        run()
    assert str(ended.value).startswith(f"the Tinker server at {wire.address} failed ")
    directory = Path(small().output.dir)
    assert [line["step"] for line in lines(directory)] == [1]
    return directory


# The client asks again by itself but for FAILED, and we for a sample.
@pytest.mark.parametrize("reply", [None, BROKEN, TRY_AGAIN, FAILED])
def test_a_short_failure_changes_nothing(reply, small, wire: Wire, whole) -> None:
    for kind, at in [("sample", 6), *([] if reply == FAILED else [("forward", 2), ("step", 2)])]:
        spoil(wire, kind, lambda body: reply, at, 2)
    assert numbers(made(small, wire)) == whole


@pytest.mark.parametrize("reply", [HTML, (500, JSON, b"{}"), (401, JSON, b"{}"), (200, JSON, b"7"), None])
@pytest.mark.parametrize("kind", ["create_session", "client/config", "get_info"])
def test_a_session_that_cannot_begin_is_one_sentence(kind, reply, small, wire: Wire) -> None:
    spoil(wire, kind, lambda body: reply, 1)
    with pytest.raises(TokenPOError, match=f"the Tinker server at {wire.address} failed "):
        made(small, wire, seconds=0.5)
    assert not Path(small().output.dir).exists()
