"""Prompts, which may hold pictures, as values of JSON: the same for the same content, wherever it lies in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def plain(prompt: Any) -> Any:
    """The prompt with a few words in place of each picture, its digest among them."""
    if prompt is None or isinstance(prompt, str | int | float):
        return prompt
    if isinstance(prompt, Mapping):
        return {str(key): plain(value) for key, value in prompt.items()}
    if isinstance(prompt, list | tuple):
        return [plain(value) for value in prompt]
    # Pillow's own name for an image is its address.
    return _picture(prompt) if hasattr(prompt, "mode") and hasattr(prompt, "tobytes") else repr(prompt)


def _picture(image: Any) -> str:
    digest = hashlib.blake2b(image.tobytes(), digest_size=8).hexdigest()
    return f"<image {image.width}x{image.height} {image.mode} {digest}>"
