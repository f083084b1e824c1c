"""The token browser shows the numbers of trace.jsonl, and colours that mean what the legend says."""

from __future__ import annotations

import json
import re

import pytest

from page_tree import drawn, embedded

# Label on the page -> name in the trace.
LABELS = {name: name for name in ("advantage", "weight", "ratio", "loss", "entropy", "temperature")} | {
    "log-prob": "logprob"
}


def rows(tree):
    """Each token of the one response of the page as (text, {column: text}, classes)."""
    (card,) = embedded(tree)
    return card.tokens


def legend(tree, label):
    """(classes, edges) of a quantity's colours, as the legend states them."""
    (found,) = [d for d in tree.all("div", "legend") if d.one("b").text == label]
    swatches = found.one("ol", "swatches").all("li")
    return [li.one("i").classes[0] for li in swatches], [span.text for li in swatches for span in li.all("span")]


def chosen(tree):
    return [node["id"] for node in tree.all("input") if "checked" in node.attributes]


def test_every_token_carries_its_recorded_numbers(story):
    run, tree = story
    lines = [json.loads(line) for line in (run / "trace.jsonl").read_text().splitlines()]
    cards = embedded(tree)
    assert len(cards) == len(lines) == 28
    for card, line in zip(cards, lines, strict=True):
        assert card.meta.endswith(f"{len(line['tokens'])} tokens · row {line['row']}, group {line['group']}")
        assert f"reward {line['reward']:g} · expected {line['answer']} · " in card.meta
        assert card.verdict == ("✓ right" if line["correct"] else "✗ wrong")
        assert (card.step, card.prompt) == (line["step"], line["prompt"])
        assert [text for text, _, _ in card.tokens] == [token.replace(" ", "␣") for token in line["tokens"]]
        assert [columns.pop("no.") for _, columns, _ in card.tokens] == [str(i + 1) for i in range(len(card.tokens))]
        for t, (_, columns, _) in enumerate(card.tokens):
            state, ratio = columns.pop("clip state"), line["terms"]["ratio"][t]
            assert state == ("no" if not line["terms"]["clipped"][t] else "below" if ratio < 1 else "above")
            assert set(columns) == set(LABELS)
            for label, text in columns.items():
                recorded = line["terms"][LABELS[label]][t]
                assert float(text) == pytest.approx(recorded, rel=0.0051, abs=5e-7), label


def test_the_first_view_and_what_it_leaves_out(story):
    """Both prompts have two responses, so each side shows its first prompt whole."""
    _, tree = story
    fixed, lacks = [p.text for p in tree.all("p", "fixed")]
    assert fixed == "The same for every drawn token: coefficient 0.000125 · lower bound 0.8 · upper bound 1.2."
    assert lacks == "Not in the trace: effective coefficient, probability, KL moved, KL to reference."
    first = [card for card in embedded(tree) if card.step in (1, 60)]
    assert [(c.step, c.prompt) for c in drawn(tree)] == [(1, first[0].prompt)] * 2 + [(60, first[4].prompt)] * 2
    for card, there in zip(drawn(tree), (first[0], first[1], first[4], first[5]), strict=True):
        assert (card.meta, card.tokens) == (there.meta, there.tokens)


def test_a_colour_means_what_the_legend_says(story):
    _, tree = story
    for label in LABELS:
        classes, texts = legend(tree, label)
        edges = [float(text) for text in texts]
        assert edges == sorted(edges) and len(edges) == len(classes) + 1
        width = edges[-1] - edges[0]
        for card in embedded(tree):
            for _, columns, names in card.tokens:
                (level,) = [i for i, name in enumerate(classes) if name in names]
                x = min(max(float(columns[label]), edges[0]), edges[-1])
                assert edges[level] - 0.006 * width <= x <= edges[level + 1] + 0.006 * width, (label, x)


