"""Text and chats to token ids and back, whether or not the weights are here."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from ..base.pool import Pool
from ..base.silence import held_back
from ..base.text import first_line

CHAT_SECONDS = 10.0  # a prompt may take
CHAT_MEMORY = 2**30  # bytes of address space


def require_same_tokens(setting: str, teacher: object, theirs: Any, policy: Any) -> None:
    """Raises TokenPOError, naming the setting, where two tokenizers number their tokens otherwise."""
    if theirs.get_vocab() != policy.get_vocab():
        raise TokenPOError(
            f"{setting}: the tokens of {teacher} are not those of the policy, and a teacher scores the policy's tokens "
            "by their numbers: take a teacher with the same tokenizer"
        )


class Tokenized:
    """A tokenizer of transformers, and the ids that end a response."""

    tokenizer: Any
    eos_ids: tuple[int, ...]

    def encode(self, prompt: str | list[dict]) -> list[int]:
        """Token ids of a prompt: text as the tokenizer sees it, or chat messages through the chat template.

        Raises:
            TokenPOError: chat messages for a tokenizer without chat template or with one that fails, or a prompt of no
                tokens.
        """
        if isinstance(prompt, str):
            ids = token_ids(self.tokenizer, prompt)
            # Some tokenizers close every text; a prompt is to be continued.
            while len(ids) > 1 and ids[-1] in self.eos_ids:
                ids.pop()
        else:
            ids = chat_ids(self.tokenizer, prompt)
        if not ids:
            raise TokenPOError("the prompt has no tokens: a response needs at least one to continue")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens, without special tokens (EOS, padding)."""
        with asked(self.tokenizer, "on tokens of a response"):
            return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One string per token, special tokens included; for reports."""
        return pieces(self.tokenizer, ids)


@dataclass(frozen=True)
class Vocabulary(Tokenized):
    """Of a model whose weights are elsewhere."""

    tokenizer: Any
    eos_ids: tuple[int, ...]


def token_ids(tokenizer: Any, text: str, **settings: Any) -> list[int]:
    """Token ids of a text, with settings of the tokenizer's call; raises TokenPOError where the tokenizer fails."""
    with asked(tokenizer, f"on the text {text!r:.80}"):
        return list(tokenizer(text, **settings)["input_ids"])


@contextlib.contextmanager
def asked(tokenizer: Any, what: str) -> Iterator[None]:
    """Raises TokenPOError where the tokenizer fails, even by a panic of its library."""
    try:
        with held_back():
            yield
    except Exception as error:
        raise TokenPOError(
            f"the tokenizer of {tokenizer.name_or_path} fails {what}: {first_line(error)}; "
            "correct its files, or use another model"
        ) from error


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One string per token, special tokens included, by transformers' `decode` and `convert_ids_to_tokens`."""
    texts = []
    with asked(tokenizer, "on tokens of a response"):
        for i in ids:
            text = tokenizer.decode([i], skip_special_tokens=False, clean_up_tokenization_spaces=False)
            raw = tokenizer.convert_ids_to_tokens(i)
            # SentencePiece drops a leading space when a token is decoded alone.
            texts.append(f" {text}" if raw and raw.startswith("▁") and not text.startswith(" ") else text)
    return texts


def chat_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Token ids of a chat up to where the response begins; the template runs in a process with limits.

    Raises:
        TokenPOError: there is no chat template, or it fails, or exceeds `CHAT_SECONDS` or `CHAT_MEMORY`.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TokenPOError(
            "the prompt is a list of chat messages, but the tokenizer has no chat template: "
            "use an instruction-tuned model, or give the prompt as a string"
        )
    try:
        (outcome,) = _template_pool().map([(tokenizer.get_chat_template(), messages, tokenizer.special_tokens_map)])
        if outcome.note:
            endless = outcome.note == "timeout"
            raise ValueError(f"it does not end within {CHAT_SECONDS:g} seconds" if endless else outcome.note)
        if "failed" in outcome.value:
            raise ValueError(outcome.value["failed"])
    except (ValueError, TypeError) as error:
        raise TokenPOError(
            f"the chat template of {tokenizer.name_or_path} fails on the prompt {messages!r:.80}: "
            f"{first_line(error)}; give messages that it accepts, or correct the template"
        ) from error
    return token_ids(tokenizer, outcome.value["text"], add_special_tokens=False)


@functools.cache
def _template_pool() -> Pool:
    """One process for all models; it starts with the first chat."""
    return Pool(Path(__file__).with_name("template.py"), "render", workers=1, limit=CHAT_SECONDS, memory=CHAT_MEMORY)
