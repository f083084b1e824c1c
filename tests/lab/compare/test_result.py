"""Numbers of runs from metrics written by hand, and their comparison as table and JSON."""

import io
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.lab.compare import page
from tokenpo.lab.compare.plan import Failure
from tokenpo.lab.compare.result import failed_in_words, finished, gather, measures, to_json
from tokenpo.records.metrics import read_metrics
from tokenpo.records.run import Run
from tokenpo.train.recipe.config import Config
from written_runs import rows, write_lines, write_run


def compared(plan, names=("accuracy", "area", "entropy"), baseline="grpo", failures=(), margins=None):
    chosen = measures(names, plan.runs[0].config)
    return gather(plan.subject, finished(plan), chosen, baseline, failures, margins or {})


def shown(comparison):
    stream = io.StringIO()
    page.show(comparison, stream)
    return stream.getvalue()


def test_the_numbers_of_every_run(made):
    """Slopes 0.03 and 0.06 a step, and 0.001 or 0.002 a seed: accuracy at step 20, up to 1."""
    comparison = compared(made())
    final, area, _ = comparison.results
    assert final.numbers("grpo") == pytest.approx([0.6 + 0.02 * seed for seed in range(8)])
    assert final.numbers("dapo") == [1.0] * 8
    # dapo, seed 0: 0, 0.3, 0.6, 0.9, 1 at steps 0, 5, ... 20: (0/2 + 0.3 + 0.6 + 0.9 + 1/2) / 4
    assert area.values["dapo"][0] == pytest.approx(2.3 / 4, rel=1e-12)
    (pair,) = final.pairs
    assert (pair.a, pair.b, pair.verdict, pair.p) == ("dapo", "grpo", "dapo larger than grpo", 2 / 256)


def test_a_difference_within_the_margin_is_equivalent(made):
    """Accuracy: 1 - (0.6 + 0.02 s), at most 0.4 and at least 0.26; entropy: the same in every run."""
    margins = {"accuracy": 0.41, "entropy": 0.01}
    comparison = compared(made(), ["accuracy", "entropy", "area"], margins=margins)
    verdicts = [result.pairs[0].verdict for result in comparison.results]
    assert verdicts == ["dapo larger than grpo, by less than 0.41", "alike within ±0.01", "dapo larger than grpo"]
    assert [page.summary(result) for result in comparison.results[:2]] == [verdicts[0], f"dapo and grpo {verdicts[1]}"]
    assert comparison.results[1].pairs[0].reason == "p = 1. A difference of 0.01 or more: p = 0.00391."
    (pair,) = json.loads(to_json(comparison))["metrics"][1]["pairs"]
    assert (pair["margin"], pair["p_equivalence"], pair["p_equivalence_adjusted"]) == (0.01, 1 / 256, 1 / 256)


def test_json_holds_everything_and_reads_back(made):
    plan = made("grpo,plain@hapo:tau=0,high=inf,dapo", 8)
    comparison = compared(plan, ["accuracy", "sd:grad_norm"], "all")
    record = json.loads(to_json(comparison), parse_constant=pytest.fail)
    assert to_json(compared(plan, ["accuracy", "sd:grad_norm"], "all")) == to_json(comparison)
    assert [method["label"] for method in record["methods"]] == ["grpo", "plain", "dapo"]
    assert record["methods"][1]["options"] == {"tau": 0, "high": "inf"}
    assert "objective hapo" in record["methods"][1]["objective"]
    accuracy, _ = record["metrics"]
    assert accuracy["values"]["grpo"]["3"] == pytest.approx(0.66)
    assert [pair["a"] + pair["b"] for pair in accuracy["pairs"]] == ["plaingrpo", "dapogrpo", "dapoplain"]
    assert {pair["comparisons"] for pair in accuracy["pairs"]} == {3}
    assert accuracy["pairs"][0]["verdict"] == "plain larger than grpo" and accuracy["pairs"][0]["p_adjusted"] == 6 / 256
    assert accuracy["pairs"][2]["differences"] == [0.0] * 8
    assert record["config"]["train"]["steps"] == 20 and "method" not in record["config"]


