"""The loop of examples/rl_loop.py: it learns, and its log-probabilities do not depend on padding."""

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenpo
from random_models import random_gpt2

PATH = Path(__file__).parents[1] / "examples" / "rl_loop.py"


@pytest.fixture(scope="module")
def loop() -> Any:
    spec = importlib.util.spec_from_file_location("rl_loop", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(loop: Any, *arguments: str) -> tuple[float, float]:
    return loop.train(loop.options_of(arguments))


def test_the_tiny_model_learns(loop: Any, tmp_path: Path) -> None:
    small = ("--batches", "6", "--prompts", "16", "--lr", "5e-4")
    before, after = run(loop, *small, "--save", str(tmp_path / "model"))
    assert after > before + 0.2
    state = json.loads((tmp_path / "model" / "state.json").read_text(encoding="utf-8"))
    assert state["learner"]["updates"] == 24
    model, tokenizer = loop.load(tmp_path / "model")
    held_out = [loop.dial(random.Random(f"held out {i}")) for i in range(64)]
    assert loop.accuracy(model, tokenizer, held_out, 64) == after


# A chat model; methods with a look at the whole update, with a memory, with two passes.
@pytest.mark.parametrize("method", ["clip_cov", "ha_dw", "lopti"])
def test_a_chat_model_and_other_methods_run(loop: Any, method: str) -> None:
    sizes = ("--batches", "2", "--prompts", "2", "--group", "4", "--length", "4", "--rows", "3")
    run(loop, "--model", str(tokenpo.locate("tiny")), "--method", method, *sizes)


def test_the_dial_goes_left_to_right(loop: Any) -> None:
    for seed in range(50):
        prompt, answer = loop.dial(random.Random(seed))
        value = int(prompt[0])
        for sign, digit in zip(prompt[1:-1:2], prompt[2::2], strict=True):
            value = eval(f"({value} {sign} {digit}) % 10")
        assert len(prompt) == 16 and prompt[-1] == "=" and value == answer


def test_the_last_number_counts(loop: Any) -> None:
    rewards = [loop.reward_of(text, 7) for text in ("3+4=7", "#7", "7 or 8", "-7", "17", "seven", "")]
    assert rewards == [1, 1, 0, 0, 0, 0, 0]


def test_padding_changes_no_log_probability(loop: Any, tmp_path: Path) -> None:
    """With absolute positions, where a padded prompt would be counted; tested against each text alone."""
    model, tokenizer = loop.load(random_gpt2(tmp_path / "gpt2"))
    torch.manual_seed(0)
    prompts = ["1", "1+2", "123456789"]
    text = loop.sample(model, tokenizer, prompts, 12)
    assert len({int(row.sum()) for row in text.mask}) > 1
    with torch.no_grad():
        together = loop.policy_of(model, text)
        for i, prompt in enumerate(prompts):
            ids = [*tokenizer(prompt)["input_ids"], *text.response[i][text.mask[i]].tolist()]
            start = len(ids) - int(text.mask[i].sum())
            alone = model(torch.tensor([ids])).logits[0, start - 1 : -1].log_softmax(-1)
            logprob = alone.gather(-1, torch.tensor(ids[start:])[:, None])[:, 0]
            entropy = torch.distributions.Categorical(logits=alone).entropy()
            torch.testing.assert_close(together.logprob[i][text.mask[i]], logprob, atol=1e-5, rtol=0)
            torch.testing.assert_close(together.entropy[i][text.mask[i]], entropy, atol=1e-5, rtol=0)


def test_it_is_one_file_with_nothing_else_of_the_package() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    assert [line for line in text.splitlines() if "import" in line and "tokenpo" in line] == ["import tokenpo"]