# Label: values of four tokens, the ends of the scale, and the colours: d0..d8 from orange over neutral d4 to blue,
# s0..s7 from faint to strong.
SCALES = {
    "advantage": ([-0.9, 0.0, 0.05, 0.9], ("-0.9", "0.9"), "d0 d4 d4 d8"),
    "weight": ([0.55, 1.0, 1.2, 1.45], ("0.55", "1.45"), "d0 d4 d6 d8"),
    # edges exp(±0.1), exp(±0.3), ...: the next short width above ln(2) / 4.5
    "ratio": ([0.5, 1.0, 1.1, 2.0], ("0.407", "2.46"), "d1 d4 d4 d7"),
    "entropy": ([0.0, 0.05, 0.4, 0.8], ("0", "0.8"), "s0 s0 s4 s7"),
    "temperature": ([0.9, 1.0, 1.1, 1.3], ("0.9", "1.3"), "s0 s2 s4 s7"),
    "log-prob": ([-1.6, -0.01, -0.3, 0.0], ("-1.6", "0"), "s7 s0 s1 s0"),
}


def test_scales_and_colours_by_hand(make_run, page, traced):
    terms = {LABELS[label]: values for label, (values, _, _) in SCALES.items()}
    tree = page(make_run(steps=2, trace=[traced("abcd", **terms)]))
    style = tree.one("style").text
    radios = {label.one("span").text: label.one("input")["id"] for label in tree.all("fieldset")[0].all("label")}
    assert list(radios) == list(SCALES)
    for label, (_, ends, colours) in SCALES.items():
        texts = legend(tree, label)[1]
        assert (texts[0], texts[-1]) == ends
        rule = rf":root:has\(#{radios[label]}:checked\) \.(\w+)\{{background:var\(--(\w+)\);color:var\(--(\w)t(\d)\)\}}"
        colour = {name: shade for name, shade, p, i in re.findall(rule, style) if shade == p + i}
        assert [next(colour[n] for n in names if n in colour) for _, _, names in rows(tree)] == colours.split()


def test_an_outlier_does_not_bleach_the_rest(make_run, page, traced):
    entropy = [i / 200 for i in range(200)] + [60.0]
    tree = page(make_run(steps=2, trace=[traced("a" * 201, entropy=entropy)]))
    assert legend(tree, "entropy")[1][-1] == "1.2"
    assert "1 tokens lie beyond the ends and take the last colour" in tree.one("div", "legend").text
    assert rows(tree)[-1][1]["entropy"] == "60"


def test_an_advantage_that_tells_no_tokens_apart_gives_way_to_entropy(make_run, page, traced):
    lines = [traced("ab", row=i, advantage=[a, a], entropy=[0.1, 0.2]) for i, a in enumerate((1.0, -1.0))]
    assert chosen(page(make_run(steps=2, trace=lines))) == ["q1", "both"]
    lines[0]["terms"]["advantage"] = [1.0, 0.5]
    assert chosen(page(make_run(steps=2, trace=lines, name="apart"))) == ["q0", "both"]


@pytest.mark.parametrize(
    ("places", "sides"),  # (step, group, row) of the responses; step, prompt and number of responses of each side
    [
        ([(1, 0, 0)], [(1, "p0", 1)]),  # one response: one side
        ([(1, 0, 0), (1, 0, 1)], [(1, "p0", 1), (1, "p0", 1)]),  # two to one prompt
        ([(1, 0, 0), (1, 1, 2)], [(1, "p0", 1), (1, "p1", 1)]),  # two prompts
        ([(1, 0, 0), (3, 0, 0), (9, 4, 0), (9, 4, 1)], [(1, "p0", 1), (9, "p4", 2)]),  # the first and the last step
        ([(1, 0, 0), (1, 2, 2), (2, 3, 3)], [(1, "p2", 1), (2, "p3", 1)]),  # a prompt with an advantage first
    ],
)
def test_what_the_first_view_shows(make_run, page, traced, places, sides):
    lines = [
        traced("ab", step=s, group=g, row=r, entropy=[0.1 * s, 0.2], advantage=[0.0, 1.0 * (g == 2)])
        | {"prompt": f"p{g}"}
        for s, g, r in places
    ]
    panes = [p for p in page(make_run(steps=2, trace=lines)).all("section", "pane") if "hidden" not in p.attributes]
    found = [(pane.one("h3").text, pane.one("pre").text, len(pane.all("article"))) for pane in panes]
    assert found == [(f"Step {s}", text, n) for s, text, n in sides]