def test_runs_that_failed_are_left_out_and_noted(made):
    plan = made(seeds=8, leave=["grpo seed 2", "grpo seed 3", "dapo seed 3"])
    failures = tuple(Failure(run, "no memory", run.directory) for run in plan.runs if run.seed in (2, 3))
    comparison = compared(plan, failures=failures)
    (pair,) = comparison.results[0].pairs
    assert pair.seeds == (0, 1, 4, 5, 6, 7)
    assert comparison.finished == {"grpo": (0, 1, 4, 5, 6, 7), "dapo": (0, 1, 2, 4, 5, 6, 7)}
    assert json.loads(to_json(comparison))["failed"][0] == {"run": "grpo seed 2", "error": "no memory"}
    message = failed_in_words(failures)
    assert message.startswith("4 runs failed: grpo seed 2, dapo seed 2, grpo seed 3 and 1 more: no memory (log: ")
    other = Failure(plan.runs[0], "no disk", plan.runs[0].directory)
    assert failed_in_words([other]).startswith("1 run failed: grpo seed 0: no disk (log: ")
    assert failed_in_words([*failures, other]).count("(log: ") == 2


def test_nothing_to_compare_and_a_metric_of_no_run_are_errors(made, plan):
    with pytest.raises(TokenPOError, match=r"same seeds, two or more \(seeds of grpo: none; seeds of dapo: none\)"):
        compared(plan())
    only = made(seeds=2, leave=["grpo seed 1"])
    failure = Failure(only.runs[2], "no memory", only.subject.place)
    with pytest.raises(TokenPOError, match="two or more; 1 run failed: grpo seed 1: no memory"):
        compared(only, failures=[failure])
    with pytest.raises(TokenPOError, match=r"--metrics mean:ratio_min: no run in .*out logged a number for ratio_min"):
        compared(made(), ["accuracy", "mean:ratio_min"])


def test_broken_lines_and_runs_that_did_not_begin_alike_are_noted(made):
    plan = made(seeds=2)
    assert not [note for note in compared(plan).notes if "begin alike" in note or "software" in note]
    log = plan.runs[1].directory / "metrics.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:7], lines[7][:20], *lines[8:]]) + "\n")
    write_run(plan.runs[3], rows(20, 5, lambda s: 0.5), versions={"torch": "2.1"})
    broken, start, software, *_ = compared(plan).notes
    assert broken.startswith("dapo seed 0: metrics.jsonl: 1 line was left out (line 8")
    assert start.startswith("Seed 1: the evaluations before training differ, so its runs did not begin alike")
    assert software == "The runs were not made with the same software on one machine: they differ in torch."


def test_the_table_and_its_summaries(made):
    comparison = compared(made("grpo,dapo,x@dapo:high=0.5", 8))
    text = shown(comparison)
    first, second, title, *table = text.splitlines()
    assert first == "final accuracy, area under the evaluation curve: dapo larger than grpo; x larger than grpo"
    assert (second, title.strip()) == ("final entropy: all 2 pairs undecided", "3 methods on small, 8 seeds")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table if line.startswith("│")]
    assert [row[:4] for row in cells[:2]] == [
        ["accuracy", "dapo − grpo", "1 − 0.67", "+0.33"], ["", "x − grpo", "1 − 0.67", "+0.33"],
    ]  # fmt: skip
    assert cells[0][5:] == ["0.016", "dapo larger than grpo"] and len(cells) == 6
    assert max(map(len, text.splitlines())) <= 120
    every = compared(made("grpo,dapo,x@dapo:high=0.5", 8), baseline="all")
    assert "│ dapo − grpo │" in shown(every)
    assert page.summary(every.results[0]) == "dapo larger than grpo; x larger than grpo; 1 undecided"
    few = compared(made("grpo,dapo,x@dapo:high=0.5", 2))
    assert page.summary(few.results[0]) == "all 2 pairs undecided"
    assert page.summary(compared(made("grpo,dapo", 2)).results[0]) == "undecided"


