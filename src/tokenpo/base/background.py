"""Run a call that may wait on a thread, so that the caller can stop waiting for it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def background(call: Callable[[], T]) -> Future[T]:
    """Runs a call on a daemon thread, which ends with the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
