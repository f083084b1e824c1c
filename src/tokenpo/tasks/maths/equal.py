"""Whether an answer is one of the references; `equal` is what a verifier process calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from . import engine
from .prose import unmarked
from .reading import Answer, read

_WRITTEN = 500  # characters of an answer that are kept to tell it from others
_WORDS = 8  # of a reference that is text
_LETTERS = re.compile(r"[a-zA-Z]|\\[a-z]+")


def equal(references: list[str], text: str, marked: bool) -> list[object]:
    """[whether `text` gives one of `references`, note, the answer in it, whether every reference is readable].

    The answer is written so that equal ones are mostly the same text: values as SymPy writes them. None is no answer.

    Args:
        references: the accepted answers.
        text: the answer alone where it is `marked`, else a text that holds it.
        marked: whether a box, tag or the like said where it stands.
    """
    answer = read(text) if marked else unmarked(text)
    if answer is None:
        return [False, "no answer", None, False]
    golds = [read(reference) for reference in references]
    right = any(gold is not None and same(gold, answer) for gold in golds)
    readable = all(gold is not None and is_readable(gold) for gold in golds)
    return [right, "" if right or readable else "unreadable reference", written(answer)[:_WRITTEN], readable]


def is_readable(reference: Answer) -> bool:
    """Whether an answer may be equal to it: it is maths, or a few words."""
    return all(map(is_readable, reference.items)) and not (
        reference.kind == "text" and (re.search(r"[\\^_{}=$]", reference.text) or len(reference.text.split()) > _WORDS)
    )


def written(answer: Answer) -> str:
    """The answer for a majority vote."""
    if answer.items and answer.kind not in ("equation", "relation"):
        items = [written(item) for item in answer.items]
        ordered = answer.kind in ("tuple", "ratio") or any(item.kind == "dots" for item in answer.items)
        return f"{answer.kind} {answer.ends}: {', '.join(items if ordered else sorted(items))}".replace(" :", ":")
    expression = (engine.number(answer.text) or engine.formula(answer.text)) if answer.kind == "value" else None
    return answer.key if expression is None else str(expression)


def same(gold: Answer, said: Answer) -> bool:
    """Whether two answers are one, by the conventions."""
    if gold.key == said.key and gold.kind == said.kind and gold.ends == said.ends and not (gold.unit or said.unit):
        return _names_agree(gold, said)
    if gold.kind == "equation" or said.kind == "equation":
        return _same_equation(gold, said)
    if not _names_agree(gold, said) or not _units_agree(gold, said):
        return False
    if gold.kind in ("value", "base") and said.kind in ("value", "base"):
        return _same_value(gold, said)
    if gold.kind == "relation" and said.kind == "relation":
        return engine.same(gold.text, said.text)
    return _same_items(gold, said)


def _names_agree(gold: Answer, said: Answer) -> bool:
    return not gold.name or not said.name or gold.name.replace(" ", "") == said.name.replace(" ", "")


def _units_agree(gold: Answer, said: Answer) -> bool:
    return gold.unit is None or said.unit is None or gold.unit.measures == said.unit.measures


def _same_value(gold: Answer, said: Answer) -> bool:
    if gold.kind == "base":
        return said.kind == "base" and (gold.key, gold.ends) == (said.key, said.ends)
    if said.kind == "base":
        return engine.same(gold.text, str(int(said.text, int(said.ends))))
    if gold.unit and said.unit:
        factor = said.unit.factor / gold.unit.factor
        return engine.same(gold.text, said.text if factor == 1 else rf"\frac{{{factor.numerator}}}{{{factor.denominator}}} ({said.text})")
    for percent, bare in ((gold, said), (said, gold)):
        if percent.unit and percent.unit.percent:
            above_one = engine.number(bare.text)
            hundredth = engine.same(bare.text, rf"\frac{{{percent.text}}}{{100}}")
            return hundredth or (above_one is not None and above_one > 1 and engine.same(percent.text, bare.text))
    return engine.same(gold.text, said.text)


def _same_equation(gold: Answer, said: Answer) -> bool:
    """Two equations; or the value of what only the answer spells out, as in m + n = 42."""
    if gold.kind != "equation" and not gold.name:
        left, right = said.items
        return _names_a_quantity(left.text) and same(gold, right)
    return bool(gold.kind == "equation" or gold.name) and engine.same(_whole(gold), _whole(said))


def _names_a_quantity(text: str) -> bool:
    """Sums and products of several variables; x + 1 and 2x are none."""
    plain = re.sub(r"\^ *(?:\{ *\d+ *\}|\d)", "", text)
    return len(set(_LETTERS.findall(plain)) - {r"\frac", r"\cdot"}) > 1 and not re.search(r"\d(?!\d| *[a-zA-Z\\])", plain)


def _whole(answer: Answer) -> str:
    return f"{answer.name}={answer.text}" if answer.name else answer.text


def _same_items(gold: Answer, said: Answer) -> bool:
    """Lists, sets, tuples, unions, ratios: of the same kind, or bare where one has brackets."""
    kinds = {gold.kind, said.kind}
    single = gold if gold.kind == "set" and said.kind == "value" else said if said.kind == "set" and gold.kind == "value" else None
    if single is not None and len(single.items) == 1:
        return same(gold.items[0], said) if single is gold else same(gold, said.items[0])
    if len(kinds) > 1 and kinds not in ({"list", "set"}, {"list", "tuple"}):
        return False
    if kinds == {"tuple"} and gold.ends != said.ends or kinds == {"list", "tuple"} and {"[", "]"} & {*gold.ends, *said.ends}:
        return False
    if kinds <= {"text", "dots"} or len(gold.items) != len(said.items) and kinds != {"set"} and kinds != {"list", "set"}:
        return False
    dotted = any(item.kind == "dots" for item in (*gold.items, *said.items))
    if "tuple" in kinds or "ratio" in kinds or dotted:
        return len(gold.items) == len(said.items) and all(map(same, gold.items, said.items))
    if "set" in kinds:
        return _covers(gold.items, said.items) and _covers(said.items, gold.items, turned=True)
    return _matches(gold.items, said.items)


def _covers(some: Sequence[Answer], others: Sequence[Answer], *, turned: bool = False) -> bool:
    return all(any(same(other, one) if turned else same(one, other) for other in others) for one in some)


def _matches(golds: Sequence[Answer], said: Sequence[Answer]) -> bool:
    """One to one, in any order. Being the same is transitive, so the first match will do."""
    left = list(said)
    for gold in golds:
        place = next((place for place, item in enumerate(left) if same(gold, item)), None)
        if place is None:
            return False
        del left[place]
    return True
