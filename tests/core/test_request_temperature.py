"""What a request carries: what the objective says, read back whole, or refused; and what it does to logits."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import tokenpo
from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.core import request_temperature
from tokenpo.core.request_temperature import KEYS, extra_args, factors, read
from tokenpo.core.types import Rollouts
from vllm_support import flat, heat, oracle, random_logits

GOOD = {
    "tokenpo_tau": 0.1, "tokenpo_quantile": 0.8, "tokenpo_released_sign": 0.0,
    "tokenpo_pivot": -0.5, "tokenpo_spread": 2.0, "tokenpo_top": 1.5, "tokenpo_bottom": -2.5,
}  # fmt: skip


def rollouts() -> Rollouts:
    """Entropies e^-2, e^-1, e^0, e^1 and padding."""
    entropy = torch.tensor([[-2.0, -1.0, 0.0, 1.0, 9.0]], dtype=torch.float64).exp()
    mask = torch.tensor([[True, True, True, True, False]])
    return Rollouts(
        mask=mask,
        reward=torch.ones(1),
        group=torch.zeros(1, dtype=torch.long),
        old_logprob=torch.zeros(1, 5),
        old_entropy=entropy,
    )


def test_an_objective_speaks_in_flat_numbers_by_hand() -> None:
    """The 0.6 quantile of -2 -1 0 1 is the nearest rank round(0.6 · 3) = 2: 0. Spread sqrt((4 + 1 + 0 + 1) / 4)."""
    for constant in (tokenpo.method("hapo", tau=0.0), tokenpo.method("dapo")):
        assert extra_args(constant, constant.after(constant.start(), rollouts())) == {}
    objective = tokenpo.method("hapo", tau=0.1, quantile=0.6, sign="released")
    state = objective.start()
    assert extra_args(objective, state) == {}, "before the first rollout batch the temperature stays"
    seen = extra_args(objective, objective.after(state, rollouts()))
    spread = 1.5**0.5
    expected = {
        "tokenpo_tau": 0.1, "tokenpo_quantile": 0.6, "tokenpo_released_sign": 1.0, "tokenpo_pivot": 0.0,
        "tokenpo_spread": spread, "tokenpo_top": 1 / spread, "tokenpo_bottom": -2 / spread,
    }  # fmt: skip
    assert tuple(seen) == KEYS and seen == pytest.approx(expected, rel=1e-14, abs=1e-15)
    assert all(type(x) is float for x in seen.values())


def test_numbers_survive_json_and_mean_the_objectives_rule() -> None:
    objective = tokenpo.method("hapo", tau=0.3)
    state = objective.after(objective.start(), rollouts())
    one = read(json.loads(json.dumps(extra_args(objective, state))) | {"kv_transfer_params": {"x": 1}})
    assert one is not None and objective.temperature is not None
    entropy = torch.tensor([0.01, 0.2, 1.0, 2.0, 9.0], dtype=torch.float64)
    ours = objective.temperature(entropy, 0.7, state[objective.temperature])
    torch.testing.assert_close(0.7 * one(entropy), ours, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tokenpo_tua": 0.1}, MissingInput, r"tokenpo_tua in place of tokenpo_tau"),
        ({"tokenpo_top": "1"}, TokenPOError, r"tokenpo_top is '1', expected"),
        ({"tokenpo_pivot": math.nan}, TokenPOError, r"tokenpo_pivot is nan, expected a finite number"),
        ({"tokenpo_quantile": 1.5}, TokenPOError, r"quantile is 1.5, expected a number in \[0, 1\]"),
    ],
)
def test_a_wrong_number_is_named(change: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        read(GOOD | change)


def test_missing_keys_are_named_and_foreign_ones_mean_nothing() -> None:
    for foreign in (None, {}, {"kv_transfer_params": {}, "other": 1}):
        assert read(foreign) is None
    some = {key: GOOD[key] for key in ("tokenpo_tau", "tokenpo_pivot")}
    with pytest.raises(MissingInput, match=r"tokenpo_pivot, tokenpo_tau in place of tokenpo_tau, tokenpo_quantile, "):
        read(some)


def test_the_document_explains_every_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "vllm.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"| `{key}` |" not in text] == []


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("chunk", [3, 128])
def test_factors_are_the_formula(released: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_temperature, "block_rows", lambda vocabulary, device: chunk)
    heats = {1: heat(1, released=released), 2: heat(2)}
    z = random_logits(40, 0).double()
    which = torch.arange(40) % 3
    base = 0.5 + torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = [
        oracle(row.numpy(), float(t), flat(heats[number])) / float(t) if number else 1.0
        for row, t, number in zip(z, base, which.tolist(), strict=True)
    ]
    got = factors(z, which, heats, base)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    # What is divided by the temperature already needs no base.
    np.testing.assert_allclose(factors(z / base[:, None], which, heats), expected, rtol=1e-12)
    assert len({round(float(x), 6) for x in got}) > 20, "the scales must not saturate"


def test_on_a_device_the_numbers_are_the_same_and_no_row_is_no_factor() -> None:
    assert factors(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), {}).shape == (0,)
    one, entropy = heat(7), torch.tensor([1e-9, 0.1, 1.0, 5.0])
    there = one.on("cpu")
    assert isinstance(there.scale.pivot, torch.Tensor)
    got = there(entropy)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, one(entropy), rtol=1e-6, atol=0)
