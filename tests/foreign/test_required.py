"""A missing foreign package skips its tests, and fails where the lane was set up to have it."""

import pytest

from foreign_support import need
from foreign_support.required import REQUIRED


def test_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^nothing was compared$"):
        need("no_such_package.of_ours", "nothing was compared")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        need("no_such_package.of_ours", "nothing was compared")


@pytest.mark.parametrize("value", ["", "1"])
def test_present(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, value)
    assert need("json.decoder", "nothing was compared").__name__ == "json.decoder"
