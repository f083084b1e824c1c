"""compare.html: the numbers are on it as text, and nothing that it shows can become markup."""

import dataclasses

import pytest

from page_tree import read_html
from tokenpo.lab.compare.page import render
from tokenpo.lab.compare.plan import Failure, PlannedRun
from tokenpo.lab.compare.result import finished, gather, measures
from tokenpo.train.recipe.config import Config


@pytest.fixture
def comparison(made):
    def make(methods="grpo,dapo,x@dapo:high=0.5", seeds=8, names=("accuracy", "entropy"), margins=None):
        plan = made(methods, seeds)
        chosen = measures(names, plan.runs[0].config)
        return gather(plan.subject, finished(plan), chosen, "grpo", (), margins or {})

    return make


def spoilt(comparison, text):
    """Text from outside in every place that holds some."""
    subject = comparison.subject
    methods, objectives = (dict.fromkeys(subject.labels, of) for of in ((text, {text: text}), text))
    config = {"recipe": text, "task": {"name": text}, "model": {"path": text}, text: text}
    spoilt_subject = dataclasses.replace(subject, name=text, methods=methods, objectives=objectives, config=config)
    run = PlannedRun(text, 0, subject.place, Config(), ())
    failure = Failure(run, text, subject.place)
    notes = (*comparison.notes, text)
    return dataclasses.replace(
        comparison, subject=spoilt_subject, failures=(failure,), notes=notes, versions={text: text}
    )


def test_a_strip_is_to_scale(comparison):
    """Differences 0.4 - 0.02 s of seeds 0 ... 7: 0.26 to 0.4 on an axis from 0 to 0.4, 332 wide, 14 from the edge."""
    tree = read_html(render(comparison("grpo,dapo", names=["accuracy"], margins={"accuracy": 0.1})))
    strip = tree.all("svg", "strip")[0]
    (band,) = tree.all("rect", "band")  # ±0.1; what lies left of the axis is left out
    assert (float(band["x"]), float(band["width"])) == pytest.approx((14, 332 / 4), abs=0.06)
    assert any("too small to matter" in node.text for node in tree.all("p", "lead"))
    dots = [float(dot["cx"]) for dot in strip.all("circle", "seed")]
    assert dots == pytest.approx([14 + 332 * (0.4 - 0.02 * seed) / 0.4 for seed in range(8)], abs=0.06)
    assert strip.one("path", "zero")["d"].startswith("M14.0 ")
    assert float(strip.one("circle", "dot")["cx"]) == pytest.approx(14 + 332 * 0.33 / 0.4, abs=0.06)
    tree = read_html(render(comparison("grpo,dapo", 2)))  # undecided is open
    assert not tree.all("td", "decided") and all("open" in node.classes for node in tree.all("path", "whisker"))
    assert tree.one("dl", "verdicts").all("dd")[0].text == "undecided"
