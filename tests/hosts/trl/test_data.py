"""Data, reward functions, tokenizer and lengths that do not fit are one sentence each."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from tokenpo.base.errors import TokenPOError
from tokenpo.hosts.trl import TokenPOTrainer
from trl_support.small import config, even, prompts


def trained(model: Any, directory: Path, function: Any = even, data: Dataset | None = None, **settings: Any) -> None:
    data = prompts() if data is None else data
    TokenPOTrainer(model, function, config(directory, method="grpo", **settings), train_dataset=data).train()


def wants(completions: list[str], answr: list[str], **columns: Any) -> list[float]:
    return [0.0] * len(completions)


def takes(completions: list[str], answer: list[str]) -> list[float]:
    return [0.0] * len(completions)


def names_all(prompts, completions, completion_ids, trainer_state, log_extra, log_metric) -> list[float]:
    return even(completion_ids)


def text(completions: list[str], **columns: Any) -> list[Any]:
    return [0.5] + ["1"] * (len(completions) - 1)


async def later(completions: list[str], **columns: Any) -> list[str]:
    return ["1"] * len(completions)


def one(completions: list[str], **columns: Any) -> Any:
    return 0.5


def fewer(completions: list[str], **columns: Any) -> list[float]:
    return [0.5]


class Own:
    def __call__(self, completions: list[str], answer: list[str]) -> list[float]:
        return [0.0] * len(completions)


ANSWERED = Dataset.from_dict({"prompt": ["1+1="] * 8, "answer": ["2"] * 8})


@pytest.mark.parametrize(
    ("function", "data", "words"),
    [
        (even, Dataset.from_dict({"question": ["1+1="] * 8}), "no column 'prompt' (known: question): rename the one"),
        (even, Dataset.from_dict({"prompts": ["1+1="] * 8}), "no column 'prompt' (did you mean 'prompts'?): rename"),
        (
            wants,
            ANSWERED,
            "wants wants the argument 'answr': no column of train_dataset is called so (did you mean 'an",
        ),
        ([even, wants], prompts(), "reward function wants wants the argument 'answr': no column of"),
        (takes, ANSWERED, "reward function takes does not take all that TRL hands to it (comp"),
        (Own(), ANSWERED, "reward function Own does not take all that TRL hands to it (comp"),
        (text, None, "reward function text gave '1' on row 1: give a number, or None"),
        (one, None, "reward function one gave 0.5: give a list with a number, or None, for each of the 4 completions"),
        (fewer, None, "reward function fewer gave [0.5]: give a list"),
        (even, ANSWERED.add_column("completions", ["2"] * 8), "train_dataset has a column 'completions', a name"),
        (even, ANSWERED.add_column("prompts", ["2"] * 8), "train_dataset has a column 'prompts', a name under"),
        (later, None, "reward function later gave '1' on row 0: give a number, or None"),
    ],
)
def test_data_and_functions(model_dir: Path, tmp_path: Path, function: Any, data: Dataset | None, words: str) -> None:
    with pytest.raises(TokenPOError) as caught:
        trained(str(model_dir), tmp_path, function, data)
    assert words in str(caught.value)


def test_a_rollout_func_may_bring_what_a_function_wants(model_dir: Path, tmp_path: Path) -> None:
    """TRL hands on what it returns beside the ids; a misspelt name is TRL's own error then."""

    def drawn(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        return {
            "prompt_ids": ids,
            "completion_ids": ids,
            "logprobs": [[-1.0] * len(row) for row in ids],
            "won": [float(row % 2) for row in range(len(ids))],
        }

    def wins(completions: list[str], won: list[float], **columns: Any) -> list[float]:
        return won

    trainer = TokenPOTrainer(
        str(model_dir), wins, config(tmp_path, method="grpo"), train_dataset=prompts(), rollout_func=drawn
    )
    trainer.train()
    assert trainer.state.log_history[0]["reward"] == 0.5


def changed(model_dir: Path, tmp_path: Path, file: str, change: Callable[[dict], None]) -> str:
    """A copy of the model with one of its JSON files changed."""
    copy = tmp_path / "model"
    shutil.copytree(model_dir, copy)
    raw = json.loads((copy / file).read_text())
    change(raw)
    (copy / file).write_text(json.dumps(raw))
    return str(copy)


def test_a_tokenizer_without_an_end(model_dir: Path, tmp_path: Path) -> None:
    model = changed(model_dir, tmp_path, "tokenizer_config.json", lambda raw: raw.update(eos_token=None))
    with pytest.raises(TokenPOError, match="the tokenizer has no end-of-sequence token, so no response ends: set"):
        trained(model, tmp_path)


def test_fewer_prompts_than_a_rollout_batch(model_dir: Path, tmp_path: Path) -> None:
    """TRL's sampler leaves an incomplete batch out, and its training would end without a step."""
    settings = {"method": "grpo", "num_generations": 2, "per_device_train_batch_size": 4, "steps_per_generation": 2}
    for rows, enough in ((4, True), (3, False)):
        data = Dataset.from_dict({"prompt": ["1+1="] * rows})
        expected = pytest.raises(TokenPOError, match="train_dataset has 3 prompts and a rollout batch takes 4, so TRL")
        with contextlib.nullcontext() if enough else expected:
            TokenPOTrainer(str(model_dir), even, config(tmp_path, **settings), train_dataset=data)


def test_a_function_that_names_all_needs_no_kwargs(model_dir: Path, tmp_path: Path) -> None:
    trained(str(model_dir), tmp_path, names_all)


@pytest.mark.parametrize(("positions", "fits"), [(12, True), (11, False)])
def test_prompts_longer_than_the_models_positions(model_dir: Path, tmp_path: Path, positions: int, fits: bool) -> None:
    """Prompts of four tokens and responses of eight."""
    model = changed(model_dir, tmp_path, "config.json", lambda raw: raw.update(max_position_embeddings=positions))
    data = Dataset.from_dict({"prompt": ["1+1=", "2+1="] * 8})
    if fits:
        trained(model, tmp_path, data=data)
        return
    words = "a prompt of 4 tokens and 8 new ones exceed the model's 11 positions: lower max_completion_length, or leave"
    with pytest.raises(TokenPOError, match=words):
        trained(model, tmp_path, data=data)
