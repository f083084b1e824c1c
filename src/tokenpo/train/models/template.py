"""Renders a chat template, which is a program from the model: run as a script in a limited process, without torch."""

from collections.abc import Mapping
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

LONGEST = 1_000_000  # characters of a prompt


def render(template: str, messages: list[dict[str, Any]], tokens: Mapping[str, Any]) -> dict[str, str]:
    """{"text": the prompt}, or {"failed": the reason}; a last message of the assistant is left open, to be continued.

    Args:
        template: Jinja.
        tokens: the special tokens by name.
    """
    begun = bool(messages) and messages[-1].get("role") == "assistant"
    opening = {"continue_final_message": True} if begun else {"add_generation_prompt": True}
    try:
        (text,), _ = render_jinja_template([messages], chat_template=template, **opening, **tokens)
    except MemoryError:
        return {"failed": "it takes more memory than it may"}
    except Exception as error:
        return {"failed": str(error)[:1000] or type(error).__name__}
    if len(text) > LONGEST:
        return {"failed": f"it makes a prompt of {len(text):,} characters, of which {LONGEST:,} are the most"}
    return {"text": text}
