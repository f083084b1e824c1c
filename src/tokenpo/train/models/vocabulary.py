"""Converts text and chats to token ids and back; needs a tokenizer, but no weights."""

import functools
import itertools
import json
import re
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.pool import Pool
from ...base.text import first_line
from ...records.trace import pieces

_TAG = re.compile(r"[<\[◁]/?(?:think(?:ing)?|thoughts?|reason(?:ing)?|answer|\|\w+_of_thought\|)[>\]▷]", re.IGNORECASE)
_TOLD: weakref.WeakSet[Any] = weakref.WeakSet()  # tokenizers of which `_warn_of_text` has warned
CHAT_SECONDS = 10.0  # limit for rendering a prompt
CHAT_MEMORY = 2**30  # its limit of address space, bytes


class Vocabulary:
    """A tokenizer of transformers, and the ids that end a response."""

    def __init__(self, tokenizer: Any, eos_ids: tuple[int, ...]) -> None:
        self.tokenizer, self.eos_ids = tokenizer, eos_ids

    def encode(self, prompt: str | list[dict]) -> list[int]:
        """Token ids of a prompt: of a text by the tokenizer, of chat messages by the chat template.

        A text that begins with BOS gets no second one. A last message of the assistant is continued. Warns once of
        plain text for a model whose chat template writes roles.

        Raises:
            TokenPOError: the chat template is missing or fails, or the prompt has no tokens.
        """
        if isinstance(prompt, str):
            _warn_of_text(self.tokenizer)
            ids = list(self.tokenizer(prompt)["input_ids"])
            bos = self.tokenizer.bos_token_id
            while bos is not None and ids[:2] == [bos, bos]:
                ids.pop(0)
            # Some tokenizers end every text with EOS; a prompt must be open to continue.
            while len(ids) > 1 and ids[-1] in self.eos_ids:
                ids.pop()
        else:
            ids = chat_ids(self.tokenizer, prompt)
        if not ids:
            raise TokenPOError("the prompt has no tokens: a response needs at least one to continue")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens, without special tokens (EOS, padding) except the tags that verifiers read."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        tags = {id for id, token in added.items() if token.special and _TAG.fullmatch(token.content)}
        return "".join(
            self.tokenizer.decode(list(run), skip_special_tokens=not tag, clean_up_tokenization_spaces=False)
            for tag, run in itertools.groupby(ids, tags.__contains__)
        )

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return pieces(self.tokenizer, ids)


def chat_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Token ids of a chat up to the response, which continues a last message of the assistant if there is one.

    The template runs in a process with limits.

    Raises:
        TokenPOError: the chat template is missing, fails, or exceeds `CHAT_SECONDS` or `CHAT_MEMORY`.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TokenPOError("the tokenizer has no chat template: give the prompt as text, or take another model")
    try:
        (outcome,) = _template_pool().map([(tokenizer.get_chat_template(), messages, tokenizer.special_tokens_map)])
        if outcome.note:
            timeout = outcome.note == "timeout"
            raise ValueError(f"it does not end within {CHAT_SECONDS:g} seconds" if timeout else outcome.note)
        if "failed" in outcome.value:
            raise ValueError(outcome.value["failed"])
    except (ValueError, TypeError) as error:
        fault = f"fails on the prompt {messages!r:.80}: {first_line(error)}; give other messages, or correct it"
        raise TokenPOError(f"the chat template of {tokenizer.name_or_path} {fault}") from error
    return list(tokenizer(outcome.value["text"], add_special_tokens=False)["input_ids"])


def set_variables(tokenizer: Any, variables: Mapping[str, bool | int | float | str]) -> None:
    """Writes variables into the tokenizer's chat template, so that they are saved with the model.

    Raises:
        TokenPOError: the template doesn't read such a variable, or there is none.
    """
    template = str(tokenizer.get_chat_template()) if variables and tokenizer.chat_template else ""
    for name, value in variables.items():
        if not re.search(rf"\b{re.escape(name)}\b", template):
            raise TokenPOError(f"the template of {tokenizer.name_or_path} reads no {name!r}: leave out model.template")
        template = f"{{%- set {name} = {json.dumps(value)} -%}}{template}"
    if variables:
        tokenizer.chat_template = template


def _warn_of_text(tokenizer: Any) -> None:
    """Warns, once for each tokenizer, that a model whose chat template writes roles is asked in plain text."""
    template = getattr(tokenizer, "chat_template", None)
    if template and "role" in str(template) and tokenizer not in _TOLD:
        _TOLD.add(tokenizer)
        warnings.warn(
            f"{tokenizer.name_or_path} has a chat template and is asked in plain text: an instruction-tuned model may "
            "answer nothing; give chat messages (in the task files: chat = true), unless it is a base model",
            stacklevel=3,
        )


@functools.cache
def _template_pool() -> Pool:
    """The process that renders the templates of all models; it starts with the first chat."""
    return Pool(Path(__file__).with_name("template.py"), "render", workers=1, limit=CHAT_SECONDS, memory=CHAT_MEMORY)
