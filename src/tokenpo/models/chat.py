"""Chat messages as token ids, whatever the chat template does: it runs in a process with limits."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from ..base.pool import Pool
from ..base.text import first_line
from .tokens import token_ids

SECONDS = 10.0  # a prompt may take
MEMORY = 2**30  # bytes of address space of the process


def chat_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Token ids of a chat up to where the response begins.

    Raises:
        TokenPOError: there is no chat template, or it fails, does not end in `SECONDS` or takes more than `MEMORY`.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TokenPOError(
            "the prompt is a list of chat messages, but the tokenizer has no chat template: "
            "use an instruction-tuned model, or give the prompt as a string"
        )
    try:
        rendered = _rendered(tokenizer.get_chat_template(), messages, tokenizer.special_tokens_map)
    except (ValueError, TypeError) as error:
        raise TokenPOError(
            f"the chat template of {tokenizer.name_or_path} fails on the prompt {messages!r:.80}: "
            f"{first_line(error)}; give messages that it accepts, or correct the template"
        ) from error
    return token_ids(tokenizer, rendered, add_special_tokens=False)


def _rendered(template: str, messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, Any]) -> str:
    (outcome,) = _pool().map([(template, messages, tokens)])
    if outcome.note:
        endless = f"it does not end within {SECONDS:g} seconds" if outcome.note == "timeout" else outcome.note
        raise ValueError(endless)
    if "failed" in outcome.value:
        raise ValueError(outcome.value["failed"])
    return outcome.value["text"]


@functools.cache
def _pool() -> Pool:
    """One process for all models; it starts with the first chat."""
    return Pool(Path(__file__).with_name("template.py"), "render", workers=1, limit=SECONDS, memory=MEMORY)
