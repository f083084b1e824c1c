"""Tokens as text, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One string per token, special tokens included.

    Args:
        tokenizer: one of transformers, or anything with its `decode` and `convert_ids_to_tokens`.
    """
    texts = []
    for i in ids:
        text = tokenizer.decode([i], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        raw = tokenizer.convert_ids_to_tokens(i)
        # SentencePiece drops a leading space when a token is decoded alone.
        texts.append(f" {text}" if raw and raw.startswith("▁") and not text.startswith(" ") else text)
    return texts
