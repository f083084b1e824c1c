"""Load and call a user's function by its dotted path, in this process or in one that can be killed.

Imports nothing of this package: a worker process (worker.py) runs this file by its path.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# Prefix of the names of modules loaded from files; no import statement can have such a name. It has no dot, else pickle
# would look for a package: the processes of `multiprocessing` unpickle a file's functions by this name.
FROM_FILE = "tokenpo user "
# Code that is not the user's: this package and Python's own modules. Installed packages are found by _INSTALLED.
_NOT_OWN = (Path(__file__).parent, Path(os.__file__).parent)
_LONGEST = 500  # characters of an exception's message
_INSTALLED = {"site-packages", "dist-packages"}


class Loaded:
    """A user's function, or the reason why it could not be loaded.

    `about` is plain data: "parameters" (name, has a default, is **), "async" and "source" (a hash); or the reason under
    "failed", where the module has no such function with its "name" and the "known" ones.
    """

    def __init__(self, path: str, search: Sequence[str] = ()) -> None:
        self.path = path
        self.function: Callable[..., Any] | None = None
        place, _, name = path.rpartition(":")
        try:
            is_file = place.endswith(".py")
            folder = [str(Path(place).expanduser().resolve().parent)] if is_file else []
            with _searched([*search, *folder]):  # a file may import its neighbours
                module = _from_file(Path(place)) if is_file else importlib.import_module(place)
        except (Exception, SystemExit) as error:
            text = f"can't import {place!r} ({type(error).__name__[:80]}: {_message(error)})"
            self.about: dict[str, Any] = {"failed": text}
            return
        function = getattr(module, name, None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            own = [key for key in known if getattr(getattr(module, key), "__module__", None) == module.__name__]
            self.about = {"failed": f"{place!r} has no function {name!r}", "name": name, "known": own or known}
            return
        parameters = inspect.signature(function).parameters.values()
        self.function = function
        self.about = {
            "parameters": [
                [p.name, p.default is not p.empty, p.kind is p.VAR_KEYWORD]
                for p in parameters
                if p.kind is not p.VAR_POSITIONAL
            ],
            "async": inspect.iscoroutinefunction(function),
            "source": _source(module, function),
        }

    def __call__(self, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """{"value", "kind"}, or {"raised", "place": file:line, "text", "error"}; without arguments `about`."""
        if arguments is None:
            return self.about
        if self.function is None:
            raise TypeError(f"{self.path} was not loaded")
        try:
            value = self.function(**arguments)
            return {"value": _plain(value), "kind": type(value).__name__[:80]}
        except (Exception, SystemExit) as error:
            raised = {"raised": type(error).__name__[:80], "place": place_of(error)}
            return {**raised, "text": _message(error), "error": error}


def serve(path: str, *search: str) -> Callable[..., Any]:
    """`Loaded` for a worker process, without the "error", which JSON cannot hold."""
    loaded = Loaded(path, search)
    return lambda *job: {key: value for key, value in loaded(*job).items() if key != "error"}


def place_of(error: BaseException) -> str:
    """Innermost traceback frame in the user's own code, as file:line."""
    frame = _frame_of(error)
    return f"{Path(frame.filename).name}:{frame.lineno}"


def summary_of(error: BaseException) -> str:
    """Type, place and message of an exception from the user's code; without a message, the function."""
    text = _message(error)
    inside = "" if text else f" in {_frame_of(error).name}"
    return f"{type(error).__name__[:80]}{inside} at {place_of(error)}{': ' if text else ''}{text}"


def _message(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        text += ": install it, or put its folder on PYTHONPATH"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def _frame_of(error: BaseException) -> traceback.FrameSummary:
    def is_own(frame: traceback.FrameSummary) -> bool:
        path = Path(frame.filename)
        installed = _INSTALLED.intersection(path.parts) or any(path.is_relative_to(place) for place in _NOT_OWN)
        # Generated code, such as the __init__ of a dataclass, has the file name "<string>".
        return not (frame.filename.startswith("<") or installed)

    frames = traceback.extract_tb(error.__traceback__)
    return ([*filter(is_own, frames)] or frames)[-1]


def _source(module: Any, function: Any) -> str:
    """A hash of the module's file and of the file that defines the function (often one file); "" without files."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    named = (getattr(module, "__file__", None), getattr(code, "co_filename", None))
    files = {Path(name).resolve() for name in named if name and Path(name).is_file()}
    whole = b"".join(file.read_bytes() for file in sorted(files))
    return hashlib.sha256(whole).hexdigest()[:16] if files else ""


def _plain(value: Any) -> Any:
    """The value as JSON data: tensors and arrays become lists, other objects their `repr`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _from_file(path: Path) -> Any:
    """The module in a file, executed once per process and again only when the file's bytes have changed."""
    path = path.expanduser().resolve()
    digest = hashlib.sha256(b"\0".join((os.fsencode(path), path.read_bytes()))).hexdigest()[:16]
    name = f"{FROM_FILE}{path.stem.replace('.', '_')} {digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    # Dataclasses and pickle look up a class's module by its name in sys.modules.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _searched(search: Sequence[str]) -> Iterator[None]:
    # At the end of sys.path, so that they shadow no other module.
    new = [entry for entry in search if entry not in sys.path]
    sys.path.extend(new)
    try:
        yield
    finally:
        for entry in new:
            sys.path.remove(entry)
