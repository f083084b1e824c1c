r"""What the verifier `math` counts as the same answer, one line per question; docs/tasks.md shows these lines."""

from __future__ import annotations

CONVENTIONS: tuple[tuple[str, str], ...] = (
    (
        "which answer",
        r"What `\boxed{}` or `<answer>` holds, whichever is opened last, else what follows the last `####`; one that is "
        "not finished is no answer. Thinking (`<think>`) is not read, and thinking that does not end leaves no answer.",
    ),
    (
        "unmarked answers",
        "A text that is one formula is the answer; else the first formula after the last “answer is” or “answer:”, else "
        "the last formula of the last line. A sentence that denies (not, no, wrong, ...) gives none.",
    ),
    ("value", r"Values are compared, not forms: `\frac{2}{4}`, `0.5`, `1/2` and `2^{-1}` are one answer."),
    (
        "decimals",
        r"Exact: `0.50` is 1/2; `0.333`, `1.414` and `3.14159` are not 1/3, √2, π. `0.\overline{3}` is 1/3. The point "
        "separates decimals; commas and blanks separate groups of three digits (`1,000`, `1\\,000`), else a list.",
    ),
    ("mixed numbers", r"`1 1/2`, `1\frac12` and `1½` are 3/2."),
    (
        "percent",
        r"`50\%` is 0.5, and it is the bare number 50 if that is more than 1: then the question says percent. `0.5\%` is "
        "never 0.5.",
    ),
    (
        "units",
        "Given on one side only, they are left out: `5 cm` is 5. Given on both they must agree or convert: `5 m` is "
        "`500 cm`, not `5 cm`. Money and degrees are units. Words that count things (apples, ways) are units.",
    ),
    (
        "bases",
        r"`42_8` is 34. A reference with a base wants the same digits in the same base; without one, the value.",
    ),
    (
        "names",
        r"`x = 7` is 7; where both sides have a name it must be the same. A chain of equations must be true: "
        r"`6 \cdot 7 = 42` is 42, and `41 = 42` is nothing. `x + 1 = 42` is an equation, not 42.",
    ),
    (
        "lists",
        r"`2, 3`, `2 \text{ or } 3` and `x = 2, x = 3` are one list in any order, repeats counted; `\pm a` is two numbers.",
    ),
    (
        "brackets",
        r"A set `\{1,2\}`, a tuple or open interval `(1,2)` and a closed interval `[1,2]` differ. A bare list is a set in "
        "any order or a tuple in this order.",
    ),
    (
        "intervals",
        r"`1 < x \le 2` is `(1,2]`; a union `\cup` may be written with “or”; `\emptyset`, `\varnothing` and `\{\}` are "
        "one.",
    ),
    ("logarithms", r"`\log` without a base is `\ln`; `\lg` is base 10."),
    ("complex numbers", "`i` is the imaginary unit, `e` Euler's number."),
    ("dots", r"A sequence with `\ldots` equals the same terms in the same order with dots at the same places."),
    (
        "text",
        "What holds a word or a sign that is not read as maths (`42'`, `42?`, “42 is wrong”) equals the same text only, "
        "but for case and blanks. A choice `(B)` is `B`.",
    ),
)
