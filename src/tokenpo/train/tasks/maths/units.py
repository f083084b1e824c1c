r"""Units of a number: measures, money, percent, and words for counted things."""

import re
from fractions import Fraction
from typing import NamedTuple

_TABLE = """
m 0.001 mm millimeter millimetre
m 0.01 cm centimeter centimetre
m 1 m meter metre
m 1000 km kilometer kilometre
m 0.0254 in inch inche
m 0.3048 ft foot feet
m 0.9144 yd yard
m 1609.344 mi mile
g 0.001 mg milligram
g 1 g gram
g 1000 kg kilogram
g 28.349523125 oz ounce
g 453.59237 lb pound
s 0.001 ms millisecond
s 1 s sec second
s 60 min minute
s 3600 h hr hour
s 86400 day
s 604800 week
l 0.001 ml mL milliliter millilitre
l 1 l L liter litre
$ 1 dollar usd USD buck
$ 0.01 cent
€ 1 euro eur EUR
jpy 1 yen jpy
cny 1 yuan cny
inr 1 rupee inr
deg 1 deg degree
rad 1 rad radian
% 1 percent percentage pct
N 1 N newton
J 1 J joule
J 1000 kJ kilojoule
W 1 W watt
W 1000 kW kilowatt
V 1 V volt
ohm 1 ohm
ohm 1000 kohm kiloohm
A 1 A amp ampere
Pa 1 Pa pascal
Hz 1 Hz hertz
K 1 K kelvin
am 1 am
pm 1 pm
"""
_RATES = {"mph": "mile/hour", "kph": "km/hour", "kmh": "km/hour", "kmph": "km/hour", "fps": "foot/second"}
_MONEY = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "₹": "inr", "rs": "inr", "rs.": "inr"}
_SIGN = r"(?:US *)?\\?\$|[€£¥₹]|(?:(?i:USD|EUR|GBP|JPY|CNY|INR|CHF|CAD|AUD)|Rs\.?)(?= *\\?\$?\.?\d)"
_DEGREES = {"": "degree", "C": "celsiu", "F": "fahrenheit", "K": "kelvin"}  # nouns lose their s
# Words that are no unit: a number before one of them is not the whole answer.
_NO_NOUN = """
about above almost and approximately are because below but choose cubed divided doubled even exactly factorial false
fewer for from half halves incorrect instead least less maybe minus mod more most negative never none nor not off only
out over perhaps plus since squared than that then this time times tripled under until was were when where wrong
zero one two three four five six seven eight nine ten eleven twelve twenty
dozen hundred thousand lakh million crore billion trillion quadrillion
third fourth fifth sixth seventh eighth ninth tenth hundredth thousandth millionth
"""
_PHRASE = 60  # characters at most


class Unit(NamedTuple):
    """Powers of base measures, in alphabetical order, and the factor that converts to them."""

    measures: tuple[tuple[str, int], ...]
    factor: Fraction


_UNITS = {
    name: (measure, Fraction(factor))
    for measure, factor, *names in (line.split() for line in _TABLE.split("\n") if line)
    for name in names
}


