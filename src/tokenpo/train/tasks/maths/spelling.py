r"""One spelling of LaTeX for an answer: a list of steps, each of which changes only how a thing is written."""

import re
import unicodedata
from collections.abc import Callable
from functools import reduce

# The spelling to write, then the characters that it replaces.
_CHARACTERS = r"""
-         − – — ‐ ‑ － ﹣
/         ∕ ⁄
'         ′ ’
^{\circ}  ° º ˚
\times    ×
\cdot     · ⋅ ∙
\div      ÷
\pm       ±
\le       ≤ ⩽
\ge       ≥ ⩾
\ne       ≠
\approx   ≈
\in       ∈
\cup      ∪
\cap      ∩
\to       →
\angle    ∠
\sqrt     √
\infty    ∞
\emptyset ∅
\mathbb{R} ℝ
\ldots    … ⋯
\mu       μ µ
"""
_GREEK = "αβγδεθλνξπρστφχψωΓΔΘΛΠΣΦΨΩ"
_GREEK_NAMES = """
alpha beta gamma delta epsilon theta lambda nu xi pi rho sigma tau phi chi psi omega
Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega
"""
_COMMANDS = r"""
\frac dfrac tfrac cfrac
\binom dbinom tbinom
\emptyset varnothing
\infty infin
\le leq leqslant
\ge geq geqslant
\ne neq
\ldots dots cdots dotsc dotsb
\times ast
\to rightarrow longrightarrow
\phi varphi
\epsilon varepsilon
\{ lbrace
\} rbrace
< lt
> gt
( langle
) rangle
| vert lvert rvert
: colon
"""
_BLANKS = "\u00a0\u2002\u2003\u2005\u2007\u2008\u2009\u200a\u202f\u3000\t\n\r"
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"


def _plain(table: str) -> dict[str, str]:
    rows = (line.split() for line in table.split("\n") if line)
    return {replaced: plain for plain, *row in rows for replaced in row}


_SIGNS = _plain(_CHARACTERS) | {letter: rf"\{name}" for letter, name in zip(_GREEK, _GREEK_NAMES.split(), strict=True)}
CHARACTERS = str.maketrans(
    {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}  # full width
    | dict.fromkeys(_BLANKS, " ")
    | dict.fromkeys(_INVISIBLE, "")
    | {character: f"{plain} " if plain[-1].isalpha() else plain for character, plain in _SIGNS.items()}
)
COMMANDS = _plain(_COMMANDS)
RAISED, LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "₀₁₂₃₄₅₆₇₈₉"
SMALL = str.maketrans(RAISED + LOWERED, "0123456789+-ni0123456789")
VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"


_FONTS = "text(?:bf|it|rm|sf|normal)?|mbox|hbox|math(?:rm|bf|it|sf|normal)|boldsymbol|operatorname|underline"
_SWITCHES = "(?:display|text|script)style|bf|rm|it|(?:normal|small)size|[lL]arge|LARGE|huge|limits|checkmark"
_GROUP = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"  # in braces, with one level of braces inside
_FONT = rf"\\(?:{_FONTS})(?![a-zA-Z])\*?{_GROUP}"
_TRIGONOMETRY = "sin|cos|tan|cot|sec|csc"
_ROOTS = {"√": r"\sqrt", "sqrt": r"\sqrt", "∛": r"\sqrt[3]", "cbrt": r"\sqrt[3]", "∜": r"\sqrt[4]"}
_SCALES = {"dozen": "12", "hundred": "100", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}",
           "trillion": "10^{12}"}  # fmt: skip
_FREE = r"(?<![\d.,\w}^_])"  # where a number begins
_BRACKETS = r"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"  # with two levels of brackets inside
_TOKEN = rf"([0-9a-zA-Z]|\\(?:{'|'.join(_GREEK_NAMES.split())})(?![a-zA-Z]))"  # one, of TeX
_POWER = r"([a-zA-Z]|\{(?:[^{}]|\{[^{}]*\})*\})"
# A root, and what it takes: brackets, a number, a letter, a fraction.
_ROOT = (
    r"(?:(?<![a-zA-Z])(\\sqrt(?: *\[\w+\])?|sqrt|cbrt|abs)|([√∛∜])) *"
    rf"(?:{_BRACKETS}|(\d+(?:\.\d+)?|[a-zA-Zπ]|\\pi|\\frac\{{[^{{}}]*\}}\{{[^{{}}]*\}}))"
)
_INTEGER = r"(\d{1,15})"

MARKDOWN = 3  # the first steps
Step = tuple[str, str, str | Callable[[re.Match[str]], str]]  # why, pattern, replacement


def spelled(text: str, first: int | None = None) -> str:
    r"""The text after all steps, or the `first` ones.

    >>> spelled(r"$\dfrac{1}{2}\,$."), spelled("1,000"), spelled("½x²")
    ('\\frac{1}{2}', '1000', '\\frac{1}{2}x^{2}')
    """
    for _, pattern, replacement in STEPS[:first]:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return text