def test_probability_is_that_of_the_sampler(make_run, page, traced):
    """exp(-0.5) = 0.6065, exp(-3) = 0.0498; the scale always runs from 0 to 1, the improbable takes the strong end."""
    tree = page(make_run(steps=2, trace=[traced("ab", old_logprob=[-0.5, -3.0], logprob=[-0.1, -0.2])]))
    assert [columns["probability"] for _, columns, _ in rows(tree)] == ["0.607", "0.0498"]
    classes, edges = legend(tree, "probability")
    assert edges == ["0", "0.125", "0.25", "0.375", "0.5", "0.625", "0.75", "0.875", "1"]
    assert [classes.index(names[0]) for _, _, names in rows(tree)] == [4, 0]
    assert ".a0{background:var(--s7);color:var(--st7)}" in tree.one("style").text
    assert "old_logprob" not in tree.text


def test_the_sign_can_be_told_without_colour(make_run, page, traced):
    terms = {"advantage": [-1.0, 1.0], "entropy": [0.0, 1.0], "clipped": [1, 0], "ratio": [0.5, 1.0]}
    tree = page(make_run(steps=2, trace=[traced("ab", **terms)]))
    bars = re.findall(r"([^\n{}]+)\{box-shadow:inset 0 -\.14em var\(--d0\)\}", tree.one("style").text)
    marked = [re.findall(r"\.(\w\d)", rule) for rule in bars]
    # advantage a, ratio b: the four colours below the middle; clip state c: clipped below; entropy d: none
    assert marked == [["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"], ["c1"]]
    assert "A bar under the token: below the middle." in tree.all("div", "legend")[0].text


def test_a_step_without_advantages_says_so(make_run, page, traced):
    lines = [
        traced("ab", step=1, reward=0.0, advantage=[-1.0, 0.0]),
        *(traced("ab", step=2, row=i, group=i, reward=r, advantage=[0.0, -0.0]) for i, r in enumerate((0.0, 1.0))),
        *(traced("ab", step=3, row=i, group=0, reward=r, advantage=[0.0, 0.0]) for i, r in enumerate((0.0, 1.0))),
        traced("ab", step=4, advantage=[0.0, None]),
        traced("ab", step=5, entropy=[0.0, 0.1]),
    ]
    tree = page(make_run(steps=2, trace=lines))
    (script,) = [node for node in tree.all("script") if "id" in node.attributes]
    remarks = {step["number"]: step["remark"] for step in json.loads(script.text)["runs"][0]["steps"]}
    same = "all advantages are 0 here: every answer of these groups got the same reward"
    # In step 3 one group holds different rewards: something else made its advantages zero.
    assert remarks == {1: "", 2: same, 3: "all advantages are 0 here", 4: "", 5: ""}
    assert [p.text for p in tree.all("p", "remark")] == ["", ""]


def test_unknown_quantities_chat_messages_and_line_breaks(make_run, page, traced):
    line = traced(["a\nb", "\n", " x", ""], entropy=[0.0, 0.1, 0.2, 0.3], novelty=[0.5, 2.0, 2.0, 2.0])
    line["prompt"] = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1"}]
    tree = page(make_run(steps=2, trace=[line]))
    assert drawn(tree)[0].prompt == "system: Add.\nuser: 1+1"
    assert [text for text, _, _ in rows(tree)] == ["a↵b", "↵", "␣x", "∅"]
    assert ["br" in names for _, _, names in rows(tree)] == [True, True, False, False]
    assert "novelty: not a quantity this report knows" in " ".join(p.text for p in tree.all("p"))
    assert [columns["novelty"] for _, columns, _ in rows(tree)] == ["0.5", "2", "2", "2"]
