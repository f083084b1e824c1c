"""Waits for every answer of a server: a limit in seconds, few tries, and one error message if all fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from ...base.errors import TokenPOError
from ...base.text import first_line

SECONDS = 3600.0  # the longest wait for an answer
TRIES = 3  # of a request without effect on the server; the client itself has already retried for minutes
PAUSE = 2.0  # seconds before the second try
SERVICE = "https://tinker.thinkingmachines.dev/services/tinker-prod"


def value(answer: Any) -> Any:
    """The result of a call that may return a future; since tinker 0.38 calls that create a client do."""
    return answer.result() if hasattr(answer, "result") else answer


class Answers:
    """Sends requests to a server and waits for its answers, at most `seconds` each; `again` counts those repeated."""

    def __init__(self, address: str = "", seconds: float = SECONDS) -> None:
        self.address, self.seconds, self.again = address, seconds, 0
        self.server = f"the Tinker server at {address}" if address else "the Tinker server"

    @classmethod
    def of(cls, address: str | None = None, seconds: float = SECONDS) -> Answers:
        """For the server at this address, else of TINKER_BASE_URL, else the public service."""
        return cls((address or os.environ.get("TINKER_BASE_URL") or SERVICE).rstrip("/"), seconds)

    @contextlib.contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """Context manager for requests and their answers: turns every error inside into a TokenPOError."""
        try:
            yield
        except MemoryError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, TokenPOError):
                raise
            more = f", after {self.again} requests that were made again" if self.again else ""
            raise TokenPOError(
                f"{self.server} failed {doing}: {_words(error)}{more}; once it answers, the run goes on from its last "
                "checkpoint with --resume RUN --engine tinker"
            ) from error

    def one(self, ask: Callable[[], Any], doing: str) -> Any:
        """The answer to a request that is made only once and may wait in the call itself; raises like `all`."""
        return self.all([lambda: _background(lambda: value(ask()))], doing, tries=1)[0]

    def all(self, asks: Sequence[Callable[[], Any]], doing: str, tries: int = TRIES) -> list[Any]:
        """The answers to requests that are sent together; TokenPOError if one failed `tries` times or came too late."""
        with self.asking(doing):
            return [self._waited(future, ask, tries) for future, ask in [(ask(), ask) for ask in asks]]

    def _waited(self, future: Any, ask: Callable[[], Any], tries: int) -> Any:
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


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer came in time (tinker.seconds)"
    from tinker import TinkerError, __version__

    plain = isinstance(error, (TinkerError, RuntimeError)) and str(error)
    words = f"{'' if plain else f'{type(error).__name__}: '}{first_line(error)}"[:300]
    fits = f" (tinker {__version__} wants that; another client may fit this server)"
    return words + (fits if isinstance(error, AssertionError) else "")


def _background(call: Callable[[], Any]) -> Future[Any]:
    """Runs a call on a daemon thread, which ends with the process."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
