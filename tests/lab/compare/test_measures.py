"""One number of a run, from metrics written by hand."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.lab.compare.result import DEFAULT, measures
from tokenpo.records.metrics import read_metrics
from tokenpo.records.run import Run
from tokenpo.train.recipe.config import Config
from written_runs import write_lines

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
        (["men:kl"], "'men' is no way to reduce a metric: did you mean 'mean'?"),
        (["kl"], "no measure is called 'kl'"),
        (["last:note/"], "no run logs 'note/'"),
        (["area", "area"], "names area twice"),
    ],
)
def test_mistakes_are_named(names, message):
    with pytest.raises(TokenPOError) as error:
        measures(names, CONFIG)
    assert message in str(error.value)
    assert isinstance(error.value, UnknownName) == ("twice" not in message)


def test_samples_that_are_not_drawn_are_missed_before_anything_runs():
    greedy = CONFIG.model_copy(update={"evaluate": CONFIG.evaluate.model_copy(update={"samples": 0})})
    for name in ("avg", "last:eval/avg_low", "mean:eval/k"):
        with pytest.raises(TokenPOError, match=r"evaluate\.samples is 0: set it above 0"):
            measures([name], greedy)
    assert len(measures(DEFAULT, greedy)) == len(DEFAULT)
