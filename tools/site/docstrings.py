"""Docstrings are plain text with doctests; the site's reference reads Markdown. An extension of Griffe."""

import inspect
import re
from typing import Any

import griffe

import tokenpo

EXAMPLE = re.compile(r"^(>>> .*(?:\n.+)*)", re.MULTILINE)


class PlainText(griffe.Extension):
    """Doctests become blocks of code, and brackets side by side are no reference."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        # `documented` fills this line in when the class is made.
        if obj.is_class and obj.docstring and "...: as each field declares." in obj.docstring.value:
            obj.docstring.value = inspect.getdoc(getattr(tokenpo, obj.name)) or ""
        if obj.docstring:
            text = re.sub(r"\](?=\[)", r"]\\", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(lambda example: f"```pycon\n{example[1]}\n```", text)
