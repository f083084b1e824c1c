"""Prompts with pictures, of which TRL hands every row objects of its own. Imports TRL."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import (
    AutoTokenizer,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Qwen3Config,
)

from run_views import lines
from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.hosts.trl.rollout_batch import pictures, together
from tokenpo.train.models.directory import ASSETS
from trl_support.small import config, even

TEMPLATE = """{% for message in messages %}{% for part in message.content %}\
{{ "<image>" if part.type == "image" else part.text }}{% endfor %}{% endfor %}"""


def llava() -> tuple[Any, Any]:
    """Random, of one layer, and its processor: a picture of 28 x 28 is four tokens."""
    words = AutoTokenizer.from_pretrained(ASSETS)
    words.add_special_tokens({"additional_special_tokens": ["<image>"]})
    side = {"height": 28, "width": 28}
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=side),
        words,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    small: dict[str, Any] = {**sizes, "initializer_range": 0.5}
    seen = CLIPVisionConfig(**small, image_size=28, patch_size=14)
    said = Qwen3Config(**small, vocab_size=len(words), num_key_value_heads=1, head_dim=8)
    config = LlavaConfig(
        vision_config=seen,
        text_config=said,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    torch.manual_seed(0)
    return LlavaForConditionalGeneration(config), processor


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_that_sees_pictures_trains(dynamic: bool, tmp_path: Path) -> None:
    """Two rollout batches of two updates that change nothing: old and new policy see the same picture in every row.

    The first two groups of the first draw have equal rewards, so that dynamic sampling takes others.
    """
    draws: list[int] = []

    def reward(completion_ids: list[list[int]], **columns: Any) -> list[float]:
        draws.append(len(completion_ids))
        rewards = even(completion_ids)
        return rewards if len(draws) > 1 else [0.0] * 8 + rewards[8:]

    model, processor = llava()
    data = [
        {"prompt": [{"role": "user", "content": "Which?"}], "image": Image.new("RGB", (28, 28), (30 * i, 0, 0))}
        for i in range(8)
    ]
    plan = {"steps_per_generation": 2, "max_steps": 4, "per_device_train_batch_size": 8}
    settings = config(tmp_path, learning_rate=0.0, dynamic_sampling=dynamic, **plan)
    TokenPOTrainer(model, reward, settings, train_dataset=Dataset.from_list(data), processing_class=processor).train()
    found = lines(tmp_path / "tokenpo", "trace.jsonl")
    assert {record["step"] for record in found} == {1, 2}
    assert all("<image 28x28 RGB " in json.dumps(record["prompt"]) for record in found)
    ratios = torch.tensor([ratio for record in found for ratio in record["terms"]["ratio"]])
    torch.testing.assert_close(ratios, torch.ones_like(ratios), rtol=0, atol=1e-3)
    assert (len(draws) > 2) == dynamic


def test_pictures_of_rows_in_another_order() -> None:
    """Two patches in one picture, no picture, and one and four patches in two."""
    grid = torch.tensor([[1, 1, 2], [1, 1, 1], [1, 2, 2]])
    output = {"completion_ids": torch.zeros(3, 2), "pixel_values": torch.arange(7.0)[:, None]}
    rows = pictures(output | {"image_grid_thw": grid, "num_images": [1, 0, 2]})
    seen = together([rows[2], rows[0], rows[1]], torch.device("cpu"))
    assert seen["pixel_values"][:, 0].tolist() == [2, 3, 4, 5, 6, 0, 1]
    assert seen["image_grid_thw"].tolist() == grid[[1, 2, 0]].tolist() and seen["num_images"] == [2, 1, 0]
