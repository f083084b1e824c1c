"""Runs that are cut off, incomplete, broken or too large: what is whole is drawn, the rest is named.

What a model writes stays text. The tokens are those of the trace.
"""

import re
from pathlib import Path

import pytest

from hostile import ATTRIBUTES, ELEMENTS, HOSTILE, spoilt
from page_laws import skeleton, stands_alone
from page_tree import embedded
from run_views import lines
from tokenpo.base.errors import TokenPOError
from tokenpo.lab import report
from tokenpo.lab.report.page import write_report
from written_runs import write_lines

LIMIT = 2_000_000  # bytes


def notes(tree):
    return [li.text for section in tree.all("section", "notes") for li in section.all("li")]


def write(run, rows, name="metrics.jsonl"):
    write_lines(run / name, rows)


def test_missing_and_null_steps(make_run, page):
    run = make_run(steps=3)
    write(run, [{"step": s, "entropy": 0.1 * s if s != 2 else None} for s in (1, 2, 3, 4, 8, 9)])
    tree = page(run)
    assert notes(tree) == []
    (figure,) = tree.all("figure")
    assert len([p for p in figure.all("path", "line") if not p["d"].startswith("M0 5")]) == 3
    assert "entropy –" not in figure.text and "mean –" in figure.text
    nan = '{"step": 1, "loss": NaN, "kl": 1e999, "lr": 1}\n{"step": 2, "loss": 1, "lr": 2}\n'
    (run / "metrics.jsonl").write_text(nan)
    loss = [line.text for figure in page(run).all("figure") for line in figure.all("tspan") if "loss" in line.text]
    assert loss == ["loss –", "loss 1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"step reward\n1 0.5\n", r"whole line with a step \(.*2 lines were left out \(line 1: not valid JSON; .*rest"),
        (b"\x80PNG\x00", r"metrics\.jsonl holds no whole line .*line 1: not valid JSON, cut off"),
        (b"", r"metrics\.jsonl holds no whole line with a step \(it is empty\): restore it, or train"),
        (None, r"run holds no metrics\.jsonl: give the run directory"),
    ],
)
def test_errors_name_the_place_and_the_remedy(make_run, tmp_path, content, message):
    run = make_run(steps=2)
    log = run / "metrics.jsonl"
    for wrong, name in ((tmp_path / "nowhere", "nowhere"), (log, r"metrics\.jsonl")):
        with pytest.raises(TokenPOError, match=rf"{name} is not a directory: give the run directory that `tokenpo tr"):
            write_report(wrong)
    log.unlink()
    if content is not None:
        log.write_bytes(content)
    with pytest.raises(TokenPOError, match=message):
        write_report(run)
    assert not (run / "report.html").exists()


def test_a_huge_trace_stays_under_two_megabytes(make_run, page, traced):
    names = ("advantage", "weight", "ratio", "entropy", "logprob", "temperature", "loss", "novel", "strange")
    terms = {name: [round(0.001234 * (i * 7 % 101) + 0.5, 6) for i in range(650)] for name in names}
    lines = [traced(["word"] * 650, step=step, row=row, **terms) for step in range(9) for row in range(5)]
    run = make_run(steps=2, trace=lines)
    assert (run / "trace.jsonl").stat().st_size > LIMIT
    tree = page(run)
    cards = embedded(tree)
    assert LIMIT / 5 < (run / "report.html").stat().st_size < LIMIT
    first, second = notes(tree)
    counted = re.fullmatch(
        r"Drawn are (\d+) of 45 recorded responses, from 9 of 9 steps; trace.jsonl holds them all\.", first
    )
    assert counted is not None and len(cards) == int(counted[1]) >= 9
    assert (
        second == f"{counted[1]} responses are longer than 600 tokens: their first 400 and last 200 tokens are drawn."
    )
    positions = [*range(1, 401), *range(451, 651)]
    assert [int(columns["no."]) for _, columns, _ in cards[0].tokens] == positions
    few = page(make_run(trace=[line for line in lines if line["step"] < 2 and line["row"] < 3], name="few"))
    assert len(embedded(few)) == 6


SCRIPT = Path(report.__file__).with_name("report.js").read_text(encoding="utf-8")


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
    card = embedded(tree)[0]
    texts = [text for text, _, _ in card.tokens]
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


# Label on the page -> name in the trace.
LABELS = {name: name for name in ("advantage", "weight", "ratio", "entropy", "temperature")} | {"log-prob": "logprob"}


def rows(tree):
    """Each token of the one response of the page as (text, {column: text}, classes)."""
    (card,) = embedded(tree)
    return card.tokens


def legend(tree, label):
    """(classes, edges) of a quantity's colours, as the legend states them."""
    (found,) = [d for d in tree.all("div", "legend") if d.one("b").text == label]
    swatches = found.one("ol", "swatches").all("li")
    return [li.one("i").classes[0] for li in swatches], [span.text for li in swatches for span in li.all("span")]


def test_every_token_carries_its_recorded_numbers(story):
    run, tree = story
    traced, cards = lines(run, "trace.jsonl"), embedded(tree)
    assert len(cards) == len(traced) == 28
    for card, line in zip(cards, traced, strict=True):
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


def test_the_page_lists_what_the_first_steps_rewarded(make_run, page):
    run = make_run()
    assert not page(run).all("table", "paid")
    line = {"prompt": [{"role": "user", "content": "1+1"}], "completion": "<b>1+1", "reward": 1.0, "answer": "2"}
    rows = [{"step": 1, **line}, {"step": 2, **line, "reward": 0.0}, {"step": 2, **line, "reward": None}, "torn"]
    write(run, [*rows, {"step": 3, **line, "completion": "2"}, {"step": 4, **line}], "samples.jsonl")
    (table,) = page(run).all("table", "paid")
    cells = [cell.text for cell in table.one("tbody").all("td")]
    assert cells == ["1", "1", "user: 1+1", "<b>1+1", "2", "3", "1", "user: 1+1", "2", "2"]
