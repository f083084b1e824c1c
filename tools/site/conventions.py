r"""What the verifier `math` counts as the same answer, one line per question; docs/tasks.md shows these lines."""

CONVENTIONS: tuple[tuple[str, str], ...] = (
    (
        "which answer",
        r"The content of the last `\boxed{}` or `<answer>`; without either, the text after the last `####`. If that "
        "is not closed, there is no answer. Thinking (`<think>`) is left out, also if the prompt opens it; if the "
        "thinking does not end, there is no answer.",
    ),
    (
        "unmarked answers",
        "If the text is one formula, that. Else the first formula after the last “answer is” or “answer:”. Else the "
        "last formula of the last line. Nothing is read from a sentence that denies (not, no, wrong, ...) or asks, "
        "or from a bound or a part: at least 5, minus 4, 5 out of 6.",
    ),
    (
        "words",
        "If the reference is a word or the letter of a choice: the text after the last “answer is”, “option is” or "
        "“answer:”, up to a comma or full stop, or the word alone. `Answer: No.` and `The correct option is **C**.` "
        "count.",
    ),
    (
        "plain text",
        "`√17`, `sqrt(17)`, `2**10`, `10^-7`, `log2(8)` and `0xFF` are plain text: roots, powers and bases take a "
        r"whole number. `\frac12` is TeX, one digit each. `2^3^2` is 2^9.",
    ),
    (
        "the question",
        r"Repeating an expression of the question is wrong: for “What is 6 + 4?” `4+6` and `\boxed{6+4}` are wrong, "
        "`6+4 = 10` and `5+5` are right. A bare number counts, and so does a form that the reference has.",
    ),
    ("value", r"Values are compared, not forms: `\frac{2}{4}`, `0.5`, `1/2` and `2^{-1}` are one answer."),
    (
        "decimals",
        r"Exact: `0.50` is 1/2; `0.333`, `1.414` and `3.14159` are not 1/3, √2, π. `0.\overline{3}` is 1/3. The point"
        r" separates decimals; commas and blanks separate groups of three digits (`1,000`, `1\,000`).",
    ),
    ("mixed numbers", r"`1 1/2`, `1\frac12` and `1½` are 3/2."),
    (
        "percent",
        r"`50\%` is 0.5. It is also the bare number 50, because that is more than 1 and the question may say percent."
        r" `0.5\%` is never 0.5.",
    ),
    (
        "units",
        "If one side has a unit, it is ignored: `5 cm` is 5. If both have one, they must agree or convert: `5 m` is "
        "`500 cm`, not `5 cm`. Money, degrees and counted things (apples, ways) are units.",
    ),
    (
        "bases",
        "`42_8` is 34. If the reference has a base, the digits and the base must be the same; else the value counts."
        " Letters are digits: `FF_{16}` is 255.",
    ),
    (
        "ratios",
        r"`3:4`, `6:8`, `\frac34` and `0.75` are the same, both ways. A whole number is never a ratio. `10:30`, with "
        "two digits of minutes, is a time and not 1/3, unless the question asks for a ratio.",
    ),
    ("letters", "Two or more capitals have an order: `HHT` is not `THH`. `abc` is a product."),
    (
        "names",
        "`x = 7` and `m + n = 7` are 7. If both sides have a name, the names must be equal. A chain of equations "
        r"must be true: `6 \cdot 7 = 42` is 42, `41 = 42` is unreadable. `x + 1 = 42` is an equation, not 42.",
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
