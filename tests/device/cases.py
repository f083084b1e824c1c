"""All objectives and one training run on the stand-in for a GPU. Run by `test_stand_in`, in a process of its own."""

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import tokenpo
from device.stand_in import DEVICE, NAME, There, stand_in
from gpu.tests import TRAINED, trained
from tokenpo.core import trial
from tokenpo.methods import METHODS


@pytest.fixture(autouse=True)
def device():
    """A program that has the device."""
    with stand_in() as there:
        yield there


def close(there: Tensor, here: Tensor, tolerance: float = 1e-12) -> None:
    assert there.device == DEVICE
    torch.testing.assert_close(there.cpu(), here, rtol=tolerance, atol=tolerance)


def test_two_devices_do_not_meet(device):
    x = torch.ones(3, device=device)
    assert isinstance(x, There) and x.device == DEVICE
    with pytest.raises(RuntimeError, match="two devices"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="numpy"):
        x.numpy()
    assert type(x.cpu()) is Tensor and (x + torch.tensor(1.0)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", METHODS)
def test_an_objective(name, device):
    objective, inputs = tokenpo.method(name), trial.example(0)
    here, there = (x.evaluate(objective) for x in (inputs, inputs.map(lambda x: x.to(device))))
    close(there.loss.value, here.loss.value)
    close(there.gradient, here.gradient)
    close(there.entropy_gradient, here.entropy_gradient)
    mask = inputs.rollouts["mask"]
    for term, x in there.loss.terms.items():
        torch.testing.assert_close(x.cpu()[mask], here.loss.terms[term][mask], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "gspo", "kl_cov"])
def test_trajectories_of_several_rows(name, device):
    objective = tokenpo.method(name)
    rows = trial.example(0).cut(torch.arange(9).expand(16, 9) % 3 == 2)[0].without("version")
    losses = []
    for inputs in (rows, rows.map(lambda x: x.to(device))):
        rollouts, policy = inputs.values()
        losses.append([])
        for update in (
            tokenpo.Learner(objective, length=9, ratio=None).begin(rollouts).updates(minibatches=2, by="rows")
        ):
            update.observe(policy.rows(update.rows))
            losses[-1] += [update.evaluate(policy.rows(piece), piece)[1].value.item() for piece in update.pieces(8)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-12, abs=1e-12) and len(losses[0]) > 2


def test_a_run_is_that_of_the_processor(tmp_path):
    """The same responses from the same random numbers, so the same rewards; numbers of float32 in another order."""
    here, there = (trained(tmp_path / where, "grpo", where, *TRAINED["grpo"]) for where in ("cpu", NAME))
    for mine, theirs in zip(there, here, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6) and mine["grad_norm"] > 0
    weights = [load_file(tmp_path / where / "model" / "model.safetensors") for where in ("cpu", NAME)]
    for key, x in weights[0].items():
        torch.testing.assert_close(weights[1][key], x, rtol=1e-5, atol=1e-6)
