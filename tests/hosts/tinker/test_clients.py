"""The installed client over HTTP, from the probe to a resumed run; `make test-tinker-clients` takes several of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_views import lines
from tinker_support import resume, train
from tinker_support.http import Wire, whole
from tokenpo.base.errors import TokenPOError
from tokenpo.hosts.tinker import probe
from tokenpo.train.run.tinker import loop


def test_a_run_and_its_resume(small, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the resume the server becomes one that divides by the sum of the weights: both losses go over HTTP."""
    probed: list[str] = []
    monkeypatch.setattr(loop, "probe", lambda *given: probed.append((loss := probe(*given)).name) or loss)
    given = {"tinker": {"base_url": wire.address, "seconds": 60.0}}
    directory = train(small(**given, train={"steps": 1})).directory
    (first,) = lines(directory)
    assert first["reward"] > 0  # responses end where they were asked to
    wire.cloud.divides = True
    assert resume(directory, small(**given, train={"steps": 2})).finished
    assert probed == ["cross_entropy", "importance_sampling"]
    assert [line["step"] for line in lines(directory)] == [1, 2] and Path(directory, "service.json").is_file()
    wire.fault = lambda kind, body: (200, {}, b"?") if kind == "sample" else whole(kind, body)
    with pytest.raises(TokenPOError, match="failed in sampling: "):
        resume(directory, small(**given, train={"steps": 3}))
