"""A server that answers nonsense, too late or not at all: one sentence, and a run that goes on as it would have."""

import asyncio
import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tinker import SampledSequence, SampleResponse

from run_views import lines, numbers
from tinker_support import Cloud, resume, train
from tinker_support.server import Sampler
from tokenpo.base.errors import TokenPOError
from tokenpo.hosts.tinker import answers

REQUEST = httpx.Request("POST", "http://server/api")
ERRORS = (
    httpx.ReadTimeout("timed out", request=REQUEST),
    tinker.InternalServerError("Error 500\nand more", response=httpx.Response(500, request=REQUEST), body=None),
    KeyError("logprobs"),
    TimeoutError(),
    AssertionError(),
    asyncio.CancelledError(),
)


def sampled(change: Callable[[dict[str, Any]], Any]) -> Callable[[SampleResponse], SampleResponse]:
    """Changes tokens, log-probabilities or the stop reason of the first response to a prompt."""

    def changed(response: SampleResponse) -> SampleResponse:
        first, *others = response.sequences
        row = {"tokens": list(first.tokens), "logprobs": list(first.logprobs or ()), "stop": first.stop_reason}
        change(row)
        made = SampledSequence(row["stop"], "0", _tokens_list=row["tokens"], _logprobs_list=row["logprobs"])
        return SampleResponse([made, *others])

    return changed


def scored(change: Callable[[list], Any]) -> Callable[[Any], Any]:
    return lambda output: dataclasses.replace(output, loss_fn_outputs=change(list(output.loss_fn_outputs)))


# (kind of request, what is done to its answer, words of the sentence)
NONSENSE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("sample", sampled(lambda row: row["tokens"].__setitem__(0, None)), "in sampling: TypeError"),
    ("forward", scored(lambda rows: rows[:-1]), "in an update: ValueError"),
    ("forward", scored(lambda rows: [{}, *rows[1:]]), "KeyError: 'logprobs'"),
    ("save", lambda answer: None, "AttributeError"),
    ("final", lambda answer: None, "AttributeError"),
]


def spoil(cloud: Cloud, kind: str, change: Callable[[Any], Any], at: int) -> None:
    """Changes the answer to the request of this kind with this number, and to no other."""
    count = itertools.count(1)
    cloud.fault = lambda asked, answer: change(answer) if asked == kind and next(count) == at else answer


UNSPOILT: list[list] = []  # numbers of a run whose answers are whole, which is the same for every test


@pytest.fixture
def whole(small, cloud: Cloud, tmp_path: Path) -> list:
    if not UNSPOILT:
        UNSPOILT.append(numbers(train(small(output={"dir": str(tmp_path / "whole")})).directory))
    return UNSPOILT[0]


@contextlib.contextmanager
def one_sentence(words: str) -> Iterator[None]:
    with pytest.raises(TokenPOError, match=words) as refused:
        yield
    said = str(refused.value)
    assert said.startswith("the Tinker server at http") and "--resume RUN --engine tinker" in said
    assert r"\n" not in said and len(said) < 600


def stopped(small, cloud: Cloud, words: str, kind: str) -> Path:
    """Trains until the server fails in the second step, or at the end; the directory."""
    with one_sentence(words):
        train(small())
    directory = Path(small().output.dir)
    assert [line["step"] for line in lines(directory)] == ([1, 2, 3] if kind == "final" else [1]), kind
    cloud.fault = lambda asked, answer: answer
    return directory


SECOND = {"sample": 6, "sampler": 2, "forward": 3, "backward": 3, "step": 3, "save": 1, "final": 1}


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, *_ in NONSENSE))
def test_nonsense_is_one_sentence_and_the_run_goes_on(kind, small, cloud: Cloud, whole: list) -> None:
    """One answer after the other is nonsense, to as many processes that go on with the run."""
    (first, words), *others = ((change, words) for each, change, words in NONSENSE if each == kind)
    spoil(cloud, kind, first, SECOND[kind])
    directory = stopped(small, cloud, words, kind)
    made = numbers(directory)
    for change, words in others:
        spoil(cloud, kind, change, 1)
        with one_sentence(words):
            resume(directory)
        assert numbers(directory) == made
    cloud.fault = lambda asked, answer: answer
    assert resume(directory).finished and numbers(directory) == whole


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_is_one_sentence(error) -> None:
    future: Future = Future()
    future.set_exception(error)
    with one_sentence("the Tinker server at http://server failed in a test: "):
        answers.Answers("http://server").one(lambda: future, "in a test")


def test_an_answer_that_never_comes_is_waited_for_once(small, cloud: Cloud, monkeypatch) -> None:
    monkeypatch.setattr(Sampler, "sample", lambda *args, **more: Future())
    with pytest.raises(TokenPOError, match=r"no answer came in time \(tinker.seconds\)"):
        train(small(tinker={"seconds": 0.1}))
    assert not Path(small().output.dir).exists()


def test_scores_of_a_sampler_are_one_for_each_token(small, cloud: Cloud) -> None:
    cloud.fault = lambda kind, answer: [None] if kind == "scores" else answer
    with pytest.raises(TokenPOError, match=r"gave 0 log-probabilities for a sequence of \d+ tokens"):
        train(small(method={"name": "adv_reweight"}))


def test_a_log_probability_that_is_not_finite_skips_the_batch_or_stops(small, cloud: Cloud, tmp_path: Path) -> None:
    change = sampled(lambda row: row["logprobs"].__setitem__(0, float("nan")))
    spoil(cloud, "sample", change, 6)
    with pytest.raises(TokenPOError, match=r"step 2, rollouts: the server returned a log-probability that is not fin"):
        train(small())
    spoil(cloud, "sample", change, 6)
    skipping = small(train={"nonfinite": "skip"}, output={"dir": str(tmp_path / "skip")})
    assert [line["skipped_updates"] for line in lines(train(skipping).directory)] == [0, 2, 0]


def test_a_call_that_waits_by_itself_is_left_when_the_time_is_over() -> None:
    """Five seconds are all that it would take by itself, so that a wait for it fails here and does not hang."""
    over = threading.Event()
    with pytest.raises(TokenPOError, match=r"no answer came in time \(tinker.seconds\)"):
        answers.Answers("http://here", seconds=0.01).one(lambda: over.wait(5.0), "in a test")
    over.set()
