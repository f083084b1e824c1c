"""Whether an answer is one of the references; `equal` is what a verifier process calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import engine
from .brackets import is_balanced
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
    """Whether an answer may be equal to it: it is maths, or a name, or a few words; not a formula that nobody reads."""
    if reference.is_maths:
        return True
    formula = re.search(r"[\\^_{}$]", reference.text) and re.search(r"[\d=+<>&]|^\W*$", reference.text)
    if reference.kind == "text" and (formula or not is_balanced(reference.text)):
        return False
    return len(reference.text.split()) <= _WORDS and all(map(is_readable, reference.items))


def written(answer: Answer) -> str:
    """The answer for a majority vote."""
    if answer.items and answer.kind not in ("equation", "relation"):
        items = [written(item) for item in answer.items]
        ordered = answer.kind in ("tuple", "ratio") or any(item.kind == "dots" for item in answer.items)
        return f"{answer.kind} {answer.ends}: {', '.join(items if ordered else sorted(items))}".replace(" :", ":")
    if answer.kind == "base":
        return f"{answer.text}_{answer.ends}"
    expression = (engine.number(answer.text) or engine.formula(answer.text)) if answer.kind == "value" else None
    return answer.key if expression is None else str(expression)


def same(gold: Answer, said: Answer) -> bool:
    """Whether two answers are one, by the conventions."""
    if not (gold.unit or said.unit) and (gold.key, gold.kind, gold.ends) == (said.key, said.kind, said.ends):
        return _names_agree(gold, said)
    if "equation" in (gold.kind, said.kind):
        return _same_equation(gold, said)
    if not _names_agree(gold, said) or not _units_agree(gold, said):
        return False
    if {gold.kind, said.kind} <= {"value", "base"}:
        return _same_value(gold, said)
    if gold.kind == "relation" and said.kind == "relation":
        return engine.same(gold.text, said.text)
    if gold.kind == "ratio" and said.kind == "value" and len(gold.items) == 2:  # 2/3 for 2 : 3, but not 2 for 2 : 1
        return "frac" in said.text and engine.same(rf"\frac{{{gold.items[0].text}}}{{{gold.items[1].text}}}", said.text)
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
        scale = "" if factor == 1 else rf"\frac{{{factor.numerator}}}{{{factor.denominator}}}"
        return engine.same(gold.text, f"{scale}({said.text})" if scale else said.text)
    percent, bare = (gold, said) if gold.unit else (said, gold)
    if percent.unit and percent.unit.percent:
        number = engine.number(bare.text)
        above_one = number is not None and number > 1
        return engine.same(bare.text, rf"\frac{{{percent.text}}}{{100}}") or (
            above_one and engine.same(bare.text, percent.text)
        )
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
    return len(set(_LETTERS.findall(plain)) - {r"\frac", r"\cdot"}) > 1 and not re.search(
        r"\d(?!\d| *[a-zA-Z\\])", plain
    )


def _whole(answer: Answer) -> str:
    return f"{answer.name}={answer.text}" if answer.name else answer.text


def _same_items(gold: Answer, said: Answer) -> bool:
    """Lists, sets, tuples, unions, ratios: of the same kind, or a bare list where the other has brackets."""
    kinds = {gold.kind, said.kind}
    if kinds == {"set", "value"}:  # {7} is 7
        single = gold if gold.kind == "set" else said
        return len(single.items) == 1 and same(*(item.items[0] if item is single else item for item in (gold, said)))
    if kinds == {"list", "tuple"}:
        if "[" in gold.ends + said.ends or "]" in gold.ends + said.ends:
            return False
    elif kinds != {"list", "set"} and (len(kinds) > 1 or gold.ends != said.ends or kinds <= {"text", "dots"}):
        return False
    if "set" in kinds:
        return _covers(gold.items, said.items) and all(any(same(g, s) for g in gold.items) for s in said.items)
    if len(gold.items) != len(said.items):
        return False
    dotted = any(item.kind == "dots" for item in (*gold.items, *said.items))
    ordered = dotted or not kinds.isdisjoint(("tuple", "ratio"))
    return all(map(same, gold.items, said.items)) if ordered else _matches(gold.items, said.items)


def _covers(golds: Sequence[Answer], said: Sequence[Answer]) -> bool:
    return all(any(same(gold, item) for item in said) for gold in golds)


def _matches(golds: Sequence[Answer], said: Sequence[Answer]) -> bool:
    """One to one, in any order. Being the same is transitive, so the first match will do."""
    left = list(said)
    for gold in golds:
        place = next((place for place, item in enumerate(left) if same(gold, item)), None)
        if place is None:
            return False
        del left[place]
    return True
