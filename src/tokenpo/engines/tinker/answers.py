"""Every answer of a server comes through here: a bounded wait, few tries, one sentence where none is good.

`tinker` is imported where it is called: what reads a response needs no client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from torch import Tensor

from ...base.background import background
from ...base.errors import TokenPOError
from ...base.text import first_line
from ...recipe.config import Config, Tinker

T = TypeVar("T")
S = TypeVar("S", covariant=True)
TRIES = 3  # of a request that changes nothing on the server; the client itself has tried for minutes
PAUSE = 2.0  # seconds before the second
SLACK = 2**11  # rows of a model's embedding beyond its tokenizer: they are padded to round numbers
HIGHEST = 0.1  # a log-probability, by rounding
SERVICE = "https://tinker.thinkingmachines.dev/services/tinker-prod"


def address(given: str | None) -> str:
    """Of the server: what is given, else TINKER_BASE_URL, else the service."""
    return (given or os.environ.get("TINKER_BASE_URL") or SERVICE).rstrip("/")


def value(answer: Any) -> Any:
    """What a call gave: since tinker 0.38 the calls that make a client return a future, too."""
    return answer.result() if hasattr(answer, "result") else answer


class Nonsense(TokenPOError):
    """An answer that no server gives which has this model."""


class Answer(Protocol[S]):
    """What a request returns: the client's futures, and those of the standard library."""

    def result(self, timeout: float | None = None) -> S: ...


class Answers:
    """A server as the one who answers.

    Args:
        address: of the server, for messages.
        seconds: the longest wait for an answer.
    """

    def __init__(self, address: str = "", seconds: float = Tinker().seconds) -> None:
        self.address, self.seconds, self.again = address, seconds, 0
        self.server = f"the Tinker server at {address}" if address else "the Tinker server"

    @classmethod
    def of(cls, config: Config) -> Answers:
        return cls(address(config.tinker.base_url), config.tinker.seconds)

    @contextlib.contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """For code that asks or reads an answer: every error of the client is a TokenPOError with what came."""
        try:
            yield
        except MemoryError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, TokenPOError) and not isinstance(error, Nonsense):
                raise
            more = f", after {self.again} requests that were made again" if self.again else ""
            raise TokenPOError(
                f"{self.server} failed {doing}: {_words(error)}{more}; once it answers, the run goes on from its last "
                "checkpoint with --resume RUN --engine tinker"
            ) from error

    def one(self, ask: Callable[[], Answer[T] | T], doing: str) -> T:
        """The answer to a request that is made once; raises as `all`."""
        return self.call(lambda: value(ask()), doing)

    def call(self, call: Callable[[], T], doing: str) -> T:
        """What a call returns which itself waits for the server, without an end of its own; raises as `all`."""
        return self.all([lambda: background(call)], doing, tries=1)[0]

    def all(self, asks: Sequence[Callable[[], Answer[T]]], doing: str, tries: int = TRIES) -> list[T]:
        """The answers to requests that are made together, in order.

        Raises:
            TokenPOError: one failed as often as it may be tried, or no answer came in time.
        """
        with self.asking(doing):
            return [self._waited(future, ask, tries) for future, ask in [(ask(), ask) for ask in asks]]

    def _waited(self, future: Answer[T], ask: Callable[[], Answer[T]], tries: int) -> T:
        for number in range(1, tries):
            since = time.monotonic()
            try:
                return future.result(self.seconds)
            except (Exception, asyncio.CancelledError):
                if time.monotonic() - since >= self.seconds:
                    raise
            self.again += 1
            time.sleep(PAUSE * number)
            future = ask()
        return future.result(self.seconds)


def require_scores(logprob: Tensor, tokens: int) -> None:
    """Raises Nonsense where these are not the log-probabilities of as many tokens; NaN is judged where it is used."""
    if logprob.shape != (tokens,):
        raise Nonsense(f"it gave log-probabilities of the shape {list(logprob.shape)} for {tokens} tokens")
    if bool((logprob > HIGHEST).any()):
        raise Nonsense(f"it gave the log-probability {float(logprob.max()):g}, which is above 0")


def require_path(path: object) -> str:
    """The path of what was saved; raises Nonsense where it is none."""
    if not isinstance(path, str) or not path:
        raise Nonsense(f"it saved something under {path!r:.80}, which is no path")
    return path


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer came in time (tinker.seconds)"
    from tinker import TinkerError, __version__

    plain = isinstance(error, (TinkerError, RuntimeError, Nonsense)) and str(error)
    words = f"{'' if plain else f'{type(error).__name__}: '}{first_line(error)}"[:300]
    fits = f" (tinker {__version__} wants that; another client may fit this server)"
    return words + (fits if isinstance(error, AssertionError) else "")
