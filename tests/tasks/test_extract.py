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
        ("tag", "<answer>42</answer> no: <answer>41", None),
        ("tag", "<think><answer>1</answer></think><answer>2</answer>", "2"),
        ("tag", "2</answer>", None),
        ("boxed", r"\boxed{1} then \boxed{\frac{1}{2}} end", r"\frac{1}{2}"),
        ("boxed", r"\boxed{1} then \boxed{2", None),
        ("boxed", r"\boxed{}", None),
        ("boxed", r"\boxed{42} hmm no \boxed{41", None),
        ("boxed", r"\boxed{42} \boxed{", None),
        ("boxed", r"\boxed{42} \boxed", None),
        ("boxed", r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("boxed", r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        ("boxed", r"\fbox{7}", "7"),
        ("boxed", r"<think>\boxed{1}</think> It is 2.", None),
        ("boxed", r"1? </think> \boxed{2}", "2"),
        ("boxed", r"\boxed{1} <think> hmm", None),
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
        ("auto", r"\boxed{1} no: <answer>2</answer>", "2"),
        ("auto", r"<answer>2</answer> no: \boxed{1}", "1"),
        ("auto", r"#### 1 \boxed{2}", "2"),
        ("auto", r"\boxed{42} <answer>", None),
        ("auto", "<answer>42</answer> no: <answer>41", None),
        ("auto", "<think>#### 1", None),
        ("whole", " a b ", "a b"),
        ("whole", " ", None),
        ("whole", "<thinking>1</thinking> 2", "2"),
        ("last_line", "<think>1\n2", None),
        ("hash", "<think>#1</think>", None),
    ],
)
def test_extractor(name: str, text: str, found: str | None) -> None:
    assert EXTRACTORS[name].find(text) == found
