"""Waits for every answer of a server: a limit in seconds, and one error message if it fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from ...base.errors import TokenPOError
from ...base.text import first_line

SECONDS = 3600.0  # the longest wait for an answer
SERVICE = "https://tinker.thinkingmachines.dev/services/tinker-prod"


def value(answer: Any) -> Any:
    """The result of a call that may return a future; since tinker 0.38 calls that create a client do."""
    return answer.result() if hasattr(answer, "result") else answer


class Answers:
    """Sends requests to a server and waits for its answers, at most `seconds` each; the client repeats those lost."""

    def __init__(self, address: str = "", seconds: float = SECONDS) -> None:
        self.address, self.seconds = address, seconds
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
            raise TokenPOError(
                f"{self.server} failed {doing}: {_words(error)}; once it answers, the run goes on from its last "
                "checkpoint with --resume RUN --engine tinker"
            ) from error

    def one(self, ask: Callable[[], Any], doing: str) -> Any:
        """The answer to a request that may wait in the call itself; raises like `all`."""
        return self.all([lambda: _background(lambda: value(ask()))], doing)[0]

    def all(self, asks: Sequence[Callable[[], Any]], doing: str) -> list[Any]:
        """The answers to requests that are sent together; TokenPOError if one failed or came too late."""
        with self.asking(doing):
            return [future.result(self.seconds) for future in [ask() for ask in asks]]


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
