"""Errors that a user can correct: each message names the thing, the place and the remedy."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

from .text import disarmed

T = TypeVar("T")


class TokenPOError(ValueError):
    """Base of every error on bad input; the message is one line, or a bullet for each of several arguments."""

    def __str__(self) -> str:
        faults = [disarmed(str(fault)).replace("\r", "\\r").replace("\n", "\\n") for fault in self.args]
        return faults[0] if len(faults) == 1 else "\n".join([f"{len(faults)} faults:", *(f"- {x}" for x in faults)])


class UnknownName(TokenPOError, TypeError):
    """A method, keyword or config key that does not exist; the message names the nearest."""


class MissingInput(TokenPOError):
    """An input that an objective `needs` is absent, or a part read the input `name` without declaring it."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Unsupported(TokenPOError):
    """A host was asked for something that it cannot do."""


class OutOfRange(TokenPOError):
    """A value outside the range of a field of a part or an option of a method; `expected` is the range in words."""

    def __init__(self, owner: str, name: str, value: object, expected: str) -> None:
        super().__init__(owner, name, value, expected)
        self.owner, self.name, self.value, self.expected = owner, name, value, expected

    def __str__(self) -> str:
        return f"{self.owner}: {self.name} is {self.value!r:.80}, expected {self.expected}"


class NotFinite(TokenPOError):
    """NaN or an infinity in place of a finite number; `row` is its row in the batch, if it has one."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def refuse(faults: Iterable[str | bool | None], kind: type[TokenPOError] = Unsupported) -> None:
    """Raises one error of this kind with all the faults, leaving out None, False and repeats."""
    if found := list(dict.fromkeys(fault for fault in faults if fault)):
        raise kind(*found)


def nearest(name: str, known: Iterable[str], listed: str = "") -> str:
    """A phrase that names the nearest of `known`, or, if none is near, all up to 20, or else three.

    A name that differs by two swapped neighbouring letters comes first. `listed` is a word before a list of all.

    >>> nearest("hap", ["grpo", "hapo"])
    "did you mean 'hapo'?"
    >>> nearest("gpro", ["gpg", "grpo", "gtpo"])
    "did you mean 'grpo'?"
    >>> nearest("xyz", ["grpo", "hapo"])
    'known: grpo, hapo'
    >>> nearest("hap", ["grpo", "hapo"], "methods")
    "methods: grpo, hapo; did you mean 'hapo'?"
    """
    names = sorted(known := list(known))
    swapped = {name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in range(len(name) - 1)}
    close = [x for x in names if x in swapped] or difflib.get_close_matches(name, names, n=1)
    if listed:
        return f"{listed}: {', '.join(known) or 'none'}" + (f"; did you mean {close[0]!r}?" if close else "")
    if not close and len(names) > 20:
        return f"of {len(names)} the nearest are {', '.join(difflib.get_close_matches(name, names, cutoff=0))}"
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"


def choose(option: str, value: str, table: Mapping[str, T]) -> T:
    """The entry of `table` that an option names; raises UnknownName with the option and the nearest."""
    if value not in table:
        raise UnknownName(f"{option}={value!r} is not a choice; {nearest(str(value), table)}")
    return table[value]


def require_package(what: str, package: str, extra: str) -> None:
    """Raises TokenPOError with the install command if an optional package, which `what` needs, is missing."""
    if find_spec(package) is None:
        raise TokenPOError(f"{what} needs the package {package}: pip install 'tokenpo[{extra}]'")


def present(value: T | None, what: str) -> T:
    """The value, which can be None only by a defect of this package; then RuntimeError names `what`."""
    if value is None:
        raise RuntimeError(f"{what} is missing, a defect of tokenpo: please report it")
    return value


def require_loaded(what: str, about: Mapping[str, Any]) -> None:
    """Raises TokenPOError, or UnknownName for its name, if `user_code.Loaded.about` says that a function failed."""
    if "known" in about:
        raise UnknownName(f"{what}: {about['failed']}: {nearest(about['name'], about['known'])}")
    if "failed" in about:
        raise TokenPOError(f"{what}: {about['failed']}")


# torch's messages on a CPU and on a GPU, those of the libraries that it calls, and the system's.
_SHORTAGE = re.compile(r"can(no|')t allocate memory|CUDA out of memory|ALLOC_FAILED", re.IGNORECASE)


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error means that memory could not be allocated.

    >>> is_shortage(MemoryError()), is_shortage(RuntimeError("CUDA out of memory.")), is_shortage(RuntimeError("no"))
    (True, True, False)
    """
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or (isinstance(error, (RuntimeError, OSError)) and bool(_SHORTAGE.search(str(error))))


@contextlib.contextmanager
def enough_memory(doing: str, remedy: str) -> Iterator[None]:
    """Turns a lack of memory in the block into a TokenPOError with the remedy."""
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        raise TokenPOError(f"memory ran out{doing and ' '}{doing}: {remedy}") from error
