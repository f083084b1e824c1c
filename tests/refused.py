"""What the tests of refusals share."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tokenpo.base.errors import TokenPOError, Unsupported

Row = tuple[str, Callable[..., object]]


def check(names: str | Sequence[str], ask: Callable[..., object], *given: Any, error: type = Unsupported) -> None:
    """The request raises exactly this error, whose message has every name; a text is names with spaces between."""
    with pytest.raises(TokenPOError) as raised:
        ask(*given)
    assert type(raised.value) is error
    assert not [name for name in (names.split() if isinstance(names, str) else names) if name not in str(raised.value)]
