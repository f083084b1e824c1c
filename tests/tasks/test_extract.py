"""Answer extractors on good, repeated, broken and hostile text."""

from __future__ import annotations

import pytest

from tokenpo.tasks.extract import EXTRACTORS


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("tag", "<answer>1</answer> no, <answer>\n 2 </answer> bye", "2"),
        ("tag", "<answer> </answer>", None),
        ("tag", "<answer>2", None),
        ("tag", "2</answer>", None),
        ("boxed", r"\boxed{1} then \boxed{\frac{1}{2}} end", r"\frac{1}{2}"),
        ("boxed", r"\boxed{1} then \boxed{2", None),
        ("boxed", r"\boxed{}", None),
        ("hash", "3-9=4#4 then #7\nmore", "7"),
        ("hash", "#### 1,000 ", "1,000"),
        ("hash", "no mark", None),
        ("hash", "7#", None),
        ("last_line", "a\n b \n\n", "b"),
        ("last_line", "\n ", None),
        ("auto", "# Title\n<answer>5</answer>", "5"),
        ("auto", "# Title\nso 5", None),
        ("auto", "x #### 5", "5"),
        ("auto", r"<answer>so \boxed{6}</answer>", "6"),
        ("whole", " a b ", "a b"),
        ("whole", " ", None),
    ],
)
def test_extractor(name: str, text: str, found: str | None) -> None:
    assert EXTRACTORS[name].find(text) == found
