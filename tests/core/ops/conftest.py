"""What the tests of several operations share."""

from __future__ import annotations

import pytest

from tokenpo.core.ops import residual


@pytest.fixture(params=["torch", "compiled"])
def way(request, monkeypatch):
    """Both ways to the residual of a softmax on a processor."""
    if request.param == "torch":
        monkeypatch.setattr(residual, "_of", lambda device, dtype: residual._TORCH)
    elif residual.compiler() is None:
        pytest.skip("no C compiler: torch's passes alone were tested")
    return request.param
