"""The installed client over HTTP, from the probe to a resumed run; `make test-tinker-clients` takes several of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_views import lines
from tinker_support import resume, train
from tinker_support.http import Wire, whole
from tokenpo.base.errors import TokenPOError


@pytest.mark.parametrize("divides", [False, True])
def test_a_run_and_its_resume(divides: bool, small, wire: Wire) -> None:
    wire.cloud.divides = divides
    given = {"tinker": {"base_url": wire.address, "seconds": 60.0}}
    directory = train(small(**given, train={"steps": 1})).directory
    (first,) = lines(directory)
    assert first["reward"] > 0  # responses end where they were asked to
    assert resume(directory, small(**given, train={"steps": 2})).finished
    assert [line["step"] for line in lines(directory)] == [1, 2] and Path(directory, "service.json").is_file()
    wire.fault = lambda kind, body: (200, {}, b"?") if kind == "sample" else whole(kind, body)
    with pytest.raises(TokenPOError, match="failed in sampling: "):
        resume(directory, small(**given, train={"steps": 3}))
