r"""What the verifier `math` counts as the same answer, one line per question; docs/tasks.md shows these lines."""

CONVENTIONS: tuple[tuple[str, str], ...] = (
    (
        "which answer",
        r"What `\boxed{}` or `<answer>` holds, whichever is opened last, else what follows the last `####`; one that "
        "is not finished is no answer. Thinking (`<think>`) is not read, also where the prompt as the model sees it "
        "opens it; if it does not end, there is no answer.",
    ),
    (
        "unmarked answers",
        "A text that is one formula is the answer; else the first formula after the last “answer is” or “answer:”, "
        "else the last formula of the last line. A sentence that denies (not, no, wrong, ...) or asks gives none, "
        "and so does a number that is a bound or part of a formula: at least 5, minus 4, 5 out of 6.",
    ),
    (
        "words",
        "Where a reference is a word or the letter of a choice, an unmarked text gives what follows the last "
        "“answer is”, “option is” or “answer:” up to a comma or full stop, or is the word: `Answer: No.`, "
        "`The correct option is **C**.`",
    ),
    (
        "plain text",
        r"`√17`, `sqrt(17)`, `2**10`, `10^-7`, `log2(8)` and `0xFF` are plain text: a root, a power and a base "
        r"take a whole number. `\frac12` is TeX, one digit each. `2^3^2` is 2^9.",
    ),
    (
        "the question",
        r"An expression of the question is no answer: for “What is 6 + 4?” neither `4+6` nor `\boxed{6+4}` is right, "
        "`6+4 = 10` and `5+5` are. A bare number is an answer wherever it stands, and so is a form that the reference "
        "has.",
    ),
    ("value", r"Values are compared, not forms: `\frac{2}{4}`, `0.5`, `1/2` and `2^{-1}` are one answer."),
    (
        "decimals",
        r"Exact: `0.50` is 1/2; `0.333`, `1.414` and `3.14159` are not 1/3, √2, π. `0.\overline{3}` is 1/3. The point "
        r"separates decimals; commas and blanks separate groups of three digits (`1,000`, `1\,000`).",
    ),
    ("mixed numbers", r"`1 1/2`, `1\frac12` and `1½` are 3/2."),
    (
        "percent",
        r"`50\%` is 0.5, and the bare number 50, since that is more than 1: the question says percent then. `0.5\%` "
        "is never 0.5.",
    ),
    (
        "units",
        "On one side only, they are left out: `5 cm` is 5. On both, they agree or convert: `5 m` is `500 cm`, not "
        "`5 cm`. Money, degrees and words for what is counted (apples, ways) are units.",
    ),
    (
        "bases",
        r"`42_8` is 34. A reference with a base wants the same digits in the same base; one without, the value. "
        "Letters are digits: `FF_{16}` is 255.",
    ),
    (
        "ratios",
        r"`3:4` is `6:8`, `\frac34` and `0.75`, both ways; no whole number is a ratio. `10:30`, two digits of minutes, "
        "is a time and not 1/3, unless the question asks for a ratio.",
    ),
    ("letters", "Two or more capitals have an order: `HHT` is not `THH`. `abc` is a product."),
    (
        "names",
        r"`x = 7` is 7, and so is `m + n = 7`; where both sides have a name, it is the same. A chain of equations is "
        r"true: `6 \cdot 7 = 42` is 42, `41 = 42` is nothing. `x + 1 = 42` is an equation, not 42.",
    ),
    (
        "lists",
        r"`2, 3`, `2 \text{ or } 3` and `x = 2, x = 3` are one list, in any order, repeats counted; `\pm a` is two "
        "numbers.",
    ),
    (
        "brackets",
        r"A set `\{1,2\}`, a tuple or open interval `(1,2)` and a closed interval `[1,2]` differ. A bare list is a "
        "set in any order, or a tuple in this order.",
    ),
    (
        "intervals",
        r"`1 < x \le 2` is `(1,2]`. `]1,2[` is `(1,2)`, `|x|<1` is `(-1,1)`. A union may be written with “or”. "
        r"`\emptyset`, `\varnothing` and `\{\}` are one.",
    ),
    ("logarithms", r"`\log` without a base is `\ln`; `\lg` has base 10."),
    ("complex numbers", "`i` is the imaginary unit, `e` Euler's number."),
    ("dots", r"A sequence with `\ldots` equals the same terms with dots at the same places."),
    (
        "text",
        "What holds a word or a sign that is not read as maths (`42'`, `42?`, “42 is wrong”) equals the same text "
        "only, but for case and blanks. The choice `(B)` is `B`.",
    ),
)
