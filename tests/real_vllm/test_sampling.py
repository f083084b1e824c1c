"""What a real vLLM samples with our processor, held against a plain forward pass and HAPO's formula in NumPy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tokenpo.core.request_temperature import KEYS
from vllm_support import cpu, oracle


@pytest.fixture(scope="module")
def ran(site: Path, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("sampled")
    cpu.run_script("sampled_run.py", site, out, *models.values())
    return {name: json.loads((out / f"{name}.json").read_text()) for name in models}


class Answer(NamedTuple):
    """One answer's tokens: drawn [t], reported log-probs [t], log-probs at the base and at a rule's temperature [t, V],
    and where the rule's is the higher one [t]."""

    ids: Tensor
    reported: Tensor
    base: Tensor
    adapted: Tensor
    hotter: Tensor


def rescored(model: Any, answer: Mapping[str, Any], numbers: Mapping[str, float]) -> Answer:
    start = len(answer["prompt"])
    with torch.no_grad():
        z = model(torch.tensor([answer["prompt"] + answer["ids"]])).logits[0, start - 1 : -1].double()
    heat = torch.tensor([oracle(row.numpy(), answer["base"], numbers) for row in z])
    at = [(z / temperature).log_softmax(-1) for temperature in (answer["base"], heat[:, None])]
    return Answer(torch.tensor(answer["ids"]), torch.tensor(answer["logprobs"]), *at, heat > answer["base"])


@pytest.fixture(scope="module", params=["qwen", "llama"])
def asked(request: pytest.FixtureRequest, ran: dict[str, Any], models: dict[str, Path]) -> dict[str, Any]:
    """The first batch; of the mixed one the answers with numbers and those without, beside numbers they never had."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(models[request.param], dtype=torch.float32).eval()
    found = ran[request.param]
    told = [row for row in found["mixed"] if row["numbers"]]
    bare = [row for row in found["mixed"] if not row["numbers"]]
    return {
        "numbers": (found["bare"], found["own"]),
        "first": [rescored(model, row, found["own"]) for row in found["first"]],
        "told": [rescored(model, row, row["numbers"]) for row in told],
        "bare": [rescored(model, row, found["own"]) for row in bare],
    }


def test_reported_log_probs_are_those_of_a_forward_pass(asked: dict[str, Any]) -> None:
    """To 1e-4 nats, at the temperature that each request asked for, whatever else was in its batch."""
    for kind in ("first", "told", "bare"):
        for answer in asked[kind]:
            there = (answer.adapted if kind == "told" else answer.base).gather(1, answer.ids[:, None])[:, 0]
            torch.testing.assert_close(answer.reported.double(), there, rtol=0, atol=1e-4)


def test_the_first_batch_is_drawn_at_the_base_temperature(asked: dict[str, Any]) -> None:
    """Nothing is remembered before it, so its requests carry nothing; the next ones carry what it measured."""
    before, after = asked["numbers"]
    assert before == {} and set(after) == set(KEYS)
    shift = [(answer.adapted - answer.base).gather(1, answer.ids[:, None]).abs().max() for answer in asked["first"]]
    assert max(shift) > 0.1, "or the other temperature would not have shown"


@pytest.mark.parametrize("hotter", [True, False], ids=["heated", "cooled"])
@pytest.mark.parametrize("kind", ["told", "bare"])
def test_tokens_follow_the_temperature_asked_for_and_no_other(asked: dict[str, Any], kind: str, hotter: bool) -> None:
    """The log-likelihood ratio of what was drawn, adapted against constant temperature, heated and cooled tokens apart.

    Its mean and variance under either hypothesis are sums over tokens, each given those before it, of the moments of
    log p_adapted - log p_constant. The true one lies within 4 standard deviations, the false one is rejected at 4.
    """
    total = torch.zeros(5, dtype=torch.float64)
    for answer in asked[kind]:
        rows = answer.hotter == hotter
        ratio = (answer.adapted - answer.base)[rows]
        drawn = ratio.gather(1, answer.ids[rows][:, None]).sum()
        total += torch.stack([drawn, *moments(answer.adapted[rows], ratio), *moments(answer.base[rows], ratio)])
    observed, *both = total.tolist()
    adapted, constant = both[:2], both[2:]
    true, false = (adapted, constant) if kind == "told" else (constant, adapted)
    assert abs(observed - true[0]) < 4 * true[1] ** 0.5, total
    assert abs(observed - false[0]) > 4 * false[1] ** 0.5, total


def moments(log_p: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the sum of `ratio` [t, V] over tokens drawn from `log_p` [t, V]."""
    mean = (log_p.exp() * ratio).sum(-1)
    return mean.sum(), ((log_p.exp() * ratio**2).sum(-1) - mean**2).sum()
