"""explain.html: the numbers are on it as text, every method beside the others, and nothing can become markup."""

import pytest

from page_tree import read_html
from tokenpo.lab.explain.explanation import explain_all
from tokenpo.lab.explain.page import chosen, draw_responses, render
from tokenpo.records import read
from tokenpo.train.recipe.command_line import parse_entries
from written_rollouts import FOUR, write


@pytest.fixture
def result(tmp_path):
    def make(lines=FOUR, methods="grpo,dapo,hapo"):
        return explain_all(read(write(tmp_path / "r.jsonl", lines)), parse_entries(methods))

    return make


def hostile(text):
    """Every text of the format is this one."""
    return [
        line | {"tokens": [text] * len(line["tokens"]), "prompt": text, "group": text + line["group"], text: 1}
        for line in FOUR
    ]


def test_every_method_shows_every_token(result):
    tree = read_html(render(result()))
    cards = tree.all("article", "card")
    assert len(cards) == 4
    for card, line in zip(cards, FOUR, strict=True):
        views = card.all("section", "view")
        assert [view.one("h3").text for view in views] == ["grpo", "dapo", "hapo"]
        for view in views:
            assert [row.one("th").text for row in view.one("tbody").all("tr")] == line["tokens"]
        assert ("✓ right" if line["correct"] else "✗ wrong") in card.one("p", "meta").text
        assert card.one("pre", "prompt").text == line["prompt"]
    # 0.75 a, 0.75 a and −1.5 a of grpo, ± a of dapo (test_push), a = 0.7071.
    first = [[row.all("td")[1].text for row in view.one("tbody").all("tr")] for view in cards[0].all("section", "view")]
    assert first[:2] == [["0.53", "0.53"], ["0.707", "0.707"]]
    # HAPO's differ from token to token of one response.
    push = result().methods[2].push[0].tolist()
    assert first[2] == [f"{x:.3g}" for x in push] and len(set(first[2])) == 2
    second = [view.one("tbody").one("tr") for view in cards[1].all("section", "view")]
    assert [row.all("td")[1].text for row in second[:2]] == ["-1.06", "-0.707"]
    # Orange below zero, blue above: of nine colours the middle one is number 4.
    assert int(second[0].classes[0][1:]) < 4 < int(cards[0].all("tbody")[0].all("tr")[0].classes[0][1:])


def test_which_responses_are_drawn(result):
    """The best and the worst of a group, groups with unlike rewards first; never one without tokens."""
    rewards = [(0, 1), (0, 1), (1, 0), (1, 1), (1, 2), (2, 5)]
    lines = [{"group": g, "reward": r, "tokens": ["a"], "old_logprob": [-1.0]} for g, r in rewards]
    lines.append({"group": 1, "reward": 9, "tokens": [], "old_logprob": []})
    found = result(lines, "grpo")
    assert chosen(found) == [4, 2, 0, 1, 5, 3]
    assert [card.row for card in draw_responses(found, 3).cards] == [0, 2, 4]
    assert draw_responses(found, 0).cards == ()
    assert read_html(render(found, 0)).all("table", "shares")
    assert draw_responses(found, 3).notes[0] == "Drawn are 3 of 7 responses; the shares are over all of them."
