r"""Find an answer in its question: an expression that the question asks about is not yet its value."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from . import engine
from .spelling import spelled

_LONGEST = 20_000  # characters of the question, from its end
_MOST = 200  # signs of an answer that are looked for
_SAID = {
    "plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/", "over": "/", "squared": "^2",
    "cubed": "^3", "to the power of": "^", "factorial": "!", "square root of": "sqrt", "of": "*",
}  # fmt: skip
_NUMBER = r"(-?\d[\d.,/]*)"
_OPERATIONS = {
    "+": rf"(?i:add|sum of|total of) {_NUMBER} (?:and|to) {_NUMBER}",
    "*": rf"(?i:multiply|product of) {_NUMBER} (?:and|by) {_NUMBER}",
    "-": rf"(?i:difference (?:of|between)) {_NUMBER} and {_NUMBER}",
    "/": rf"(?i:divide|quotient of) {_NUMBER} (?:and|by) {_NUMBER}",
}
_WORDS = re.compile(rf"\b(?:{'|'.join(_SAID)})\b|(?<=\d) ?x ?(?=\d)")
_SIGN = re.compile(r"(\d+(?:\.\d+)?|\.\d+)|\\[a-zA-Z]+|\\.|[^\s]")
_UNSEEN = {*"{}()[]*+$", r"\cdot", r"\times", r"\{", r"\}"}  # they change a form's looks, or its value
_ALIKE = {r"\frac": "/", r"\div": "/", r"\vert": "|"}
_BETWEEN = {*"=,;:<>%", r"\le", r"\ge", r"\ne", r"\in", r"\%", r"\ldots"}  # join values and change none
_CLOSES = {"(": ")", "[": "]", "{": "}"}

Sign = tuple[str, int, int]  # in one spelling, with its place


def stands_in(text: str, reference: str, question: str, same: Callable[[str], bool]) -> bool:
    r"""Whether an answer is an expression of the question that the answer leaves as it is.

    The same numbers, letters and operators stand side by side in the question, in any order, and have the answer's
    value. A bare number is a value wherever it stands, and a form that the reference has is the form that is wanted.

    Args:
        text: the answer, in one spelling.
        reference: in one spelling.
        question: as it is asked.
        same: whether a text has the answer's value.
    """
    wanted = sorted(sign for sign, *_ in _signs(text))
    if not is_open(text) or len(wanted) > _MOST or wanted == sorted(sign for sign, *_ in _signs(reference)):
        return False
    asked, spelling = _asked(question)
    for first in range(len(asked) - len(wanted) + 1):
        window = asked[first : first + len(wanted)]
        alike = sorted(sign for sign, *_ in window) == wanted
        if alike and same(balanced(spelling[window[0][1] : window[-1][2]])):
            return True
    return False


def is_open(text: str) -> bool:
    r"""Whether something remains to be worked out; -7, 50\%, x < 3 and (1, 2) are values.

    >>> is_open("6+4"), is_open("2^{10}"), is_open("-7"), is_open("(1, -2)"), is_open("3(2)")
    (True, True, False, False, True)
    """
    follows = False  # a number or letter
    for sign, *_ in _signs(text):
        operand = sign[-1].isalnum() and sign not in _BETWEEN
        leading = sign == "-" and not follows
        if sign not in _BETWEEN and not leading and (follows or not operand):
            return True
        follows = operand
    return False


@lru_cache(maxsize=64)
def _asked(question: str) -> tuple[list[Sign], str]:
    for sign, said in _OPERATIONS.items():
        question = re.sub(said, rf"\1 {sign} \2", question)
    question = re.sub(rf"(?i:subtract) {_NUMBER} from {_NUMBER}", r"\2 - \1", question)
    spelling = spelled(_WORDS.sub(lambda word: f" {_SAID.get(word[0], '*')} ", question[-_LONGEST:]))
    return list(_signs(spelling)), spelling


def _signs(text: str) -> Iterator[Sign]:
    for sign in _SIGN.finditer(text):
        if sign[0] not in _UNSEEN:
            name = str(engine.number(sign[1])) if sign[1] else _ALIKE.get(sign[0], sign[0])
            yield name, sign.start(), sign.end()


def balanced(text: str) -> str:
    """The text with the brackets that it lacks at its ends.

    >>> balanced("6+4)*2"), balanced("2*(6+4")
    ('(6+4)*2', '2*(6+4)')
    """
    opened: list[str] = []
    for sign in text:
        if sign in _CLOSES:
            opened.append(sign)
        elif sign in _CLOSES.values():
            if opened and _CLOSES[opened[-1]] == sign:
                opened.pop()
            else:
                text = next(opening for opening, closing in _CLOSES.items() if closing == sign) + text
    return text + "".join(_CLOSES[opening] for opening in reversed(opened))
