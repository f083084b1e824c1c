"""What a request carries: what the objective says, read back whole, and refused in one sentence where it is wrong."""

from __future__ import annotations

import json
import math

import pytest
import torch

import tokenpo
from tokenpo.base.errors import MissingInput, TokenPOError, UnknownName
from tokenpo.core.types import Rollouts
from tokenpo.engines.vllm import extra_args, read
from tokenpo.engines.vllm.parameters import KEYS, check

GOOD = {
    "tokenpo_tau": 0.1, "tokenpo_quantile": 0.8, "tokenpo_released_sign": 0.0,
    "tokenpo_pivot": -0.5, "tokenpo_spread": 2.0, "tokenpo_top": 1.5, "tokenpo_bottom": -2.5,
}  # fmt: skip


def rollouts() -> Rollouts:
    """Entropies e^-2, e^-1, e^0, e^1 and padding."""
    entropy = torch.tensor([[-2.0, -1.0, 0.0, 1.0, 9.0]], dtype=torch.float64).exp()
    mask = torch.tensor([[True, True, True, True, False]])
    return Rollouts(
        mask=mask, reward=torch.ones(1), group=torch.zeros(1, dtype=torch.long), old_logprob=torch.zeros(1, 5),
        old_entropy=entropy,
    )  # fmt: skip


def test_an_objective_speaks_in_flat_numbers_by_hand() -> None:
    """The 0.6 quantile of -2 -1 0 1 is the nearest rank round(0.6 · 3) = 2: 0. Spread sqrt((4 + 1 + 0 + 1) / 4)."""
    objective = tokenpo.method("hapo", tau=0.1, quantile=0.6, sign="released")
    state = objective.start()
    assert extra_args(objective, state) == {}, "nothing was seen yet: the temperature stays"
    seen = extra_args(objective, objective.after(state, rollouts()))
    spread = 1.5**0.5
    expected = {
        "tokenpo_tau": 0.1, "tokenpo_quantile": 0.6, "tokenpo_released_sign": 1.0, "tokenpo_pivot": 0.0,
        "tokenpo_spread": spread, "tokenpo_top": 1 / spread, "tokenpo_bottom": -2 / spread,
    }  # fmt: skip
    assert tuple(seen) == KEYS and seen == pytest.approx(expected, rel=1e-14, abs=1e-15)
    assert all(type(x) is float for x in seen.values())


@pytest.mark.parametrize("options", [{"tau": 0.0}, {}])
def test_a_constant_temperature_needs_no_numbers(options: dict) -> None:
    objective = tokenpo.method("hapo", **options) if options else tokenpo.method("dapo")
    assert extra_args(objective, objective.start()) == {}


def test_numbers_survive_json_and_mean_the_objectives_rule() -> None:
    objective = tokenpo.method("hapo", tau=0.3)
    state = objective.after(objective.start(), rollouts())
    heat = read(json.loads(json.dumps(extra_args(objective, state))) | {"kv_transfer_params": {"x": 1}})
    assert heat is not None and objective.temperature is not None
    entropy = torch.tensor([0.01, 0.2, 1.0, 2.0, 9.0], dtype=torch.float64)
    ours = objective.temperature(entropy, 0.7, state[objective.temperature])
    torch.testing.assert_close(0.7 * heat(entropy), ours, rtol=1e-14, atol=0)


@pytest.mark.parametrize("given", [None, {}, {"kv_transfer_params": {}, "other": 1}])
def test_a_request_without_our_keys_asks_for_nothing(given: dict | None) -> None:
    assert read(given) is None
    check(0.0, 0.5, given)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tokenpo_tua": 0.1}, UnknownName, r"no key 'tokenpo_tua'; did you mean 'tokenpo_tau'"),
        ({"tokenpo_top": None}, TokenPOError, r"tokenpo_top = None must be a finite number"),
        ({"tokenpo_top": "1"}, TokenPOError, r"tokenpo_top = '1' must be a finite number"),
        ({"tokenpo_pivot": math.nan}, TokenPOError, r"tokenpo_pivot = nan must be a finite number"),
        ({"tokenpo_spread": math.inf}, TokenPOError, r"tokenpo_spread = inf must be a finite number"),
        ({"tokenpo_tau": 1}, TokenPOError, r"tokenpo_tau = 1 must be in \[0, 1\)"),
        ({"tokenpo_tau": -0.1}, TokenPOError, r"tokenpo_tau = -0.1 must be"),
        ({"tokenpo_quantile": 1.5}, TokenPOError, r"tokenpo_quantile = 1.5 must be in \[0, 1\]"),
        ({"tokenpo_released_sign": 0.5}, TokenPOError, r"tokenpo_released_sign = 0.5 must be 0 or 1"),
        ({"tokenpo_spread": -1}, TokenPOError, r"tokenpo_spread = -1 must be at least 0"),
        ({"tokenpo_top": -1}, TokenPOError, r"tokenpo_top = -1 must be at least 0"),
        ({"tokenpo_bottom": 1}, TokenPOError, r"tokenpo_bottom = 1 must be at most 0"),
    ],
)
def test_a_wrong_number_is_named(change: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        read(GOOD | change)
    with pytest.raises(ValueError, match=words):
        check(1.0, 0.0, GOOD | change)


def test_missing_keys_are_named() -> None:
    some = {key: GOOD[key] for key in ("tokenpo_tau", "tokenpo_pivot")}
    with pytest.raises(MissingInput, match=r"tokenpo_pivot, tokenpo_tau without tokenpo_quantile, .*, tokenpo_bottom"):
        read(some)


def test_settings_that_contradict_are_refused() -> None:
    check(0.7, 0.0, GOOD)
    with pytest.raises(TokenPOError, match="temperature 0: greedy decoding has no temperature to adapt"):
        check(0.0, 0.0, GOOD)
    with pytest.raises(TokenPOError, match=r"min_p = 0.1: vLLM's two runners"):
        check(1.0, 0.1, GOOD)


def test_the_document_explains_every_key() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[3] / "docs" / "vllm.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"| `{key}` |" not in text] == []
