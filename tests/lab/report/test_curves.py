"""The curves and the head of the page say what metrics.jsonl says."""

import math
import re

import pytest

from run_views import lines
from tokenpo.lab.page.chart import Chart, Line, draw

LABELS = {  # chart -> label of a line -> metric
    "Accuracy": {"held-out, greedy": "eval/accuracy", "training, sampled": "accuracy"},
    "Reward": {"training": "reward"},
    "Entropy": {"mean": "entropy", "median": "entropy_q50"},
    "Ratio": {"mean": "ratio_mean"},
    "Clipped tokens": {"all": "clip_fraction", "above": "clip_high_fraction", "below": "clip_low_fraction"},
    "KL moved": {"new against old (k3)": "kl"},
    "Gradient norm": {"norm": "grad_norm"},
    "Response length": {"mean": "length", "longest": "length_max", "held-out, mean": "eval/length"},
    "Truncated": {"without an end": "truncated"},
    "Learning signal": {
        "effective tokens": "effective_tokens",
        "zero-advantage groups": "zero_advantage_groups",
        "discarded groups": "discarded_groups",
    },
    "Time": {"rollout": "seconds_rollout", "update": "seconds_update", "other": "seconds_other"},
    "Loss": {"loss": "loss"},
    "Learning rate": {"learning rate": "lr"},
    "Sampling temperature": {"sampling temperature": "temperature_mean"},
}


def value(text):
    """The number in a text of the page, percent taken as a fraction."""
    return float(text.replace(",", "").removesuffix(" %")) / (100 if text.endswith(" %") else 1)


def close(x):
    """Equal to the digits that the page writes: three, or two beside an exponent."""
    return pytest.approx(x, rel=0.0051 if abs(x) >= 1e-4 else 0.051, abs=1e-12)


def figure(tree, title):
    (found,) = [f for f in tree.all("figure") if f.one("h3").text == title]
    return found


def readings(figure):
    """step -> {label: text} that a reader sees who points at the step."""
    rows = {}
    for column in figure.all("g", "hit"):
        step, *parts = (line.text for line in column.all("tspan"))
        rows[int(step.removeprefix("step "))] = {p.rpartition(" ")[0]: p for p in parts}
    return rows


def decode(figure, path, log=False):
    """[(x, y)] of a path of the chart, y read back against the axis's own labels."""
    marks = [(float(t["y"]) - 3.5, value(t.text)) for t in figure.all("text", "y")]
    (a, low), (b, high) = marks[0], marks[-1]
    place, back = (math.log10, lambda y: 10**y) if log else (float, float)
    points = [tuple(map(float, pair.split())) for pair in path.removeprefix("M").removesuffix("Z").split("L")]
    return [(x, back(place(low) + (y - a) / (b - a) * (place(high) - place(low)))) for x, y in points]


def paths(figure, *classes):
    found = [p for p in figure.all("path") if set(classes) <= set(p.classes) and p["d"].startswith("M")]
    return [p["d"] for p in found if "H22" not in p["d"]]  # not those of the key


@pytest.mark.parametrize("title", LABELS)
def test_the_numbers_of_a_chart_are_those_of_metrics(story, title):
    run, tree = story
    rows = readings(figure(tree, title))
    assert sorted(rows) == list(range(1, 61))
    for row in lines(run):
        shown = " · ".join(["", *rows[row["step"]].values(), ""])
        for label, name in LABELS[title].items():
            found = re.search(rf" · {re.escape(label)} (\S+(?: %)?) · ", shown)
            assert (found is not None) == (name in row), (row["step"], name)
            if found:
                assert value(found[1]) == close(row[name])


@pytest.mark.parametrize(
    ("title", "name", "colour", "tolerance", "log"),
    [
        ("Entropy", "entropy", "c0", 0.002, False),
        ("KL moved", "kl", "c0", 1e-5, False),
        ("Response length", "length_max", "c2", 0.05, False),
        ("Clipped tokens", "clip_low_fraction", "c2", 2e-5, False),
        ("Ratio", "ratio_mean", "c0", 0.005, True),
    ],
)
def test_a_line_is_drawn_where_its_numbers_are(story, title, name, colour, tolerance, log):
    run, tree = story
    found = figure(tree, title)
    (path,) = paths(found, "line", colour)
    points, rows = decode(found, path, log), lines(run)
    assert [y for _, y in points] == pytest.approx([row[name] for row in rows], abs=tolerance)
    assert [x for x, _ in points] == pytest.approx([46 + (row["step"] - 1) / 59 * 344 for row in rows], abs=0.06)


def test_head_and_facts(story):
    run, tree = story
    first, *_, last = lines(run)
    for node, row in zip(tree.all("span", "value"), (first, last), strict=True):
        shown = re.fullmatch(r"([\d.]+) %step (\d+), ([\d.]+)–([\d.]+) %", node.text)
        assert shown is not None and int(shown[2]) == row["step"]
        expected = [row["eval/accuracy"], row["eval/low"], row["eval/high"]]
        assert [float(shown[i]) / 100 for i in (1, 3, 4)] == pytest.approx(expected, rel=0.0051)
    found = tree.one("header").one("dl")
    facts = {name.text: fact.text for name, fact in zip(found.all("dt"), found.all("dd"), strict=True)}
    facts = {key: text for key, text in facts.items() if key in ("method", "task", "seed", "steps", "model", "time")}
    assert facts.pop("time").endswith(" s")
    assert facts == {"method": "hapo", "task": "dial_sum", "seed": "3", "steps": "60", "model": "tiny"}
    assert tree.one("head").one("title").text == "hapo on dial_sum: tokenpo report"
    assert [fact.one("dt").text for fact in found.all("div", "long")] == ["paper"]
    assert "TokenGroupAverage()" in tree.one("section", "objective").text


def test_spikes_survive_thinning_and_a_line_breaks_where_nothing_was_measured():
    points = [(float(x), {1234: 7.0, 3456: -5.0}.get(x, 1.0)) for x in range(5000)]
    (path,) = re.findall(r'class="line c0" d="M([^"]+)"', draw(Chart("spiky", "", "", [Line("a", points)])))
    assert path.count("L") < 310
    ys = [float(pair.split()[1]) for pair in path.split("L")]  # y points down
    assert len(set(ys)) == 3 and ys.index(min(ys)) < ys.index(max(ys))
    broken = Line("a", [(0, 1.0), (1, 2.0), (2, None), (3, 1.0), (4, 2.0), (9, 1.0)])
    assert len(re.findall('class="line c0"', draw(Chart("gap", "", "", [broken])))) == 3
