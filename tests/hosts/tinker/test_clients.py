"""The installed client over HTTP, from the probe to a resumed run; `make test-tinker-clients` takes several of them."""

from pathlib import Path

import pytest

from run_views import lines, numbers
from tinker_support import resume, train
from tinker_support.http import JSON, Wire, whole
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


@pytest.mark.parametrize("reply", [None, (500, JSON, b"{}"), (408, JSON, b'{"type": "try_again"}')])
def test_a_short_failure_changes_nothing(reply, small, wire: Wire) -> None:
    """Two answers of a kind are lost: the client asks again by itself, and we for a sample."""
    given = {"tinker": {"base_url": wire.address, "seconds": 60.0}, "train": {"steps": 2}}
    expected = numbers(train(small(**given)).directory)
    lost = dict.fromkeys(("sample", "forward", "step"), 2)

    def fault(kind: str, body: bytes):
        lost[kind] = lost.get(kind, 0) - 1
        return reply if lost[kind] >= 0 else whole(kind, body)

    wire.fault = fault
    again = {"dir": small().output.dir + "-again"}
    assert numbers(train(small(**given, output=again)).directory) == expected