def _vulgar(found: re.Match[str]) -> str:
    return r" \frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", found[0]).split("\u2044"))


def _root(found: re.Match[str]) -> str:
    name, of = found[1] or found[2], re.sub(_ROOT, _root, found[3] or found[4])
    return f"|{of}|" if name == "abs" else rf"{_ROOTS.get(name, name)}{{{of}}}"


def _tower(found: re.Match[str]) -> str:
    return reduce(lambda above, power: f"^{{{power}{above}}}", reversed(re.findall(_POWER, found[0])), "")


def _binomial(found: re.Match[str]) -> str:
    over, under = (group for group in found.groups() if group)
    return rf"\binom{{{over}}}{{{under}}}"


def _hexadecimal(found: re.Match[str]) -> str:
    return f"{found[1]}_{{16}}" if found[1] else f"{found[2]}_{{2}}"


def _repeating(found: re.Match[str]) -> str:
    """0.1666... as (16 - 1) / 90."""
    whole, fixed, period = found[1], found[2], found[3] or found[4]
    less = int(whole + fixed)
    return rf"\frac{{{int(whole + fixed + period) - less}}}{{{'9' * len(period)}{'0' * len(fixed)}}}"


def _mixed(found: re.Match[str]) -> str:
    whole, over, under = map(int, found.groups())
    return rf"\frac{{{whole * under + over}}}{{{under}}}"


def _degrees(found: re.Match[str]) -> str:
    """Radians within a function's argument; elsewhere degrees are a unit."""
    in_function = re.search(rf"\\(?:{_TRIGONOMETRY})", found.string[: found.start()])
    return rf"{{\frac{{{found[1]}\pi}}{{180}}}}" if in_function else found[0]


def _ungrouped(found: re.Match[str]) -> str:
    return re.sub("[ ,]", "", found[0])


