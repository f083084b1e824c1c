"""The installed client over HTTP, from the probe to a resumed run; `make test-tinker-clients` takes several of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_views import lines
from tinker_support import Cloud
from tinker_support.http import Wire, whole
from tokenpo.base.errors import TokenPOError
from tokenpo.cli.view import SilentView
from tokenpo.engines.tinker import answers
from tokenpo.engines.tinker.loop import resume, train
from tokenpo.models.directory import ASSETS


@pytest.mark.parametrize("divides", [False, True])
def test_a_run_and_its_resume(divides: bool, small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setattr(answers, "PAUSE", 0.0)
    wire = Wire(Cloud(ASSETS, divides=divides))
    given = {"tinker": {"base_url": wire.address, "seconds": 60.0}}
    directory = train(small(**given, train={"steps": 1}), SilentView()).directory
    (first,) = lines(directory)
    assert first["reward"] > 0  # responses end where they were asked to
    assert resume(directory, SilentView(), small(**given, train={"steps": 2})).finished
    assert [line["step"] for line in lines(directory)] == [1, 2] and Path(directory, "service.json").is_file()
    wire.fault = lambda kind, body: (200, {}, b"?") if kind == "sample" else whole(kind, body)
    with pytest.raises(TokenPOError, match="failed in sampling: "):
        resume(directory, SilentView(), small(**given, train={"steps": 3}))
