"""Token texts for records, and the comparison of two tokenizers; both take tokenizers of transformers."""

from collections.abc import Sequence
from typing import Any

from ..base.errors import TokenPOError


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """One string per token, special tokens included, by `decode` and `convert_ids_to_tokens`."""
    texts = []
    for i in ids:
        text = tokenizer.decode([i], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        raw = tokenizer.convert_ids_to_tokens(i)
        # SentencePiece drops a leading space when a token is decoded alone.
        texts.append(f" {text}" if raw and raw.startswith("▁") and not text.startswith(" ") else text)
    return texts


def require_same_tokens(setting: str, teacher: object, theirs: Any, policy: Any) -> None:
    """Raises TokenPOError, naming the setting, if two tokenizers number their tokens differently."""
    if theirs.get_vocab() != policy.get_vocab():
        raise TokenPOError(
            f"{setting}: the tokens of {teacher} are not those of the policy, and a teacher scores the policy's tokens "
            "by their numbers: take a teacher with the same tokenizer"
        )
