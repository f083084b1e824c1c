"""Text to token ids and back, whether or not the weights are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import TokenPOError
from .chat import chat_ids
from .tokens import pieces, token_ids


class Tokenized:
    """What a tokenizer says, and the ids that end a response."""

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
                ids = ids[:-1]
        else:
            ids = chat_ids(self.tokenizer, prompt)
        if not ids:
            raise TokenPOError("the prompt has no tokens: a response needs at least one to continue")
        return list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the tokens, without special tokens (EOS, padding)."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One string per token, special tokens included; for reports."""
        return pieces(self.tokenizer, ids)


@dataclass(frozen=True)
class Vocabulary(Tokenized):
    """Of a model whose weights are elsewhere.

    Args:
        tokenizer: PreTrainedTokenizerBase.
        eos_ids: ids that end a response.
    """

    tokenizer: Any
    eos_ids: tuple[int, ...]
