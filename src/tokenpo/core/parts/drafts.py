"""Sampling in two stages: drafts of a response first, then responses to a prompt that holds the best of them."""

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
    """How many drafts are sampled for a problem, and how the best of them is put into its prompt.

    The best has the largest reward, and of equal ones it was sampled first. Drafts are not trained on.

    Args:
        count: drafts.
        template: the second prompt, {prompt} and {draft} standing for the first one and the draft.
    """

    count: Count = 8
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        super().__post_init__()
        if "{draft}" not in self.template:
            raise TokenPOError(f"Drafts: the template {self.template!r:.80} names no {{draft}}: say where it stands")

    def prompt(self, prompt: Prompt, draft: str) -> str | list[dict[str, Any]]:
        """The second prompt, of text or of chat messages, the last of which the template then takes for the prompt."""
        if not isinstance(prompt, str):
            *before, last = prompt
            return [*map(dict, before), {**last, "content": self.prompt(last["content"], draft)}]
        given = {"{prompt}": prompt, "{draft}": draft}
        return re.sub("|".join(map(re.escape, given)), lambda found: given[found[0]], self.template)
