r"""One spelling of LaTeX for an answer: a list of named steps, each of which changes only how the same thing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_SIGNS = {
    **dict.fromkeys("−–—‐‑－﹣", "-"),
    **dict.fromkeys("°º˚", r"^{\circ}"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
    **dict.fromkeys("\u00a0\u2002\u2003\u2005\u2007\u2008\u2009\u200a\u202f\u3000\t\n\r", " "),
    **{"×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ", "∕": "/", "⁄": "/", "±": r"\pm "},
    **{"≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∈": r"\in "},
    **{"∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "∞": r"\infty ", "√": r"\sqrt "},
    **{"∛": r"\sqrt[3] ", "…": r"\ldots ", "⋯": r"\ldots ", "→": r"\to ", "∠": r"\angle ", "′": "'", "’": "'"},
}
_GREEK = (
    "αalpha βbeta γgamma δdelta εepsilon ζzeta ηeta θtheta λlambda μmu νnu ξxi πpi ρrho σsigma τtau φphi χchi ψpsi "
    "ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΠPi ΣSigma ΦPhi ΨPsi ΩOmega"
)
_CHARACTERS = str.maketrans(
    {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}  # full width
    | {word[0]: rf"\{word[1:]} " for word in _GREEK.split()}
    | _SIGNS
)
_SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ₀₁₂₃₄₅₆₇₈₉", "0123456789+-ni0123456789")
_VULGAR = dict(zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒", "12 13 23 14 34 15 25 35 45 16 56 17 18 38 58 78 19 1(10)".split(), strict=True))
_STYLES = "text|textbf|textit|textrm|textsf|textnormal|mbox|hbox|math(?:rm|bf|it|sf|normal)|boldsymbol|operatorname|underline"
_SWITCHES = "(?:display|text|script)style|bf|rm|it|(?:normal|small)size|[lL]arge|LARGE|huge|limits|checkmark"
_NAMES = {
    **{"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "varnothing": "emptyset"},
    **{"leq": "le", "leqslant": "le", "geq": "ge", "geqslant": "ge", "lt": "le ne", "neq": "ne", "land": "wedge"},
    **{"dots": "ldots", "cdots": "ldots", "dotsc": "ldots", "dotsb": "ldots", "lbrace": "{", "rbrace": "}"},
    **{"colon": ":", "varphi": "phi", "varepsilon": "epsilon", "ast": "times", "infin": "infty", "vert": "mid", "lor": "vee"},
    **{"rightarrow": "to", "longrightarrow": "to", "bmatrix": "pmatrix"},
}
_BRACED = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"  # with one level of braces inside
_FUNCTIONS = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi"
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}


class Step(NamedTuple):
    """What is found is replaced: one change of spelling, and why."""

    name: str
    why: str
    pattern: re.Pattern[str]
    to: str | Callable[[re.Match[str]], str]


def _step(name: str, why: str, pattern: str, to: str | Callable[[re.Match[str]], str]) -> Step:
    return Step(name, why, re.compile(pattern, re.DOTALL), to)


def _renamed(found: re.Match[str]) -> str:
    return "\\" + _NAMES.get(found[1], found[1])


def _repeating(found: re.Match[str]) -> str:
    """0.1666... as (16 - 1) / 90."""
    whole, fixed, period = found[1], found[2], found[3] or found[4]
    less = int(whole + fixed)
    return rf"\frac{{{int(whole + fixed + period) - less}}}{{{'9' * len(period)}{'0' * len(fixed)}}}"


def _mixed(found: re.Match[str]) -> str:
    whole, over, under = (int(number) for number in found.groups())
    return rf"\frac{{{whole * under + over}}}{{{under}}}"


def _joined(found: re.Match[str]) -> str:
    return re.sub("[ ,]", "", found[0])


STEPS: tuple[Step, ...] = (
    _step("vulgar fractions", "½ is one character", f"[{''.join(_VULGAR)}]", lambda f: r" \frac{{{}}}{{{}}}".format(
        _VULGAR[f[0]][0], _VULGAR[f[0]][1:].strip("()"))),
    _step("raised characters", "x² is x^{2}", "[⁰¹²³⁴-⁹⁺⁻ⁿⁱ]+", lambda f: f"^{{{f[0].translate(_SMALL)}}}"),
    _step("lowered characters", "x₁ is x_{1}", "[₀-₉]+", lambda f: f"_{{{f[0].translate(_SMALL)}}}"),
    _step("characters", "maths outside ASCII has commands", r"[^\x21-\x7e]", lambda f: f[0].translate(_CHARACTERS)),
    _step("boxes", "a box within an answer is a frame", rf"\\(?:boxed|fbox){_BRACED}", r"\1"),
    _step("emphasis", "Markdown's", r"\*\*|`", ""),
    _step("display", "delimiters of formulas", r"\\\(|\\\)|(?<!\\)\\\[|\\\]|\$\$", " "),
    _step("dollars", "a pair around a formula; one alone is money", r"(?<!\\)\$([^$]*[^$\\])\$", r"\1"),
    _step("colours", "nothing but looks", rf"\\textcolor{_BRACED}|\\color{_BRACED}", " "),
    _step("switches", "nothing but looks", rf"\\(?:{_SWITCHES})(?![a-zA-Z])", " "),
    *[_step("styles", "text and fonts, one in the other", rf"\\(?:{_STYLES})(?![a-zA-Z])\*?{_BRACED}", r" \1 ")] * 2,
    _step("sizes", "of brackets", r"\\(?:left|right|[bB]igg?[lr]?)(?![a-z])\s*\.?", ""),
    _step("commas", "1{,}000 and 1,\\!000", r"\{,\}(?:\\!)?|,\\!", ","),
    _step("no blank", "\\! moves back", r"(?<!\\)\\!", ""),
    _step("blanks", "thin and wide ones", r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])|\s+", " "),
    _step("groups of digits", "1,000; in brackets a comma separates", r"(?<![\d.,(\[{])(?<![(\[{] )\d{1,3}(?:,\d{3})+(?![\d)\]}]| ?[)\]}])", _joined),
    _step("groups of digits", "1 000", r"(?<![\d.,] )(?<![\d.,])\d{1,3}(?: \d{3})+(?! ?[\d/])", _joined),
    _step("synonyms", "one command for one thing", r"\\([a-zA-Z]+)", _renamed),
    _step("less", "have no short names", r"\\le ne|\\gt(?![a-z])", lambda f: ">" if f[0] == r"\gt" else "<"),
    _step("dots", "three points", r"\.\.\.+", r"\\ldots "),
    _step("matrices", "columns need not be aligned, brackets are round",
          r"[(\[]?\\begin\{(?:array\}\s*\{[clr|\s]*|[pb]?matrix)\}(.*?)\\end\{(?:array|[pb]?matrix)\}[)\]]?",
          r"\\begin{pmatrix}\1\\end{pmatrix}"),
    _step("functions", "written without a backslash", rf"(?<![a-zA-Z\\])({_FUNCTIONS})(?![a-zA-Z])", r"\\\1 "),
    _step("roots", "of one character, or of brackets", r"\\sqrt\s*(\[\w+\])?\s*(?:\(([^()]*)\)|([0-9a-zA-Z]|\\pi))",
          lambda f: rf"\sqrt{f[1] or ''}{{{f[2] or f[3]}}}"),
    _step("first argument", "\\frac12, \\binom52", r"\\(frac|binom)\s*([0-9a-zA-Z])", r"\\\1{\2}"),
    _step("choose", "an infix", r"\{([^{}]*)\\choose([^{}]*)\}|^([^{}]*)\\choose([^{}]*)$", lambda f: rf"\binom{{{f[1] or f[3]}}}{{{f[2] or f[4]}}}"),
    _step("second argument", "\\frac{1}2", rf"\\(frac|binom){_BRACED}\s*([0-9a-zA-Z])", r"\\\1{\2}{\3}"),
    _step("repeating decimals", "are fractions", r"(?<![\d.])(\d{1,9})\.(\d{0,9})(?:\\(?:overline|bar|dot)\s*\{?(\d{1,9})\}?|\((\d{1,9})\))(?!\d)",
          _repeating),
    _step("powers of ten", "1.2e5; 2e is Euler's", r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.])", r"\1 \\times 10^{\2}"),
    _step("scales", "3 million", rf"(?<=\d) ?({'|'.join(_SCALES)})(?![a-z])", lambda f: rf" \times 10^{{{_SCALES[f[1]]}}}"),
    _step("mixed numbers", "1\\frac12", r"(?<![\d.,\w}^_])(\d{1,15}) ?\\frac\{(\d{1,15})\}\{(\d{1,15})\}", _mixed),
    _step("mixed numbers", "1 1/2", r"(?<![\d.,\w}^_])(\d{1,15}) (\d{1,15})/(\d{1,15})(?![\d.])", _mixed),
    _step("degrees", "in a function they are a number", r"(?<=[a-z{(\s])(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?(?=.*)",
          lambda f: rf"{{\frac{{{f[1]}\pi}}{{180}}}}" if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", f.string) else f[0]),
    _step("base ten", "\\lg", r"\\lg(?![a-zA-Z])", r"\\log_{10}"),
    _step("base e", "\\log_e", r"\\log *_ *\{? *e(?![a-z]) *\}?", r"\\ln "),
    _step("natural", "\\log without a base", r"\\log(?![a-zA-Z])(?!\s*_)", r"\\ln"),
    _step("introduction", "the answer is 7; = 7", r"^[ ]*(?:(?i:(?:the )?(?:final )?answer(?: is\b)?)[ ]*[:=]?|=(?!=))[ ]*", ""),
    _step("positive", "+7 is 7", r"(^|[,(\[])[ ]*\+", r"\1"),
    _step("full stop", "ends a sentence, not a number", r"[\s.,;]+$", ""),
    _step("outer blanks", "", r"^ +", ""),
)  # fmt: skip


def spelled(text: str) -> str:
    r"""The text after all steps.

    >>> spelled(r"$\dfrac{1}{2}\,$."), spelled("1,000"), spelled("½x²")
    ('\\frac{1}{2}', '1000', '\\frac{1}{2}x^{2}')
    """
    for step in STEPS:
        text = step.pattern.sub(step.to, text)
    return text
