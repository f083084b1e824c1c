"""What a model writes stays text: escaped, visible, bounded, under a policy that would stop it anyway."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tokenpo.evidence.report
from hostile import ATTRIBUTES, ELEMENTS, HOSTILE, spoilt
from page_laws import skeleton, stands_alone
from page_tree import drawn, embedded
from tokenpo.evidence.report import write_report

SCRIPT = Path(tokenpo.evidence.report.__file__).with_name("report.js").read_text(encoding="utf-8")


@pytest.fixture
def hostile(make_run):
    return spoilt(make_run, HOSTILE.__getitem__)


def test_hostile_text_changes_nothing_but_text(story, make_run, page, hostile):
    mild = page(spoilt(make_run, "plain {}".format, name="mild"))
    tree = page(hostile)
    assert len(skeleton(tree)) > 300
    assert skeleton(mild) == skeleton(tree)
    assert mild.one("style").text == tree.one("style").text
    for found in (story[1], tree):
        assert {node.tag for node in found} <= set(ELEMENTS.split())
        assert {name for node in found for name in node.attributes} <= set(ATTRIBUTES.split())


def test_hostile_text_is_shown_as_it_is(page, hostile):
    tree = page(hostile)
    card = drawn(tree)[0]
    texts = [text for text, _, _ in card.tokens]
    assert texts == [text for text, _, _ in embedded(tree)[0].tokens]
    assert texts[0] == HOSTILE[0].replace(" ", "␣")
    assert texts[1].startswith("</style></title></textarea><script>document.title='pwned'</s")
    assert texts[6] == HOSTILE[6].replace(" ", "␣")
    assert texts[8] == "⟨202E⟩ltr⟨2066⟩x⟨2069⟩⟨200F⟩⟨FEFF⟩⟨00AD⟩"
    assert texts[9] == "␀␇␛[31mred␡⟨0085⟩␍↵⟨2028⟩⟨2029⟩"
    assert texts[10] == "⟨D800⟩⟨FFFE⟩\U0001f600"
    assert tree.one("h1").text == f"{HOSTILE[0]} on {HOSTILE[1]}"
    assert tree.one("head").one("title").text == f"{HOSTILE[0]} on {HOSTILE[1]}: tokenpo report"
    assert HOSTILE[6] in tree.one("section", "objective").text
    # Numbers that are none.
    assert "reward – " in card.meta and card.verdict == "not judged"
    assert card.tokens[1][1]["advantage"] == "–" and "an" in card.tokens[1][2]


def test_the_page_stands_alone(story, hostile):
    stands_alone((story[0] / "report.html").read_text(encoding="utf-8"), SCRIPT)
    stands_alone(write_report(hostile).read_text(encoding="utf-8"), SCRIPT)
    (hostile / "trace.jsonl").unlink()
    stands_alone(write_report(hostile).read_text(encoding="utf-8"))  # without tokens it has no script


def test_the_script_makes_no_markup_and_reaches_for_nothing(story, page, hostile):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|import|fetch|XMLHttp|https?:|setTimeout"
    )
    assert not re.search(forbidden, SCRIPT)
    # The data element holds no character that could end it, whatever the texts are; nor does the script.
    for tree in (story[1], page(hostile)):
        data, script = tree.all("script")
        assert sorted(data.attributes.items()) == [("id", "data"), ("type", "application/json")]
        assert not script.attributes
        assert not set(data.text) & set("<>&") and "</script" not in script.text.lower()
        assert "<!--" not in script.text


def test_the_first_view_needs_no_script(story):
    """Without scripts, and even without :has(), the numbers are there as text: only choosing needs CSS or a script."""
    _, tree = story
    header = tree.one("header").text
    assert "hapo on dial_sum" in header and "Held-out accuracy" in header and "%" in header
    assert not [n for n in tree if "style" in n.attributes]
    hidden = [n for n in tree if "hidden" in n.attributes]
    assert [n.classes for n in hidden] == [["sides"], ["choose"], ["choose"]]  # menus that only the script can fill
    assert "needs JavaScript" in tree.one("noscript").text
    assert len(drawn(tree)) == 4
    assert [c.attributes["name"] for c in tree.all("input") if "checked" in c.attributes and c["type"] == "radio"]


def test_a_token_of_200_kilobytes(make_run, page, traced):
    big = traced(["<" * 200_000, "b"], entropy=[0.5, 1.0]) | {"prompt": "&" * 200_000}
    run = make_run(trace=[big])
    tree = page(run)
    assert (run / "report.html").stat().st_size < 400_000
    for card in (drawn(tree)[0], embedded(tree)[0]):
        assert card.tokens[0][0] == "<" * 60 + "… (200,000 characters)"
        assert card.prompt == "&" * 2000 + "… (200,000 characters)"
