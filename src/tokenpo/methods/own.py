"""Load a user's own method by its path."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ..base.errors import TokenPOError, present, require_loaded
from ..base.user_code import Loaded, summary_of
from ..core.objective import Objective
from .signature import documented


def own(name: str) -> Callable[..., Objective]:
    """The function at "file.py:function" or "package.module:function"; its calls return an objective or raise.

    The module is executed. A file with unchanged bytes is executed once per process, so equal parts stay equal.

    Raises:
        UnknownName: no such module or function.
        TokenPOError: the module cannot be imported.
    """
    loaded = Loaded(name)
    require_loaded(f"method {name}", loaded.about)
    build: Callable[..., Any] = present(loaded.function, name)

    @functools.wraps(build)
    def checked(**options: Any) -> Objective:
        try:
            objective = build(**options)
        except TokenPOError:
            raise
        except (Exception, SystemExit) as error:
            raise TokenPOError(f"method {name} raised {summary_of(error)}") from error
        if not isinstance(objective, Objective):
            raise TokenPOError(
                f"method {name} returned a {type(objective).__name__}: let it return a tokenpo.Objective"
            )
        return dataclasses.replace(objective, name=build.__name__) if objective.name == Objective.name else objective

    checked.__doc__ = documented(build)
    return checked
