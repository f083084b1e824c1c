"""Compare an answer with the references, in a verifier process; find it in unmarked text, or in its question."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from . import engine
from .notes import REPEATED, UNREADABLE
from .reading import Answer, is_balanced, read
from .spelling import MARKDOWN, spelled
from .units import is_unit

_WRITTEN = 500  # characters of an answer that are kept, to distinguish it from others
_WORDS = 8  # largest number of words of a reference that is text
_LETTERS = re.compile(r"[a-zA-Z]|\\[a-z]+")


def equal(references: list[str], text: str, marked: bool, question: str = "") -> list[object]:
    """[whether `text` gives one of `references`, note, the answer in it, whether every reference is readable].

    Values are written as SymPy writes them, so equal answers mostly give the same text; None means no answer.

    Args:
        text: the answer alone if a box, tag or similar has `marked` it, else a text that contains it.
        question: an expression that it contains is not an answer (note "question repeated").
    """
    golds = [read(reference) for reference in references]
    answer = read(text) if marked else in_words(text, golds) or unmarked(text)
    if answer is None:
        return [False, "no answer", None, False]
    if _ASKS_A_RATIO.search(question):
        golds, answer = [gold and _no_clock(gold) for gold in golds], _no_clock(answer)
    equals = [gold for gold in golds if gold is not None and same(gold, answer)]
    readable = all(gold is not None and is_readable(gold) for gold in golds)
    right = any(not repeats(answer, gold, question) for gold in equals)
    note = "" if right else REPEATED if equals else "" if readable else UNREADABLE
    return [right, note, written(answer)[:_WRITTEN], readable]


def _no_clock(answer: Answer) -> Answer:
    return replace(answer, kind="ratio") if answer.kind == "clock" else answer


def repeats(answer: Answer, gold: Answer, question: str) -> bool:
    """Whether an answer that equals the reference is an expression of the question."""

    def has_the_value(text: str) -> bool:
        other = read(text)
        return other is not None and same(gold, other)

    return answer.is_maths and stands_in(answer.text, gold.text, question, has_the_value)


def is_readable(reference: Answer) -> bool:
    """Whether an answer can equal it: it is maths, a name or a few words, not a formula that could not be parsed."""
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
        ordered = answer.kind in ("tuple", "ratio", "clock") or any(item.kind == "dots" for item in answer.items)
        return f"{answer.kind} {answer.ends}: {', '.join(items if ordered else sorted(items))}".replace(" :", ":")
    if answer.kind == "base":
        return f"{answer.text}_{answer.ends}"
    expression = (engine.number(answer.text) or engine.formula(answer.text)) if answer.kind == "value" else None
    return answer.key if expression is None else str(expression)


def same(gold: Answer, answer: Answer) -> bool:
    """Whether two answers are equal by the conventions of docs/tasks.md."""
    if not (gold.unit or answer.unit) and (gold.key, gold.kind, gold.ends) == (answer.key, answer.kind, answer.ends):
        return _names_agree(gold, answer)
    if "equation" in (gold.kind, answer.kind):
        return _same_equation(gold, answer)
    units_differ = gold.unit and answer.unit and gold.unit.measures != answer.unit.measures
    if units_differ or not _names_agree(gold, answer):
        return False
    if {gold.kind, answer.kind} <= {"value", "base"}:
        return _same_value(gold, answer)
    if gold.kind == "relation" and answer.kind == "relation":
        return engine.same(gold.text, answer.text)
    kinds = {gold.kind, answer.kind}
    if kinds in ({"ratio"}, {"ratio", "value"}) or (gold.kind, answer.kind) == ("ratio", "clock"):
        one, other = _quotients(gold), _quotients(answer)
        return len(one) == len(other) and all(map(engine.same, one, other))
    return _same_items(gold, answer)


def _quotients(answer: Answer) -> list[str]:
    """The quotient of each pair of neighbours of a ratio; a fraction or decimal, but no whole number, is one too."""
    texts = [item.text for item in answer.items]
    whole = answer.kind == "value" and answer.text.isdigit()
    return [rf"\frac{{{one}}}{{{other}}}" for one, other in pairwise(texts)] or [answer.text][whole:]


def _names_agree(gold: Answer, answer: Answer) -> bool:
    return not gold.name or not answer.name or gold.name.replace(" ", "") == answer.name.replace(" ", "")


def _same_value(gold: Answer, answer: Answer) -> bool:
    if gold.kind == "base":
        return answer.kind == "base" and (gold.key, gold.ends) == (answer.key, answer.ends)
    if answer.kind == "base":
        return engine.same(gold.text, str(int(answer.text, int(answer.ends))))
    if gold.unit and answer.unit:
        factor = answer.unit.factor / gold.unit.factor
        scale = "" if factor == 1 else rf"\frac{{{factor.numerator}}}{{{factor.denominator}}}"
        return engine.same(gold.text, f"{scale}({answer.text})" if scale else answer.text)
    percent, bare = (gold, answer) if gold.unit else (answer, gold)
    if percent.unit and percent.unit.measures == (("%", 1),):
        number = engine.number(bare.text)
        above_one = number is not None and number > 1
        return engine.same(bare.text, rf"\frac{{{percent.text}}}{{100}}") or (
            above_one and engine.same(bare.text, percent.text)
        )
    return engine.same(gold.text, answer.text)


def _same_equation(gold: Answer, answer: Answer) -> bool:
    """Two equal equations; or an answer such as m + n = 42, whose value equals a reference without equation."""
    if gold.kind != "equation" and not gold.name:
        left, right = answer.items
        return _names_a_quantity(left.text) and same(gold, right)
    return engine.same(*(f"{side.name}={side.text}" if side.name else side.text for side in (gold, answer)))


def _names_a_quantity(text: str) -> bool:
    """Whether it is a sum or product of several variables; x + 1 and 2x are not."""
    plain = re.sub(r"\^ *(?:\{ *\d+ *\}|\d)", "", text)
    return len(set(_LETTERS.findall(plain)) - {r"\frac", r"\cdot"}) > 1 and not re.search(
        r"\d(?!\d| *[a-zA-Z\\])", plain
    )


def _same_items(gold: Answer, answer: Answer) -> bool:
    """Lists, sets, tuples, unions, ratios: of the same kind, or a bare list where the other has brackets."""
    kinds = {gold.kind, answer.kind}
    if kinds == {"set", "value"}:  # {7} is 7
        single = gold if gold.kind == "set" else answer
        return len(single.items) == 1 and same(*(item.items[0] if item is single else item for item in (gold, answer)))
    if kinds == {"list", "tuple"}:
        if "[" in gold.ends + answer.ends or "]" in gold.ends + answer.ends:
            return False
    elif kinds != {"list", "set"} and (
        len(kinds) > 1 or gold.ends != answer.ends or kinds <= {"text", "letters", "dots"}
    ):
        return False
    if "set" in kinds:
        return all(any(same(g, a) for a in answer.items) for g in gold.items) and all(
            any(same(g, a) for g in gold.items) for a in answer.items
        )
    if len(gold.items) != len(answer.items):
        return False
    dotted = any(item.kind == "dots" for item in (*gold.items, *answer.items))
    ordered = dotted or not kinds.isdisjoint(("tuple", "clock"))
    return all(map(same, gold.items, answer.items)) if ordered else _matches(gold.items, answer.items)


def _matches(golds: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    """Whether the items match one to one, in any order; equality is transitive, so the first match is enough."""
    left = list(answer)
    for gold in golds:
        place = next((place for place, item in enumerate(left) if same(gold, item)), None)
        if place is None:
            return False
        del left[place]
    return True


_ASKS_A_RATIO = re.compile(r"\b(?:ratio|proportion|odds|scale)s?\b", re.IGNORECASE)
# Where a word or a letter of a choice is given as the answer, and the end of what gives it.
_GIVES = re.compile(
    r"\b(?:answer|option|choice|conclusion|result|statement|claim)\b[\s*]*"
    r"(?:(?::|is\b:?|=|\n|- )[\s*\"'\u201c]*(?:(?:the )?(?:option|choice|letter)\b)?"
    r"|(?=[(*]*[A-Z]\b[)*]* is (?:the )?(?:correct|right)))",
    re.IGNORECASE,
)
_GIVEN = re.compile(r"(?:(?! is (?:the )?(?:correct|right)| because\b| since\b| as\b)[^.,;:!?\n\"\u201d])+")
_YES_OR_NO = re.compile(r"(?:yes|no|true|false)\b(?=[,.!]|$)", re.IGNORECASE)
_CHANGES = re.compile(r"\b(?:wait|actually|instead|hmm|or|correction)\b", re.IGNORECASE)


def in_words(text: str, golds: Sequence[Answer | None]) -> Answer | None:
    """The word, or the letter of a choice, that an unmarked text gives, where a reference is one."""
    gold = next((gold for gold in golds if gold and re.fullmatch("[A-Za-z][A-Za-z' -]*", gold.text)), None)
    if gold is None or gold.unit:
        return None
    text = spelled(text[-_TAIL:], MARKDOWN).strip()
    cues = list(_GIVES.finditer(text))
    tail = text[cues[-1].end() :].lstrip() if cues else text
    given = _GIVEN.match(tail) if cues or len(tail.split()) <= _WORDS else None
    given = (None if cues else _YES_OR_NO.match(tail)) or given
    if not given or tail[given.end() : given.end() + 1] == "?" or _CHANGES.search(tail[given.end() :]):
        return None
    return Answer(
        gold.kind, re.sub(r"^(?:there (?:is|are)|option|choice) ", "", spelled(given[0]), flags=re.IGNORECASE)
    )


_FORMULA = 1000  # characters of a text that may be a formula as a whole
_TAIL = 2000  # characters of a text in which the answer is looked for
_CUE = re.compile(r"\banswer(?:\**:| is\b:?| =)", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|no|\w+n't|wrong|incorrect|false|never|neither|nor|cannot)\b|\?$", re.IGNORECASE)
_NEXT = r"(?=[-\d(.$\\]|(?:one|two|three|four|five|six|seven|eight|nine|ten|[knxy])\b)"
# What makes a number a bound, or a part of a formula that _SPAN does not find in full: before the number, and after it.
_BEFORE = re.compile(
    r"""
    (?:\b(?:[aA]t\ least|[aA]t\ most|than(?:\ or\ equal\ to)?|between|up\ to|above|below|under|over|out\ of|except) |
    \b(?:minus|negative|plus|times|twice|double|triple|mod|modulo|choose|log|ln|sin|cos|tan)\b |
    (?:\b(?:divided|divisible|multiplied)\ by|\d\.?\ (?:to|x|in|of)) |
    (?:\b(?:root|square|cube|power|multiple|factorial|logarithm|half|third|quarter|percent)s?|%)\ of |
    [<>≤≥≠√∛∜/^|±∓×÷·] | \\(?!q?quad|approx|implies|[a-zA-Z]*arrow)[a-zA-Z]+ |
    (?<![a-zA-Z])[a-zA-Z\dπθ)\]}]\ *[-−–+*]) \ *$ |  # n - 3
    \d: $ | \d\ : \ *$                               # 3:30; in Step 3: 30 it is no ratio
    """,
    re.VERBOSE,
)
_AFTER = re.compile(
    rf"""
    \ *(?:(?:plus|minus|choose|mod|modulo|out\ of|(?:divided|multiplied)\ by|raised|squared|cubed|factorial|
    doubled|tripled|halved|(?:in\ )?base|(?:more|less|fewer)\ than|or\ (?:maybe|perhaps|possibly|more|less|fewer)|
    (?:[a-z]+\ )?below|to\ the|times\ (?:as|the)|and\ [a-z]+\ (?:half|third|quarter|fourth|fifth)s?|
    hundred|thousand|lakh|million|crore|billion|trillion|quadrillion|
    half|halves|thirds?|fourths?|fifths?|(?:six|seven|eigh|nin|ten|hundred|thousand)ths?)\b |
    (?:to|times|in|over|point|(?:percent\ )?of)\ {_NEXT} |
    \\(?!text|math|q?quad|approx|implies|[a-zA-Z]*arrow)[a-zA-Z] | [_√π±] | !\ *[-+*/^\d(a-z] |
    [-−–+*/^×÷·]\ *(?:[b-zA-HJ-Z](?![a-zA-Z])|[\\π√(]) |
    (?<!°)(?!(?<=\ )[aAI]\b|[mgshL]\b)[a-zA-Z](?![a-zA-Z'’]|\.[a-z]))  # 3x, but 5 m, 5 o'clock, 5 p.m.
    """,
    re.VERBOSE,
)
# An expression is not the answer where the sentence goes on to say what it is: 69 + 16 is eighty-five, 5 + 9 = ...
_SAYS = re.compile(
    r" *(?:= *(?:[.?_\u2026]|\\ldots|$)|(?:is|are|was|equals?|makes?|gives?|yields?|becomes?|comes? to)\b"
    r"(?! (?:also )?(?:the|our|my|your|correct|right|a|an|what)\b))",
    re.IGNORECASE,
)
_NOISE = re.compile(r"<<.*?>>|\s*\n\s*(?=\\\]|\$\$)|(?<=\\\[|\$\$)\s*\n\s*")  # <<8+9=17>> is a calculator's
_SPAN = re.compile(
    r"""
    \$\$.+?\$\$ | \\\(.+?\\\) | \\\[.+?\\\] |                            # marked as maths,
    (?<!\d)\$[^$\n]*?[^$\n\d\s][^$\n]*?\$ | \$-?\d[^$\n a-zA-Z]*\$ |     # with dollars that are no money
    -?[\d.]*(?:\\[a-zA-Z]+(?:\{[^{}]*\})+)+ |                            # bare LaTeX
    (?<![\w.])[-−–+]?(?:\\?\$|€|£)?(?:\d|\(\d|\.\d)                      # a number and what is done to it
    (?:[\d.,/^%°½¼¾]|\\%|(?<=\d):(?=\d)|(?<=\d)\ :\ (?=\d)|\ *[-+*/=×÷−–]\ *(?=[-\d($])|[()])*
    (?:\ (?:dozen|hundred|thousand|million|billion|trillion)\b)?
    """,
    re.DOTALL | re.VERBOSE,
)
_JOIN = re.compile(r"[\s,*]*(?:or|and|,|/|)[\s,*]*", re.IGNORECASE)


def unmarked(text: str) -> Answer | None:
    """The answer of a text without box or tag: all of it, else the text after the last cue, else its last formula."""
    text = _NOISE.sub(" ", spelled(text[-_TAIL:], MARKDOWN)).strip()
    if len(text) <= _FORMULA:
        whole = read(text)
        if whole is not None and whole.is_maths:
            return whole
    if not re.search(r"[A-Za-z]{2}", re.sub(r"\\[a-zA-Z]+ *(?:\{[^{}]*\})?", "", text)):
        return None  # not a sentence
    cues = list(_CUE.finditer(text))
    tail = text[cues[-1].end() :].lstrip(" :*\n") if cues else text
    line = tail.split("\n")[0 if cues else -1].strip().rstrip("!")
    if cues and (answer := read(line)) is not None and answer.is_maths:
        return answer
    return None if _DENIES.search(line) else _of_line(line, first=bool(cues))


def _of_line(line: str, *, first: bool) -> Answer | None:
    """The first or last formula, with those that "or", "and" or a comma join to it, and the unit after it."""
    spans = [span for span in _SPAN.finditer(line) if span[0].strip(" .,")]
    if not spans:
        return None
    start = end = 0 if first else len(spans) - 1
    while start and _JOIN.fullmatch(line[spans[start - 1].end() : spans[start].start()]):
        start -= 1
    while end + 1 < len(spans) and _JOIN.fullmatch(line[spans[end].end() : spans[end + 1].start()]):
        end += 1
    after = line[spans[end].end() :]
    if _BEFORE.search(line[: spans[start].start()]) or _AFTER.match(after):
        return None
    unit = re.match(r" *([a-zA-Z]+(?:/[a-z]+)?)", after)
    formulas = " , ".join(span[0].strip(" .,") for span in spans[start : end + 1])
    if _SAYS.match(after) and is_open(formulas):
        return None
    return read(f"{formulas} {unit[1]}" if unit and is_unit(unit[1]) else formulas)


_QUESTION = 20_000  # characters of the question, from its end
_MOST_SIGNS = 200  # signs of an answer that are looked for
_SAID = {
    "plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/", "over": "/", "squared": "^2",
    "cubed": "^3", "to the power of": "^", "factorial": "!", "square root of": "sqrt", "of": "*",
}  # fmt: skip
_OPERAND = r"(-?\d[\d.,/]*)"
_OPERATIONS = {
    "+": rf"(?i:add|sum of|total of) {_OPERAND} (?:and|to) {_OPERAND}",
    "*": rf"(?i:multiply|product of) {_OPERAND} (?:and|by) {_OPERAND}",
    "-": rf"(?i:difference (?:of|between)) {_OPERAND} and {_OPERAND}",
    "/": rf"(?i:divide|quotient of) {_OPERAND} (?:and|by) {_OPERAND}",
}
_OPERATORS = re.compile(rf"\b(?:{'|'.join(_SAID)})\b|(?<=\d) ?x ?(?=\d)")
_SIGN = re.compile(r"(\d+(?:\.\d+)?|\.\d+)|\\[a-zA-Z]+|\\.|[^\s]")
_UNSEEN = {*"{}()[]*+$", r"\cdot", r"\times", r"\{", r"\}"}  # they change a form's looks, or its value
_ALIKE = {r"\frac": "/", r"\div": "/", r"\vert": "|"}
_BETWEEN = {*"=,;:<>%", r"\le", r"\ge", r"\ne", r"\in", r"\%", r"\ldots"}  # join values and change none
_CLOSES = {"(": ")", "[": "]", "{": "}"}

Sign = tuple[str, int, int]  # in one spelling, with its place


def stands_in(text: str, reference: str, question: str, same_value: Callable[[str], bool]) -> bool:
    """Whether an answer is an expression of the question; `same_value` tells whether a text has the answer's value.

    The same numbers, letters and operators stand side by side in the question, in any order, and have the answer's
    value. A bare number is a value wherever it stands, and a form that the reference has is the form that is wanted.
    """
    wanted = sorted(sign for sign, *_ in _signs(text))
    if not is_open(text) or len(wanted) > _MOST_SIGNS or wanted == sorted(sign for sign, *_ in _signs(reference)):
        return False
    asked, spelling = _asked(question)
    for first in range(len(asked) - len(wanted) + 1):
        window = asked[first : first + len(wanted)]
        alike = sorted(sign for sign, *_ in window) == wanted
        if alike and same_value(balanced(spelling[window[0][1] : window[-1][2]])):
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
    question = re.sub(rf"(?i:subtract) {_OPERAND} from {_OPERAND}", r"\2 - \1", question)
    spelling = spelled(_OPERATORS.sub(lambda word: f" {_SAID.get(word[0], '*')} ", question[-_QUESTION:]))
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
