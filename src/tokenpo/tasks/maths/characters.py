r"""The characters and commands that have a plainer spelling."""

from __future__ import annotations

# What to write, then what it replaces.
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
\sqrt[3]  ∛
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
