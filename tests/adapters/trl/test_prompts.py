"""Prompts with pictures, of which TRL hands every row objects of its own. Imports TRL."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foreign_support import need
from tokenpo.errors import TokenPOError

need("trl", "trl is not installed: the adapter to it was not tested")

from PIL import Image  # noqa: E402

from tokenpo.adapters.trl.phase_one import Drawn, Scored, rollouts_of, whole  # noqa: E402
from tokenpo.adapters.trl.prompts import plain  # noqa: E402
from tokenpo.adapters.trl.record import traces  # noqa: E402


def asked(colour: str, width: int = 8) -> list[dict[str, Any]]:
    """As TRL puts a picture into the messages of a row."""
    image = Image.new("RGB", (width, 4), colour)
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "Which?"}]}]


def rows(prompts: list[Any]) -> dict[str, torch.Tensor]:
    """Rows in groups of two."""
    trainer = SimpleNamespace(accelerator=SimpleNamespace(num_processes=1), reward_weights=torch.ones(1))
    mask = torch.ones(len(prompts), 1, dtype=torch.bool)
    local = {"mask": mask, "old_logprob": -mask.float(), "token_ids": mask.long()}
    return whole(trainer, local, Scored(mask.float(), prompts, []), 2)


def test_a_group_is_one_prompt_by_what_its_pictures_show() -> None:
    assert len(rows([asked("red"), asked("red"), asked("blue"), asked("blue")])["reward"]) == 4
    for other in (asked("blue"), asked("red", width=16), "Which?"):
        with pytest.raises(TokenPOError, match="not groups of 2 that answer one prompt each"):
            rows([asked("red"), other])


def test_a_trace_names_the_picture() -> None:
    prompts = [asked("red"), asked("red")]
    drawn = Drawn(rollouts_of(rows(prompts), 2), None, None, {}, 1, 0.0, slice(0, 2), prompts)
    tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda i: str(i), decode=lambda ids, **how: "x" * len(ids))
    (record,) = traces(1, drawn, {1: {}}, tokenizer)
    image, text = json.loads(json.dumps(record["prompt"]))[0]["content"]
    assert image["image"].startswith("<image 8x4 RGB ") and text == {"type": "text", "text": "Which?"}


def test_text_and_messages_stay_as_they_are() -> None:
    for prompt in ("2+2=", [{"role": "user", "content": "2+2=", "tool_calls": None, "weight": 0.5}]):
        assert plain(prompt) == prompt
    assert plain((1, torch.device("cpu"))) == [1, "device(type='cpu')"]
