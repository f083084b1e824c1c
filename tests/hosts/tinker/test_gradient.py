"""The probe finds the loss that takes a gradient to the weights, and updates by it are the embedded engine's."""

import pytest
import torch
from tinker import Datum, TensorData

from tinker_support import MODEL, Cloud, Service
from tinker_support.server import Weights
from tokenpo.base.errors import Unsupported
from tokenpo.hosts.tinker import probe
from tokenpo.hosts.tinker.gradient import Loss
from tokenpo.train.models.directory import ASSETS


def found(cloud: Cloud) -> Loss:
    return probe(lambda: Service(cloud).create_lora_training_client(MODEL).result())


@pytest.mark.parametrize("chunk", [1, 64])
@pytest.mark.parametrize(("divides", "loss"), [(False, "cross_entropy"), (True, "importance_sampling")])
def test_the_probe_finds_the_loss_that_adds_up(divides: bool, loss: str, chunk: int) -> None:
    assert found(Cloud(ASSETS, chunk=chunk, divides=divides)) == Loss(loss)


@pytest.mark.parametrize("chunk", [1, 64])
@pytest.mark.parametrize(("divides", "loss"), [(False, "cross_entropy"), (True, "importance_sampling")])
def test_the_probe_notices_a_server_that_averages(divides: bool, loss: str, chunk: int, averaging) -> None:
    assert found(Cloud(ASSETS, chunk=chunk, divides=divides)) == Loss(loss, mean=True)


FAULTS = {
    "the sign": lambda told: -told,
    "no gradient": lambda told: 0.0 * told,
    "the positive alone": lambda told: told.clamp(min=0),
    "its size": lambda told: told / told.detach().abs().clamp(min=1e-12) ** 0.9,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_trains_along_something_else_is_refused(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Weights.loss
    monkeypatch.setattr(Weights, "loss", lambda self, *given: FAULTS[fault](right(self, *given)))
    with pytest.raises(
        Unsupported, match=r"does not train along the gradient that it is sent \(with cross_entropy .*;"
    ):
        found(Cloud(ASSETS))


@pytest.mark.parametrize("places", [1, -1])
def test_a_server_that_shifts_the_gradient_is_refused(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Weights.loss

    def loss(self: Weights, logprob: torch.Tensor, datum, kind: str) -> torch.Tensor:
        own = {name: TensorData.from_torch(each.to_torch().roll(places)) for name, each in datum.loss_fn_inputs.items()}
        return passed(self, logprob, Datum(datum.model_input, own), kind)

    monkeypatch.setattr(Weights, "loss", loss)
    with pytest.raises(Unsupported, match=r"with cross_entropy a gradient of alternating signs changed -.* other pos"):
        found(Cloud(ASSETS))


def test_a_server_without_the_other_loss_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Weights.loss

    def loss(self: Weights, logprob: torch.Tensor, datum, kind: str) -> torch.Tensor:
        if kind != "cross_entropy":
            raise ValueError(f"no loss {kind}")
        return right(self, logprob, datum, kind)

    monkeypatch.setattr(Weights, "loss", loss)
    with pytest.raises(Unsupported, match=r"with importance_sampling it failed \(no loss"):
        found(Cloud(ASSETS, divides=True))
