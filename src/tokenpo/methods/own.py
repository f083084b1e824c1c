"""A builder of the user's own, by its path."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..calling import Loaded
from ..errors import TokenPOError, require_loaded
from ..objective import Objective


@functools.cache
def own(name: str) -> Callable[..., Objective]:
    """The function at "file.py:function" or "package.module:function", held to what a builder returns.

    Its module is executed, once in a process: equal parts of its objectives stay equal.

    Raises:
        UnknownName: no such module or function.
        TokenPOError: the module cannot be imported.
    """
    loaded = Loaded(name)
    require_loaded(f"method {name}", loaded.about)
    assert loaded.function is not None
    build: Callable[..., Any] = loaded.function

    @functools.wraps(build)
    def held(**options: Any) -> Objective:
        try:
            objective = build(**options)
        except (TokenPOError, TypeError):
            raise
        # Whatever the user's code raises.
        except Exception as error:
            raise TokenPOError(f"method {name} raised {type(error).__name__}: {error}") from error
        if isinstance(objective, Objective):
            return objective
        raise TokenPOError(f"method {name} returned a {type(objective).__name__}: let it return a tokenpo.Objective")

    return held
