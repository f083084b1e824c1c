"""Statistics where the gradient of the reward is an estimate too, on vectors whose expectation is known."""

from __future__ import annotations

import pytest
import torch

from tokenpo.base.errors import TokenPOError
from tokenpo.lab import gradients
from tokenpo.lab.estimate import Estimate
from tokenpo.lab.gradients import Judged

R, K, D = 8, 16, 4000


@pytest.fixture
def made() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """∇J of length 1; R estimates of it with noise of power 8 each, so that half the power of their mean is noise;
    directions 2 (0.8 ∇J + 0.6 across) with noise of power 12."""
    draws = torch.Generator().manual_seed(0)

    def noise(*shape: int, power: float) -> torch.Tensor:
        return torch.randn(*shape, D, generator=draws) * (power / D) ** 0.5

    J, across = torch.zeros(2, D)
    J[0], across[1] = 1.0, 1.0
    return J + noise(R, power=8), 2 * (0.8 * J + 0.6 * across) + noise(R, K, power=12), J


def test_the_noise_of_the_truth_takes_nothing_away(made):
    """|E g|² = 4, E|g|² = 16: cosine 0.8, useful and single 1.6/4 = 0.4, SNR 4/12. As if ∇J were its estimate, all but
    the last would be √½ of that."""
    truth, single, _ = made
    found = gradients.on_policy(truth, single)
    for key, value in {"cosine": 0.8, "useful": 0.4, "single": 0.4, "snr": 1 / 3}.items():
        x = found[key]
        assert abs(x.value - value) < 3 * x.error, key
        assert x.error < 0.1 * value, key
    assert gradients.reliability(truth) == pytest.approx(0.5, abs=0.1)


def test_off_policy_is_per_step_on_policy(made):
    """Half the direction where steps on policy have a root mean square of 4: half of what is useful there."""
    truth, single, _ = made
    found = gradients.off_policy(truth, single.norm(dim=-1), single / 2)
    for key, value in {"cosine": 0.8, "useful": 0.2, "snr": 1 / 3}.items():
        assert abs(found[key].value - value) < 3 * found[key].error, key
    clipped = gradients.off_policy(truth, single.norm(dim=-1), 0 * single)
    assert [x.value for x in clipped.values()] == [0, 0, 0]


def test_coordinates_keep_inner_products(made):
    truth, _, _ = made
    found = gradients.coordinates(truth)
    torch.testing.assert_close(found @ found.T, (truth @ truth.T).double(), rtol=0, atol=1e-5)


def test_differences_are_paired():
    """What both have in common has no error."""
    common = (0.4, 0.5, 0.6, 0.7)
    rows = {label: Judged(label) for label in ("dapo", "x")}
    rows["dapo"].add({"useful": Estimate(0.55, common)})
    rows["x"].add({"useful": Estimate(0.65, tuple(x + 0.1 for x in common))})
    gradients.compare(rows)
    against = rows["x"].numbers["against"]
    assert against.value == pytest.approx(0.1) and against.error == pytest.approx(0, abs=1e-12)
    assert rows["x"].numbers["useful"].error > 0.1


def test_file(tmp_path):
    row = Judged("text")
    row.add({"useful": Estimate(0.5, (0.4, 0.6))}, "after/")
    path = gradients.save({"step": 3}, {"x": row}, tmp_path / "found.json")
    about, rows = gradients.load(path)
    assert about == {"step": 3} and rows["x"].paired == row.paired
    assert rows["x"].numbers["after/useful"].value == 0.5
    gradients.require_same(path, about, {"step": 3})
    with pytest.raises(TokenPOError, match=r"another checkpoint or setting \(step differ"):
        gradients.require_same(path, about, {"step": 4})
    (tmp_path / "no.json").write_text("[]")
    with pytest.raises(TokenPOError, match="no file of `tokenpo gradients --json`"):
        gradients.load(tmp_path / "no.json")


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(
        TokenPOError, match=r"cannot write .*none/x\.json: No such file or directory; give another place"
    ):
        gradients.save({}, {}, tmp_path / "none" / "x.json")
