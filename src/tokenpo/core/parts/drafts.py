"""Sampling in two stages: first drafts of a response, then responses to a prompt that contains the best draft."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import TokenPOError
from ..ranges import Count
from .part import Part

TEMPLATE = "{prompt}\n\nA draft of an answer:\n{draft}\n\nImprove it, or write a better one.\n"
Prompt = str | Sequence[Mapping[str, Any]]


class Drafts(Part):
    """How many drafts are sampled for a problem, and how the best draft is put into its prompt.

    The best draft has the largest reward; of equal ones the first sampled is taken. Drafts are not trained on.

    Args:
        count: number of drafts.
        template: text of the second prompt, in which {prompt} and {draft} are replaced by the first prompt and the
            best draft.
    """

    count: Count = 8
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        super().__post_init__()
        if "{draft}" not in self.template:
            raise TokenPOError(f"Drafts: the template {self.template!r:.80} names no {{draft}}: say where it stands")

    def prompt(self, prompt: Prompt, draft: str) -> str | list[dict[str, Any]]:
        """The second prompt, as text or chat messages; of messages, the template is applied to the last one."""
        if not isinstance(prompt, str):
            *before, last = prompt
            return [*map(dict, before), {**last, "content": self.prompt(last["content"], draft)}]
        values = {"{prompt}": prompt, "{draft}": draft}
        return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], self.template)