STEPS: tuple[Step, ...] = (
    # Plain text
    ("emphasis of Markdown", r"(?<![\w)\]}.])\*\*(?=[^\s*])([^\n]+?)(?<=[^\s*])\*\*", r"\1"),
    ("2**3 is 2^3", r"([\w)\]}]) ?\*\* ?(?=[-+\w(.\\])", r"\1^"),
    ("other emphasis", r"\*\*|`", ""),
    ("!= is no factorial", r"(?<=[\w)] )!=", r"\\ne "),
    (r"log2(8); TeX takes one digit of \log_10",
     r"(?<![a-zA-Z])\\?log(?: ?_ ?)?(\d+)(?= ?\(| [\da-z])", r"\\log_{\1}"),
    ("5 x 10^7", r"(?<=\d) ?[xX] ?(?=10 ?\^)|(?<=\d) x (?=\d)", r" \\times "),
    ("2^10; TeX takes one digit", r"\^ ?([-+]?\d+(?:\.\d+)?|[-+][a-zA-Z])", r"^{\1}"),
    ("0xFF, 0b101", r"(?<!\w)0(?:x([\da-fA-F]+)|b([01]+))(?!\w)", _hexadecimal),
    ("101 in base 2",
     r"(?<![\dA-F])([\dA-F]+) *(?:\\text *\{)? *\(?(?:in )?base *\}? *(\w+)[)}]*$", r"\1_{\2}"),
    # Characters
    ("½ is one character", f"[{VULGAR}]", _vulgar),
    ("x² is x^{2}", f"[{RAISED}]+", lambda found: f"^{{{found[0].translate(SMALL)}}}"),
    ("x₁ is x_{1}", f"[{LOWERED}]+", lambda found: f"_{{{found[0].translate(SMALL)}}}"),
    ("other maths outside ASCII has commands", r"[^\x21-\x7e]", lambda found: found[0].translate(CHARACTERS)),
    # Looks
    ("a box within an answer", rf"\\(?:boxed|fbox){_GROUP}", r"\1"),
    ("delimiters of formulas", r"\\\(|\\\)|(?<!\\)\\\[|\\\]|\$\$", " "),
    ("dollars around a formula; one alone is money", r"(?<!\\)\$([^$]*[^$\\])\$", r"\1"),
    ("colours", rf"\\textcolor{_GROUP}|\\color{_GROUP}", " "),
    ("switches of fonts", rf"\\(?:{_SWITCHES})(?![a-zA-Z])", " "),
    ("fonts and text", _FONT, r" \1 "),
    ("a font within a font", _FONT, r" \1 "),
    ("sizes of brackets", r"\\(?:left|right|[bB]igg?[lr]?)(?![a-z])\s*\.?", ""),
    # Blanks
    (r"10{:}30", r"\{([:.=<>])\}", r"\1"),
    (r"1{,}000 and 1,\!000", r"\{,\}(?:\\!)?|,\\!", ","),
    (r"\! moves back", r"(?<!\\)\\!", ""),
    ("thin and wide blanks are one", r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])|\s+", " "),
    ("1,000; within brackets a comma separates", r"(?<![\d.,(\[{])(?<![(\[{] )\d{1,3}(?:,\d{3})+(?![\d)\]}]| ?[)\]}])",
     _ungrouped),
    ("1 000", r"(?<![\d.,] )(?<![\d.,])\d{1,3}(?: \d{3})+(?! ?[\d/])", _ungrouped),
    # Commands
    ("one command for one thing", r"\\([a-zA-Z]+)", lambda found: COMMANDS.get(found[1], found[0])),
    (r"18 \Omega", r"(?<=[\d})]) *(?<![a-zA-Z])([kM]?) *\\Omega *$", r" \1ohm"),
    ("three points", r"\.\.\.+", r"\\ldots "),
    ("the columns of a matrix need not be aligned, its brackets are round",
     r"[(\[]?\\begin\{(?:array\}\s*\{[clr|\s]*|[pb]?matrix)\}(.*?)\\end\{(?:array|[pb]?matrix)\}[)\]]?",
     r"\\begin{pmatrix}\1\\end{pmatrix}"),
    ("functions without a backslash",
     rf"(?<![a-zA-Z\\])(arc(?:sin|cos|tan)|{_TRIGONOMETRY}|log|ln|exp|pi)(?![a-zA-Z])", r"\\\1 "),
    (r"\frac12", rf"\\(frac|binom)\s*{_TOKEN}", r"\\\1{\2}"),
    (r"\frac{1}2", rf"\\(frac|binom){_GROUP}\s*{_TOKEN}", r"\\\1{\2}{\3}"),
    ("roots of a number, a letter or brackets", _ROOT, _root),
    (r"x^\frac12", rf"\^ *(\\frac{_GROUP}{_GROUP})", r"^{\1}"),
    ("2^3^2 is 2^9", rf"(?:\^ *{_POWER} *){{2,}}", _tower),
    (
        r"C(5,2), {}_5C_2, 5 \choose 2",
        r"(?<![a-zA-Z\\])C\((\d+), ?(\d+)\)|(?:\{\})?(?:^|(?<=\}))[_^] ?\{?(\d+)\}? ?C ?_ ?\{?(\d+)\}?|"
        r"\{([^{}]*)\\choose([^{}]*)\}|^([^{}]*)\\choose([^{}]*)$",
        _binomial,
    ),
    (r"\log_2 8", r"(?<=\\log) ?_ ?(\d)", r"_{\1}"),
    (r"\lg has base 10", r"\\lg(?![a-zA-Z])", r"\\log_{10}"),
    (r"\log without a base, \log_e", r"\\log(?![a-zA-Z])(?: *_ *\{? *e(?![a-z]) *\}?|(?!\s*_))", r"\\ln "),
    (r"]1, 2[ is (1, 2)", r"(?:^|(?<=cup)|(?<=[ =]))\]([^][()]+[,;][^][()]+)(?=[][])", r"(\1"),
    (r"(1, 2[", r"([(\[][^][()]+[,;][^][()]+)\[(?= |$|\\cup)", r"\1)"),
    # Numbers
    ("repeating decimals are fractions",
     r"(?<![\d.])(\d{1,9})\.(\d{0,9})(?:\\(?:overline|bar|dot)\s*\{?(\d{1,9})\}?|\((\d{1,9})\))(?!\d)", _repeating),
    ("1.2e5", r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])", r"\1 \\times 10^{\2}"),
    ("3 million", rf"(?<=\d) ?({'|'.join(_SCALES)})(?![a-z])", lambda found: rf" \times {_SCALES[found[1]]}"),
    (r"1\frac12", rf"{_FREE}{_INTEGER} ?\\frac\{{{_INTEGER}\}}\{{{_INTEGER}\}}", _mixed),
    ("1 1/2", rf"{_FREE}{_INTEGER} {_INTEGER}/{_INTEGER}(?![\d.])", _mixed),
    ("degrees of a function's argument", r"(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?", _degrees),
    ("+7 is 7", r"(^|[,(\[]) *\+", r"\1"),
    # Ends
    ("the answer is 7", r"^ *(?i:(?:the )?(?:final )?answer(?: is\b)?) *[:=]? *", ""),
    ("= 7", r"^ *=(?!=) *", ""),
    ("a full stop ends a sentence, not a number", r"(?:[\s.,;]|\\\\)+$", ""),
    ("choices: A), (A) 12; neither (A) or (B) nor (A) is wrong",
     r"^ *\(?([A-H])\)(?: (?!.*(?:(?<![A-Za-z\\])[A-H](?![A-Za-z])|"
     r"\b(?:not|no|never|neither|cannot|\w+n't|wrong|incorrect|false)\b)).*)?$", r"\1"),
    ("blanks in front", r"^ +", ""),
)  # fmt: skip
