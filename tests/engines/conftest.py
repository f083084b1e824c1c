"""One thread in every test of an engine, whatever its recipe sets; and a Tinker server in this process."""

from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the test's sessions meet: the model that ships with the package, elsewhere."""
    from tinker_support import Cloud, Service
    from tokenpo.models.directory import ASSETS

    cloud = Cloud(ASSETS)
    monkeypatch.setattr("tokenpo.engines.tinker.service.connect", lambda config: Service(cloud))
    return cloud
