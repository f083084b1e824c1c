"""Tokens as text, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import TokenPOError
from ..base.text import first_line


def token_ids(tokenizer: Any, text: str, **settings: Any) -> list[int]:
    """Token ids of a text.

    Args:
        tokenizer: one of transformers.
        text: any.
        settings: of the tokenizer's call.

    Raises:
        TokenPOError: the tokenizer fails.
    """
    try:
        return list(tokenizer(text, **settings)["input_ids"])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the tokenizers' library is no Exception
        raise TokenPOError(
            f"the tokenizer of {tokenizer.name_or_path} fails on the text {text!r:.80}: {first_line(error)}; "
            "correct its files, or use another model"
        ) from error


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
