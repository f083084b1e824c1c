"""Find the answer in a completion: one function per convention, which returns the answer's text or None."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|$)")  # LaTeX allows blanks before the brace
_THINKING = re.compile(
    r"<(/?)(?:think(?:ing)?|thoughts?|reason(?:ing)?) *>|\[(/?)THINK\]|◁(/?)think▷|<\|(?:begin|(end))_of_thought\|>",
    re.IGNORECASE,
)


def spoken(text: str) -> str:
    """The text after the last thinking block; "" if that block is not closed.

    >>> spoken("<think>1? No.</think> It is 2."), spoken("<think>1? No")
    (' It is 2.', '')
    """
    marks = list(_THINKING.finditer(text))
    if not marks:
        return text
    return text[marks[-1].end() :] if any(marks[-1].groups()) else ""


def opening(prompt: str) -> str:
    r"""The mark of thinking that a prompt ends with; "" for none.

    >>> opening("1 + 3?\n<think>\n"), opening("<think>\n\n</think>\n\n")
    ('<think>', '')
    """
    marks = list(_THINKING.finditer(prompt.rstrip()))
    ends = marks and marks[-1].end() == len(prompt.rstrip()) and not any(marks[-1].groups())
    return marks[-1][0] if ends else ""


def tag(text: str) -> str | None:
    """The content of the last `<answer>` tag; None if `</answer>` is missing.

    >>> tag("<answer>1</answer> no: <answer> 2 </answer>")
    '2'
    """
    _, opening, rest = spoken(text).rpartition("<answer>")
    inside, closing, _ = rest.partition("</answer>")
    return inside.strip() or None if opening and closing else None


def boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{`; None if its brace is never closed.

    >>> boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    text = spoken(text)
    start = max((box.end() for box in _BOX.finditer(text)), default=len(text))
    depth = 1
    for sign in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):  # \{ is not a group's brace
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return text[start : start + sign.start()].strip() or None
    return None


def hash_mark(text: str, mark: str = "#") -> str | None:
    """The rest of the line after the last `#`, so that `#7` and `#### 7` are the same.

    >>> hash_mark("3+4=7 #### 7")
    '7'
    """
    _, separator, rest = spoken(text).rpartition(mark)
    return rest.strip().split("\n")[0].strip() or None if separator else None


def last_line(text: str) -> str | None:
    """The last line that isn't blank."""
    lines = spoken(text).strip().splitlines()
    return lines[-1].strip() if lines else None


def auto(text: str) -> str | None:
    r"""The content of the last `\boxed{}` or `<answer>`, whichever is opened last; else the text after the last `####`.

    >>> auto(r"\boxed{1}, no: <answer>2</answer>"), auto(r"\boxed{1} \boxed{"), auto("3 + 4 = 7 #### 7")
    ('2', None, '7')
    """
    return last_marked(text) or None


def last_marked(text: str) -> str | None:
    """As `auto`; but "" for a box or tag that is not closed, None for a text without a mark."""
    text = spoken(text)
    box, opening = max((box.start() for box in _BOX.finditer(text)), default=-1), text.rfind("<answer>")
    return hash_mark(text, "####") if box == opening else (boxed if box > opening else tag)(text) or ""


def whole(text: str) -> str | None:
    """The whole text after the thinking."""
    return spoken(text).strip() or None


EXTRACTORS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"tag": tag, "boxed": boxed, "hash": hash_mark, "last_line": last_line, "auto": auto, "whole": whole}
)
