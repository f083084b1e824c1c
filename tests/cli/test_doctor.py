from importlib.metadata import version

from tokenpo.cli.doctor import examine
from tokenpo.cli.main import main

TORCH = version("torch")


def test_a_requirement_is_there_absent_or_of_another_version():
    required = [
        "torch>=2",
        "numpy>=99; extra == 'far'",
        "no-such-package>=1; extra == 'far'",
        "pytest; extra == 'near'",
    ]
    assert examine(required, "near") == ([f"pytest {version('pytest')}"], [])
    assert examine(required, "far") == ([], [f"numpy>=99 (here {version('numpy')})", "no-such-package>=1"])


def test_doctor_shows_torch_and_what_is_ready(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert TORCH in shown
    assert "train    ready" in shown
