"""TRL's tools and environments with our objectives: the tiny model plays the dial with a calculator, in TRL's loop.

`=` ends an assistant's turn and is parsed as a call; what the calculator says stands outside TRL's tool mask.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer

from foreign_support import need
from run_views import lines
from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.records import read
from tokenpo.train.models import load
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.tasks import Problem
from tokenpo.train.tasks.generated import DialCalculator
from trl_support.small import config

TASK = DialCalculator(operands=4)
CALL = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": {"const": "calculator"},
                "arguments": {"type": "object", "properties": {"expression": {"type": "string"}}},
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": "string"},
        "tool_calls": {"type": "array", "x-regex-iterator": r"([^;#=]+)=$", "items": CALL},
    },
}
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% for call in message.get('tool_calls') or () %}"
    "{{ call['function']['name'] }}{{ call['function']['arguments'] | tojson }}{% endfor %}{% endfor %}"
)


def calculator(expression: str) -> str:
    """The value of an expression on the dial.

    Args:
        expression: what to compute.

    Returns:
        Its value, one digit.
    """
    return TASK.reply(Problem("", None), f"{expression}=") or "0"


class Desk:
    """An environment with a calculator."""

    def reset(self, **columns: Any) -> None: ...

    def calculator(self, expression: str) -> str:
        return calculator(expression)


Desk.calculator.__doc__ = calculator.__doc__


def called(completions: list, **columns: Any) -> list[float]:
    return [float(sum(message["role"] == "tool" for message in completion)) for completion in completions]


def right(completions: list, answer: list[str], **columns: Any) -> list[float]:
    texts = ["".join(message["content"] for message in completion) for completion in completions]
    return [float(text.rpartition("#")[2] == y) for text, y in zip(texts, answer, strict=True)]


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model, whose turn ends with `=` too, and whose tokenizer knows calls."""
    need("jmespath", "jmespath is not installed: TRL's tools were not run with our objectives")
    lm, directory = load(ASSETS), tmp_path_factory.mktemp("player")
    (equals,) = lm.inserted("=")
    lm.model.generation_config.eos_token_id = [lm.tokenizer.eos_token_id, equals]
    lm.tokenizer.chat_template, lm.tokenizer.response_schema = TEMPLATE, SCHEMA
    lm.model.save_pretrained(directory)
    lm.tokenizer.save_pretrained(directory)
    if getattr(AutoTokenizer.from_pretrained(directory), "response_schema", None) is None:
        # It is TRL's constructor that would raise.
        pytest.skip(
            "inside TRL: transformers keeps no response_schema of a tokenizer any more, and TRL has no parser of its "
            "own for this chat template, so that its tools were not run with our objectives"
        )
    return directory


def _trainer(player: Path, out: Path, method: str, **given: Any) -> TokenPOTrainer:
    problems = TASK.problems("train", 0, 32)
    rows = [{"prompt": [{"role": "user", "content": x.prompt}], "answer": x.answer} for x in problems]
    args = config(
        out,
        method=method,
        per_device_train_batch_size=16,
        max_completion_length=40,
        num_iterations=2,
        learning_rate=1e-4,
        rollouts_every=1,
    )
    return TokenPOTrainer(str(player), [called, right], args, train_dataset=Dataset.from_list(rows), **given)


@pytest.mark.parametrize(
    ("method", "given"),
    [("mt_grpo", {"tools": [calculator]}), ("gdpo", {"environment_factory": Desk})],
    ids=["tools", "environment"],
)
def test_a_run_with_tools(method: str, given: dict, player: Path, tmp_path: Path) -> None:
    """Two updates on a rollout batch: the ratio is 1 at the first and moves; what the tool said is no response token;
    each reward function has its column, each turn its number."""
    trainer = _trainer(player, tmp_path, method, **given)
    before = [x.detach().clone() for x in trainer.model.parameters()]
    trainer.train()
    assert any(not torch.equal(x, y) for x, y in zip(before, trainer.model.parameters(), strict=True))
    found = read(tmp_path / "tokenpo")
    assert found.reward_names == ("called", "right")
    each, turn, mask = (found.rollouts.need(name) for name in ("rewards", "turn", "mask"))
    assert torch.equal(each.sum(1), found.rollouts.reward)
    # A turn follows every answer of the calculator that left room for it.
    turns = turn.amax(1) + 1
    assert turns.max() > 2
    assert ((turns == each[:, 0] + 1) | (turns == each[:, 0])).all()
    for row, response in enumerate(found.responses):
        ends = [t for t, piece in enumerate(response.tokens[:-1]) if piece == "="]
        assert [t for t in range(len(response.tokens) - 1) if turn[row, t] != turn[row, t + 1]] == ends
    assert mask.any(1).all()
    metrics = lines(tmp_path / "tokenpo")
    assert metrics[0]["ratio_max"] > 1 > metrics[0]["ratio_min"]
    assert {"rewards/called", "rewards/right"} <= metrics[0].keys()
