"""The bed beside the on-policy regime: in which order it runs, how it resumes, and what it says of made-up numbers."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow  # a finished study
PLAN = """
methods = ["dapo", "grpo"]
undecided = 0.05
set = ["train.steps=2", "train.minibatches=2", "rollout.prompts=4", "rollout.group_size=2", "evaluate.problems=4",
       "evaluate.samples=0", "output.trace_every=1", "rollout.max_new_tokens=40"]
metrics = ["train-area", "train-steps", "accuracy", "cv:grad_norm"]
[[task]]
recipe = "quickstart"
threshold = 0.9
[tuning]
rates = [1e-4, 2e-4]
seeds = [1000]
[test]
looks = [6, 9]
shares = [0.2, 0.8]
[margins]
train-area = 0.03
[[claim]]
paper = "DAPO"
words = "learns more than GRPO"
method = "dapo"
other = "grpo"
metric = "train-area"
above = true
"""


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "studies" / "2026-11-23-bed")
    return importlib.import_module("bed")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "bed.toml").write_text(PLAN)
    return tmp_path / "bed.toml", tmp_path / "bed.jsonl"


def made_up(bed: ModuleType, files: tuple[Path, Path], most: int, heights: dict[str, float]) -> list:
    """Adds lines for the next runs in their order: dapo is best at 1e-4, grpo the same at both."""
    keys = []
    while len(keys) < most and (key := next(bed.Bed.read(*files).missing(), None)):
        height = heights[key.method] - 0.1 * (key.method == "dapo" and key.lr == 2e-4)
        names = ["train-area", "train-steps", "accuracy", "cv:grad_norm", bed.UNDECIDED]
        line = {**vars(key), "values": dict.fromkeys(names, height), "never": ["train-steps"], "cpu": 36.0}
        with files[1].open("a") as file:
            file.write(json.dumps(line) + "\n")
        keys.append(key)
    return keys


def test_tuning_comes_first_then_seed_by_seed_at_the_tuned_rate(bed: ModuleType, files: tuple[Path, Path]) -> None:
    keys = made_up(bed, files, 1000, {"dapo": 0.5, "grpo": 0.4})
    assert [(key.method, key.lr) for key in keys[:4]] == [
        ("dapo", 1e-4),
        ("dapo", 2e-4),
        ("grpo", 1e-4),
        ("grpo", 2e-4),
    ]
    assert all(key.tuning and key.seed == 1000 for key in keys[:4]) and not any(key.tuning for key in keys[4:])
    # of equal rates the smaller
    assert [(key.method, key.lr, key.seed) for key in keys[4:7]] == [
        ("dapo", 1e-4, 0),
        ("grpo", 1e-4, 0),
        ("dapo", 1e-4, 1),
    ]
    assert len(keys) == 4 + 2 * 9


def test_nothing_is_judged_before_the_first_look(bed: ModuleType, files: tuple[Path, Path]) -> None:
    made_up(bed, files, 4 + 2 * 5 + 1, {"dapo": 0.5, "grpo": 0.4})
    found = bed.Bed.read(*files)
    assert found.seeds("quickstart", "grpo") == 5 and found.seeds("quickstart", "dapo") == 6
    # 22 runs in all, 15 made at 36 s each: 7 to go
    assert bed.status(found) == (
        "4 of 4 runs of the tuning and 11 of 18 of the test are made; "
        "0 of 2 pairs of a method and a task have all their verdicts. About 0.1 h of one core are left at most."
    )
    text = bed.page(found)
    assert "| look 1 of 2 not reached |" in text and "Of 1 tests: 0 shown, 0 opposite shown, 1 not yet judged." in text
    assert "| `dapo` | **0.500** | 0.400 | at the edge of the grid |" in text


def test_the_verdict_takes_the_looks_that_are_whole(bed: ModuleType, files: tuple[Path, Path]) -> None:
    """0.1 in six seeds: 2/2^6 / 0.2 = 0.156. In nine: 2/2^9 / 0.8 = 0.005; it is not smaller than 0.03."""
    made_up(bed, files, 4 + 2 * 8, {"dapo": 0.5, "grpo": 0.4})
    assert "| +0.1 | +0.1 to +0.1 | 0.156 | inconclusive" in bed.page(bed.Bed.read(*files))
    made_up(bed, files, 2, {"dapo": 0.5, "grpo": 0.4})
    assert "| +0.1 | +0.1 to +0.1 | 0.005 | **shown** |" in bed.page(bed.Bed.read(*files))


def test_a_small_difference_is_shown_to_be_small(bed: ModuleType, files: tuple[Path, Path]) -> None:
    made_up(bed, files, 1000, {"dapo": 0.41, "grpo": 0.4})
    assert "**shown**, smaller than 0.03" in bed.page(bed.Bed.read(*files))


def test_a_method_ends_with_the_last_verdict_about_it(bed: ModuleType, files: tuple[Path, Path]) -> None:
    """Six seeds of 0.1 with 0.8 of the error: dapo ends with 2/2^6 / 0.8 = 0.039. grpo goes on for the sake of gspo,
    which lay below it five times and above it once."""
    more = PLAN[PLAN.index("[[claim]]") :].replace('"DAPO"', '"GSPO"').replace('"dapo"', '"gspo"')
    plan = PLAN.replace('"grpo"]', '"grpo", "gspo"]').replace("shares = [0.2, 0.8]", "shares = [0.8, 0.2]") + more
    files[0].write_text(plan)
    made_up(bed, files, 6 + 3 * 5, {"dapo": 0.5, "grpo": 0.4, "gspo": 0.3})
    assert not bed.Bed.read(*files).ended()
    made_up(bed, files, 3, {"dapo": 0.5, "grpo": 0.4, "gspo": 0.9})
    found = bed.Bed.read(*files)
    assert found.ended() == {("quickstart", "dapo")}
    left = [(key.method, key.seed) for key in found.missing()]
    assert left == [("grpo", 6), ("gspo", 6), ("grpo", 7), ("gspo", 7), ("grpo", 8), ("gspo", 8)]
    assert "18 of 24 of the test are made; 1 of 3 pairs" in bed.status(found)
    assert "| `dapo` | 6 |" in bed.page(found)


def test_a_run_is_made_counted_and_swept_away_and_one_cut_off_is_made_again(
    bed: ModuleType, files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / "run" / "cut_off").mkdir(parents=True)
    bed.run(*files, out, most=1)
    bed.run(*files, out, jobs=2, most=2)  # goes on
    lines = [*map(json.loads, (out / "bed.jsonl").read_text().splitlines())]
    assert sorted((line["method"], line["lr"]) for line in lines) == [("dapo", 1e-4), ("dapo", 2e-4), ("grpo", 1e-4)]
    first, second = lines[0], next(line for line in lines if line["lr"] == 2e-4)
    assert (first["method"], first["lr"], first["tuning"], first["seed"]) == ("dapo", 1e-4, True, 1000)
    assert set(first["values"]) == {"train-area", "train-steps", "accuracy", "cv:grad_norm", bed.UNDECIDED}
    assert 0 <= first["values"]["train-area"] < 0.9 and first["never"] == ["train-steps"]
    assert 0 <= second["values"][bed.UNDECIDED] <= 1 and not [*(out / "run").iterdir()]


def test_what_is_registered_can_be_run_and_judged(bed: ModuleType) -> None:
    """Every claim is about methods and metrics that are run, the seeds of the tuning are none of the test, and with 45
    seeds every claim can be shown."""
    plan = tomllib.loads((ROOT / "docs" / "bed.toml").read_text(encoding="utf-8"))
    claims = bed.claims(plan)
    assert {claim.method for claim in claims} | {claim.other for claim in claims} <= {*plan["methods"]}
    assert {claim.metric for claim in claims} | {*plan["margins"]} <= {*plan["metrics"]}
    assert not {*plan["tuning"]["seeds"]} & {*range(max(plan["test"]["looks"]))}
    assert sum(plan["test"]["shares"]) == pytest.approx(1) and len(plan["test"]["shares"]) == len(plan["test"]["looks"])
    assert all((claim.margin is None) == (claim.metric == "train-steps") for claim in claims)
    config = bed.config_of(plan, bed.Key(True, "budget", "gspo", 4e-4, 1001), Path("run"))
    assert (config.train.lr, config.seed, config.train.epochs, config.method.name) == (4e-4, 1001, 2, "gspo")


def test_the_page_is_what_the_numbers_say(bed: ModuleType) -> None:
    assert bed.main(["page", "--check"]) == 0


def test_what_is_said_elsewhere(bed: ModuleType) -> None:
    """README, docs/composition.md, docs/log.md: loose clips learn less than DAPO, at rates that are not higher."""
    made = bed.Bed.read(ROOT / "docs" / "bed.toml", ROOT / "docs" / "bed.jsonl")
    kinds = {(item.test.claim.method, item.test.claim.words, item.test.task): item.kind for item in made.judged()}
    for task in made.tasks:
        assert kinds["cispo", "learns more than DAPO", task] == "opposite shown"
        assert kinds["tepo", "learns more than DAPO", task] == "opposite shown"
        assert kinds["eb_cispo", "the composition learns more than DAPO", task] == "opposite shown"
        assert made.rate(task, "cispo") <= made.rate(task, "dapo") >= made.rate(task, "eb_cispo")
        assert kinds["hapo", "learns more than DAPO", task] == "opposite shown"
    assert "DAPO learns more than CISPO, TEPO, HAPO and our own composition" in (ROOT / "README.md").read_text("utf-8")
    assert bed.ledger.summary(made.judged()) in (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