CONFIG = Config()


def value(name, *lines):
    (measure,) = measures([name], CONFIG)
    with TemporaryDirectory() as directory:
        log = write_lines(Path(directory, "metrics.jsonl"), lines)
        return measure.of(Run(Path("run"), {}, "", {}, read_metrics(log, []), ()))


def held(*points):
    return [{"step": step, "eval/accuracy": y} for step, y in points]


def test_final_accuracies_and_areas():
    lines = [*held((0, 0.1), (5, 0.5)), {"step": 10, "eval/accuracy": 0.75, "eval/avg": 0.5}]
    assert value("accuracy", *lines) == 0.75
    assert value("avg", *lines) == 0.5
    assert value("accuracy", *lines, {"step": 11, "accuracy": 1.0}) is None  # not measured there
    # (0.2 + 0.6)/2 · 4 + (0.6 + 1)/2 · 6 = 1.6 + 4.8 over 10 steps
    assert value("area", *held((0, 0.2), (4, 0.6), (10, 1.0))) == pytest.approx(0.64, rel=1e-12)
    assert value("area", *held((0, 0.2))) is None


def test_entropy_length_and_time():
    lines = [
        {"step": 0, "eval/accuracy": 0.0},
        {"step": 1, "entropy": 0.5, "length": 9.0, "seconds_rollout": 1.0, "seconds_update": 2.0},
        {"step": 2, "entropy": 0.25, "length": 7.0, "seconds_rollout": 1.5, "seconds_evaluation": 50.0},
    ]
    assert [value(name, *lines) for name in ("entropy", "length", "seconds")] == [0.25, 7.0, 4.5]
    assert value("seconds", *lines[:1]) is None
    # verl's timers of the parts leave the reference model and more out.
    of_verl = [lines[0], *(line | {"step_seconds": 60.0, "timing_s/ref": 40.0} for line in lines[1:])]
    assert value("seconds", *of_verl) == 120.0


def test_any_logged_metric_can_be_reduced():
    lines = [{"step": 0, "kl": 9.0}, *({"step": s, "kl": y} for s, y in ((1, 1.0), (2, None), (3, 2.0), (4, 6.0)))]
    deviation = math.sqrt((4 + 1 + 9) / 2)
    for name, number in (("mean", 3.0), ("sd", deviation), ("last", 6.0), ("cv", deviation / 3)):
        assert value(f"{name}:kl", *lines) == pytest.approx(number, rel=1e-12)
    assert value("last:kl", *lines, {"step": 5, "kl": None}) is None
    assert value("sd:kl", *lines[:2]) is None is value("cv:kl", *lines[:2])
    assert value("cv:kl", *({"step": s, "kl": y} for s, y in ((1, 1.0), (2, -1.0)))) is None  # a mean of 0
    # a note is logged only where it occurs
    notes = [{"step": 0}, {"step": 1, "note/timeout": 0.5}, *({"step": s, "accuracy": 1.0} for s in (2, 3, 4))]
    assert value("mean:note/timeout", *notes) == 0.125
    assert value("last:note/timeout", *notes) == 0.0 and value("last:note/timeout", *notes[:2]) == 0.5
    assert value("mean:note/never", *notes) == 0.0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["acuracy"], "no measure is called 'acuracy': did you mean 'accuracy'?"),
        (["mean:grad_nrom"], "no run logs 'grad_nrom': did you mean 'grad_norm'?"),
    ],
)
def test_mistakes_are_named(names, message):
    with pytest.raises(UnknownName) as error:
        measures(names, CONFIG)
    assert message in str(error.value)