def measured(text: str) -> tuple[str, Unit | None]:
    r"""The text without its unit, and the unit.

    >>> measured(r"5 cm")[0], measured(r"\$36"), measured("3x")
    ('5', ('36', Unit(measures=(('$', 1),), factor=Fraction(1, 1))), ('3x', None))
    """
    if money := re.match(rf"(-?) *({_SIGN}) *(?=[-\d.\\$])", text):
        value, unit = measured(money[1] + text[money.end() :].removesuffix("$").removesuffix("\\").rstrip())
        currency = _currency(money[2])
        return value, currency if unit == currency else _times(currency, unit)
    if sign := re.search(r" *\\?%$", text):
        return text[: sign.start()], _unit("percent")
    if degrees := re.search(r" *\^ *(?:\{ *\\circ *\}|\\circ) *([CFK]?)$", text):
        return text[: degrees.start()], _unit(_DEGREES[degrees[1]])
    text = re.sub(r"\\frac\{ ([a-zA-Z]+) \}\{ ([a-zA-Z]+) \}$", r" \1/\2", text)  # blanks are left where \text was
    for end in re.finditer(r"(?<=[\d})\]!]) *(?=[a-zA-Z])|(?<=[a-z]) +(?=[a-zA-Z])|\\?[$€£¥₹]$", text[-_PHRASE:]):
        place = max(0, len(text) - _PHRASE)
        phrase = text[place + end.end() :]
        unit = _phrase(phrase, apart=bool(end[0])) if phrase else _currency(end[0])
        if unit is not None:
            return text[: place + end.start()], unit if unit.measures else None
    return text, None


def is_unit(word: str) -> bool:
    """Whether a word after a number can only be its unit."""
    return word != "in" and len(word) > 1 and any(name in _UNITS for name in (*_spellings(word), word.split("/")[0]))


def _currency(sign: str) -> Unit:
    """The unit of a sign or a code, such as US$ or CHF."""
    name = sign.casefold() if sign[-1] != "$" else "$"
    return _unit(_MONEY.get(name.removeprefix("\\"), name))


def _phrase(phrase: str, *, apart: bool) -> Unit | None:
    """The unit that a phrase names, or None; the unit of counted things is their last word, in the singular."""
    phrase = re.sub(r" *([a-zA-Z]+) *\^ *\{ *-(\d) *\}", r"/\1^\2", phrase)
    phrase = re.sub(r" *\bper\b *| */ *", "/", phrase.replace("-", " "))
    if not re.fullmatch(r"[a-zA-Z /^{}\d.]+", phrase) or phrase.count("/") > 1:
        return None
    over, _, under = phrase.partition("/")
    upper, lower = _product(over, apart), _product(under, apart) if under else Unit((), Fraction(1))
    if upper is None or lower is None:
        return None
    return _times(upper, Unit(tuple((measure, -power) for measure, power in lower.measures), 1 / lower.factor))


def _product(words: str, apart: bool) -> Unit | None:
    """One unit with its power, or the counted thing as a unit; None for neither."""
    words = words.strip().replace(".", "")
    if rate := _RATES.get(words):
        return _phrase(rate, apart=True)
    found = re.fullmatch(r"(square|sq|cubic|cu)? *([a-zA-Z]+) *(?:\^ *\{? *(\d) *\}?|(squared|cubed))?", words)
    if found:
        power = int(found[3] or 1) * {"s": 2, "c": 3}.get((found[1] or found[4] or " ")[0], 1)
        name = next((name for name in _spellings(found[2]) if name in _UNITS), "")
        if name and (apart or len(name) > 1):
            return _unit(name, power)
        if found[2].rstrip("s") == "unit":
            return Unit((), Fraction(1))
    each = words.split()
    noun = apart and 0 < len(each) < 5 and all(word.isalpha() and (len(word) > 2 or word == "of") for word in each)
    if not noun or not {name for word in each for name in _spellings(word)}.isdisjoint(_NO_NOUN.split()):
        return None
    return Unit(((each[-1].casefold().rstrip("s"), 1),), Fraction(1))


def _spellings(word: str) -> tuple[str, ...]:
    """Without a plural's s and in lower case, except single letters: $5 M are no metres."""
    singular = word.removesuffix("s")
    return (word, singular, word.casefold(), singular.casefold()) if len(singular) > 1 else (word, singular)


def _unit(name: str, power: int = 1) -> Unit:
    measure, factor = _UNITS.get(name, (name, Fraction(1)))
    return Unit(((measure, power),), factor**power)


def _times(one: Unit, other: Unit | None) -> Unit:
    return one if other is None else Unit(tuple(sorted(one.measures + other.measures)), one.factor * other.factor)
