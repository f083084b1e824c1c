r"""The characters and commands that have a plainer spelling: what to write, then what it replaces."""

from __future__ import annotations

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
\alpha α
\beta β
\gamma γ
\delta δ
\epsilon ε
\theta θ
\lambda λ
\mu μ µ
\nu ν
\xi ξ
\pi π
\rho ρ
\sigma σ
\tau τ
\phi φ
\chi χ
\psi ψ
\omega ω
\Gamma Γ
\Delta Δ
\Theta Θ
\Lambda Λ
\Pi Π
\Sigma Σ
\Phi Φ
\Psi Ψ
\Omega Ω
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


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.split("\n") if line]


CHARACTERS = str.maketrans(
    {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}  # full width
    | dict.fromkeys(_BLANKS, " ")
    | dict.fromkeys(_INVISIBLE, "")
    | {
        character: f"{plain} " if plain[-1].isalpha() else plain
        for plain, *row in _rows(_CHARACTERS)
        for character in row
    }
)
COMMANDS = {name: plain for plain, *names in _rows(_COMMANDS) for name in names}
SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ₀₁₂₃₄₅₆₇₈₉", "0123456789+-ni0123456789")
RAISED, LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "₀₁₂₃₄₅₆₇₈₉"
VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
