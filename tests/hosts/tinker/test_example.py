"""`examples/tinker_loop.py` learns on the server in this process, and goes on from its state."""

import runpy
from pathlib import Path

import pytest
import tinker

from tinker_support import MODEL, Cloud, Service
from tokenpo.train.models.directory import ASSETS

EXAMPLE = Path(__file__).parents[3] / "examples" / "tinker_loop.py"
WORDS = ('--task dial_sum --options {"operands":[3,6]} --length 40 --problems 16 --every 2 --lr 2e-4 --state').split()


def test_the_example_learns_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    cloud = Cloud(ASSETS)
    monkeypatch.setattr(tinker, "ServiceClient", lambda base_url: Service(cloud))
    state, said = tmp_path / "state.json", []
    for steps in "24":
        monkeypatch.setattr("sys.argv", ["tinker_loop", "--model", MODEL, *WORDS, str(state), "--steps", steps])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        said += capsys.readouterr().out.splitlines()
    right = {line.split(":")[0]: float(line.split()[3]) for line in said if line.startswith("after step")}
    assert [*right] == ["after step 0", "after step 2", "after step 4"]
    assert right["after step 4"] > right["after step 0"]
    assert "tinker://run-1/sampler_weights/final" in cloud.saved and said[-1].endswith("final")
