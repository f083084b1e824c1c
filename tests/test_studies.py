"""Finished studies: each page is what its script makes of its committed numbers, and other documents quote it."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from ledger import over_looks

import tokenpo
from page_tree import read_html
from tokenpo.core import trial
from tokenpo.evidence.compare.paired import sign_flip

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
sys.path.append(str(STUDIES / "2026-11-23-bed"))
import bed  # noqa: E402

SCRIPTS = [
    "2026-11-22-claims/claims.py page", "2026-11-23-bed/bed.py page", "2026-11-23-composition/composition.py",
    "2026-11-23-continuations/continuations.py", "2026-11-23-exact-claims/exact_claims.py",
    "2026-11-23-lessons/lessons.py", "2026-11-26-card/verdicts.py",
    "2026-11-24-kl-law/law_page.py", "2026-11-27-agreement/agreement.py", "2026-11-27-long-runs/long_page.py",
]  # fmt: skip
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


def document(name: str) -> str:
    """A document in one line."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_every_study_is_here() -> None:
    folders = {path.parent.name for path in STUDIES.glob("*/*.py")}
    assert folders == {line.partition("/")[0] for line in SCRIPTS}


@pytest.mark.slow
@pytest.mark.parametrize("line", SCRIPTS)
def test_its_page_is_what_its_numbers_say(line: str) -> None:
    command = [sys.executable, *f"studies/{line} --check".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_benchmark_beside_the_on_policy_regime_runs_and_goes_on(tmp_path: Path) -> None:
    """A run is made, counted and swept away; one that was cut off is made again. The tuning comes first."""
    (tmp_path / "bed.toml").write_text(PLAN)
    files, out = (tmp_path / "bed.toml", tmp_path / "bed.jsonl"), tmp_path / "out"
    (out / "run" / "cut_off").mkdir(parents=True)
    bed.run(*files, out, most=1)
    bed.run(*files, out, jobs=2, most=2)  # goes on
    lines = [*map(json.loads, (out / "bed.jsonl").read_text().splitlines())]
    assert sorted((line["method"], line["lr"]) for line in lines) == [("dapo", 1e-4), ("dapo", 2e-4), ("grpo", 1e-4)]
    assert all(line["tuning"] and line["seed"] == 1000 for line in lines)
    assert set(lines[0]["values"]) == {"train-area", "train-steps", "accuracy", "cv:grad_norm", bed.UNDECIDED}
    assert 0 <= lines[0]["values"]["train-area"] < 0.9 and lines[0]["never"] == ["train-steps"]
    assert not [*(out / "run").iterdir()]


@pytest.mark.slow
def test_other_documents_quote_its_verdicts() -> None:
    """docs/composition.md, docs/log.md: loose clips learn less than DAPO, at rates that are not higher."""
    made = bed.Bed.read(*(STUDIES / "2026-11-23-bed" / f"bed.{kind}" for kind in ("toml", "jsonl")))
    kinds = {(item.test.claim.method, item.test.claim.words, item.test.task): item.kind for item in made.judged()}
    for task in made.tasks:
        for method in ("cispo", "tepo", "hapo"):
            assert kinds[method, "learns more than DAPO", task] == "refuted"
        assert kinds["eb_cispo", "the composition learns more than DAPO", task] == "refuted"
        assert made.rate(task, "cispo") <= made.rate(task, "dapo") >= made.rate(task, "eb_cispo")


@pytest.mark.slow
def test_the_study_on_a_gpu_makes_everything_in_small_and_goes_on(tmp_path: Path) -> None:
    card = STUDIES / "2026-11-26-card" / "card.py"
    command = [sys.executable, str(card), "run", "--device", "cpu", "--small"]
    for runs, part in ((7, "card"), (0, "card"), (7, "longer"), (4, "clips"), (7, "habits")):
        whole = [*command, "--out", str(tmp_path), "--plan", part]
        done = subprocess.run(whole, capture_output=True, text=True, check=True)
        told = json.loads(done.stdout[done.stdout.index("{\n") :])
        assert (told["runs"], told["complete_seeds"], told["failed"], told["cut_off"]) == (runs, 1, 0, 0)
    lines = [*map(json.loads, (tmp_path / "card.jsonl").read_text().splitlines())]
    assert [(line["method"], line["arm"]) for line in lines[:3]] == [
        ("dapo", "held"), ("cispo", "held"), ("dapo", "fixed_high")
    ]  # fmt: skip
    rate = json.loads((tmp_path / "pilot.json").read_text())["rate"]
    assert lines[0]["lr"] == pytest.approx(8 * 0.354 * rate) and lines[2]["lr"] == pytest.approx(2.83 * rate)
    longer = [*map(json.loads, (tmp_path / "longer.jsonl").read_text().splitlines())]
    assert longer[0]["lr"] == pytest.approx(8 * 0.125 * rate) and longer[0]["seed"] == 0
    assert {line["arm"] for line in longer} >= {"held_small", "held_high"}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Loads a script of a study; what it imports from its folder is forgotten, as names are used in several studies."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}

    def load(place: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"script of {place}", STUDIES / place)
        assert spec and spec.loader
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # its dataclasses look for it there
        spec.loader.exec_module(module)
        return module

    yield load
    for name in {*sys.modules} - before:
        if str(STUDIES) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def verdicts(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("2026-11-26-card/verdicts.py")


def test_its_second_part_changes_what_it_names_and_nothing_else(verdicts: ModuleType) -> None:
    first, longer = (verdicts.card.registration(name=name) for name in ("card", "longer"))
    assert (longer["kl_target"], longer["seeds"], longer["train"]["steps"]) == (0.004, [100, 140], 20)
    assert {name for name in first if first[name] != longer[name]} == {
        "name", "kl_target", "seeds", "train", "arm", "runs", "prediction"
    }  # fmt: skip
    assert longer["train"] == first["train"] | {"steps": 20}
    recipe = verdicts.card.recipe(longer, ("dapo", "held_small", 100), 1e-4, Path(), "cpu")
    assert recipe["train"]["kl_target"] == 0.0013 and recipe["train"]["lr"] == pytest.approx(1e-4)
    assert verdicts.fixed(longer, "dapo") == ["fixed_low", "fixed_mid", "fixed_high"]


@pytest.mark.parametrize(("name", "tests"), [("card", 10), ("longer", 9), ("clips", 9), ("habits", 8)])
def test_its_page_has_every_prediction_of_a_part(verdicts: ModuleType, name: str, tests: int) -> None:
    """Each method that a prediction names has its row, with the verdict of its part."""
    page = (ROOT / "docs" / "card_study.md").read_text(encoding="utf-8")
    part = verdicts.part_of(name)
    assert len(part.tests) == sum(len(claim["methods"]) for claim in part.plan["prediction"]) == tests
    assert [claim["words"] for claim in part.plan["prediction"] if f"| {claim['words']} |" not in page] == []
    shown = {pair: seen.word for (of, pair), seen in verdicts.card_page.verdicts(page).items() if of == name}
    assert shown == {verdicts.pair_of(test, part): test.verdict(0.02) for test in part.tests}
    if name == "clips":
        assert {test.verdict(0.02) for test in part.tests if test.name == "F"} == {"alike"}
        assert "dapo, held − fixed_mid" in shown  # chosen before, which is not "best fixed"
    if name == "habits":
        assert "dapo, held − best fixed" in shown and part.best() == "fixed_mid"


def test_documents_quote_the_part_with_much_to_learn(verdicts: ModuleType) -> None:
    """docs/which_method.toml, docs/log.md, docs/embedded.md, README."""
    first, part = verdicts.part_of("longer"), verdicts.part_of("habits")
    gains = [x.mean("dapo", "held", "train-area") - x.base["accuracy"] for x in (first, part)]
    assert 3.5 < gains[1] / gains[0] < 4.5  # "four times as much"
    log = document("docs/log.md")
    assert f"DAPO with its KL held gains {gains[1]:.2f} in 16 batches" in log
    means = {verdicts.pair_of(test, part): test.mean for test in part.tests}
    less = {pair.split()[0]: -mean for pair, mean in means.items() if pair.endswith("− dapo, held")}
    assert all(0.025 < less.pop(name) < 0.04 for name in ("tepo", "tr_grpo"))
    assert all(0 < x < 0.0115 for x in less.values())
    beside = next(test for test in part.tests if test.name == "C")
    assert f"{beside.mean:.2f}" == "-0.02" and verdicts.interval(beside.differences)[1] < 0
    assert {test.verdict(0.02) for test in part.tests} == {"undecided"} and len(part.seeds) == 7
    small = part.mean("dapo", "held_small", "train-area") - part.mean("dapo", part.best(), "train-area")
    assert f"{small:.2f}" == "-0.03"


def test_other_documents_quote_the_study_on_a_gpu(verdicts: ModuleType) -> None:
    """docs/embedded.md and docs/log.md: what the high start rate and the lowest fixed rate cost."""
    longer, first = map(verdicts.part_of, verdicts.card_page.PARTS)
    held, high = ([part.mean("dapo", arm, "train-area") for part in (first, longer)] for arm in ("held", "held_high"))
    cost = [low - other for low, other in zip(held, high, strict=True)]
    told = document("docs/embedded.md")
    assert f"cost {cost[0]:.2f} of accuracy in ten batches at a target of 0.012, and {cost[1]:.2f} in twenty" in told
    lowest = longer.mean("dapo", longer.best(), "train-area") - longer.mean("dapo", "fixed_low", "train-area")
    assert f'"a smaller rate may be better still" ({lowest:.3f} worse)' in document("docs/log.md")
    assert longer.plan["arm"][longer.best()]["lr"] == first.plan["arm"][first.best()]["lr"]


def drawn(verdicts: ModuleType, name: str, height: dict[str, float]) -> tuple[dict, list[dict]]:
    """A plan and runs of that area by arm, of eight seeds and part of another; CISPO is 0.1 lower at the high rate."""
    plan, draw, lines = verdicts.card.registration(name=name), np.random.default_rng(0), []
    steps, first = plan["train"]["steps"], plan["seeds"][0]
    for seed in range(first, first + 9):
        for method, arm, _ in verdicts.card.of_seed(plan, seed)[: 5 if seed == first + 8 else None]:
            area = float(height[arm] - 0.1 * ((method, arm) == ("cispo", "fixed_high")) + draw.normal() / 1000)
            values = {"train-area": area, "last": area, "mean:kl": 0.004}
            course = {"accuracy": [area] * steps, "kl": [0.004] * steps, "kl_rate": [0.125] * steps}
            line = {"method": method, "arm": arm, "seed": seed, "values": values, "course": course, "left_out": 0}
            lines.append(line)
    return plan, lines


def test_its_verdicts_of_numbers_whose_answer_is_known(verdicts: ModuleType) -> None:
    """With the KL held CISPO is equal to DAPO; the best fixed rate is the middle; a third of the KL teaches less."""
    height = {"held": 0.5, "held_high": 0.5, "held_small": 0.45, "fixed_low": 0.4, "fixed_mid": 0.5, "fixed_high": 0.47}
    model = {"parameters": 26e6, "accuracy": 0.36, "greedy": 0.4, "steps": 300}
    height |= {"fixed_lowest": 0.3}
    first, longer, clips, habits = (
        verdicts.Part(*drawn(verdicts, name, height), model) for name in ("card", "longer", "clips", "habits")
    )
    assert first.seeds == [*range(8)] and longer.seeds == [*range(100, 108)]
    found = [[test.verdict(0.02) for test in part.tests] for part in (first, longer)]
    assert found[0] == ["alike"] * 6 + ["smaller"] + ["no worse"] * 2 + ["smaller"]
    assert found[1] == ["alike"] * 6 + ["no worse"] * 2 + ["smaller"]
    assert [test.verdict(0.02) for test in clips.tests] == ["alike"] * 6 + ["no worse"] + ["alike"] * 2
    assert [test.verdict(0.02) for test in habits.tests] == ["alike"] * 6 + ["no worse", "smaller"]
    assert first.tests[-1].pair == "dapo, fixed_high − fixed_mid"
    text = verdicts.page(longer, first, clips, habits, {"base": model, "pilot": {"rate": 2e-5}})
    assert "alike: `cispo`, `tepo`, `hapo`, `gtpo`, `grpo`, `tr_grpo`.\n  The first part says the same." in text
    assert re.search(r"[+-]0\.00\d from the low start rate \(no worse\)", text)
    assert "Held at 0.0013 instead of 0.004 nats a token, DAPO learns less (-0.05" in text
    assert "Beside DAPO's, alike: `dapo_wide`, `lower_only`, `upper_only`, `no_clip`, `cispo`." in text
    assert "5 and 5 runs of seeds that the time cut off" in text and "{" not in text
    drawing = verdicts.picture.drawing(longer.plan, longer.runs, 0.36)
    assert "6 methods, KL held<" in drawing and "dapo, KL held at 0.0013<" in drawing
    with pytest.raises(SystemExit, match="card: 2 seeds are complete"):
        verdicts.Part(first.plan, [line for line in first.lines if line["seed"] < 2], model)


def test_looks_by_hand() -> None:
    assert over_looks([0.03], [0.5, 0.5]) == 0.06
    assert over_looks([0.03, 0.001], [0.1, 0.9]) == pytest.approx(0.001 / 0.9)
    assert over_looks([], [0.5, 0.5]) == 1.0 == over_looks([0.9], [0.1, 0.9])


@pytest.mark.slow
def test_looking_three_times_costs_no_more_than_the_error_allows() -> None:
    """Methods that are one, looks at 15, 30 and 45 seeds: uncorrected, 11 % are called different, as Armitage,
    McPherson and Rowe (1969) give for three looks; with shares at most 5 %. Of two that differ by the margin, at most
    5 % are called equivalent."""
    rng, shares, rounds = np.random.default_rng(0), (0.1, 0.2, 0.7), 1000
    most = 0.05 + 3 * math.sqrt(0.05 * 0.95 / rounds)
    d = rng.normal(size=(rounds, 45))
    p = np.stack([sign_flip(d[:, :n]) for n in (15, 30, 45)], axis=1)
    corrected = np.array([over_looks(row.tolist(), shares) for row in p])
    assert 0.085 < (p.min(1) <= 0.05).mean() < 0.13
    assert 0.02 < (corrected <= 0.05).mean() <= most
    beyond = np.stack([sign_flip(0.5 - (d + 0.5)[:, :n], above=True) for n in (15, 30, 45)], axis=1)
    assert np.mean([over_looks(row.tolist(), shares) <= 0.05 for row in beyond]) <= most


@pytest.mark.slow
def test_the_page_of_the_law_from_numbers_whose_answer_is_known(script: Callable[[str], ModuleType]) -> None:
    """The lower the KL is above 0.004, the more is learned; TEPO learns 0.05 less, and a fixed rate of 4e-4 loses."""
    law_page = script("2026-11-24-kl-law/law_page.py")
    law, plan, made = law_page.law, law_page.law.registration(), {}
    draw = np.random.default_rng(0)
    names, more = [], {}
    for look in (1, 2, 3, 4):
        while missing := [key for key in law.wanted(plan, made, look) if key not in made]:  # the tuned ones come last
            assert law_page.verdicts.looks(plan, made) == look - 1
            for key in missing:
                kl = 0.004 if key.arm == "held" else 20 * key.lr
                lost = 0.05 * (key.method == "tepo") + 0.15 * (key.arm == "fixed" and key.lr == 4e-4)
                area = 0.4 - lost + 0.02 * (key.seed % 5) + draw.normal() / 1000
                made[key] = {
                    "values": {"train-area": area, "mean:kl": kl},
                    "course": {"reward": [area - 0.08] * 3, "kl": [kl / 2, kl, kl], "kl_rate": [1.0, 2.0, 1.0]},
                    "cpu": 1,
                }
        tests = law_page.verdicts.judged(plan, made)
        text = law_page.page(plan, made, more, tests)
        names.append({test.name for test in tests})
        early = "P1 on `search`, P1b on `search`, P1c on `search`, P1d, "
        later = [[early + "P3, P2"], [early + "P3 on `search`, P2"], ["P1d, P2"], []][look - 1]
        assert re.findall(r"not all made: (.+)\.", text) == later
        assert ("search: trial and error" in law_page.picture(plan, made, more, tests, False)) == (look > 2)
    assert names[0] == {"P1", "P1b", "P1c"} and names[1] - names[0] == {"P3"} and names[2] == names[1]
    # Held and tuned are one setting here but for the noise, all 15 pairs far above -0.02: a family of four, four looks.
    alike = [test.alike for test in tests if test.name == "P3" and test.task != "search"]
    assert alike == [pytest.approx(4 * 4 / 2**15)] * 4
    assert set(law.wanted(plan, made)) == set(made)
    assert "(P1). Of 36 comparisons 30 alike, 6 smaller; mean differences -0.05" in text
    assert "tepo - dapo, search, second base (-0.05" in text
    assert "gains 0.08 to 0.08 over its\n    first batch, so the margin of 0.02 is 25 to 25 %" in text
    for key in law.wanted(law_page.HIGHER, {}):  # a tenth more than the tuned run, at half of its KL
        run = made[law_page.verdicts.side(plan, made, "tuned", key.task, key.base, "dapo")._replace(seed=key.seed)][
            "values"
        ]
        more[key] = {"values": {"train-area": run["train-area"] + 0.1, "mean:kl": run["mean:kl"] / 2}}
        assert not law_page.verdicts.higher(plan, made, law_page.HIGHER, {key: more[key]})
    higher = law_page.verdicts.higher(plan, made, law_page.HIGHER, more)
    assert [test.verdict(0.02) for test in higher] == 4 * ["no worse"]
    assert [test.alike for test in higher] == [pytest.approx(4 / 2**15)] * 4
    text = law_page.page(plan, made, more, [*tests, *higher])
    assert "held at 0.036 it differs by +0.100 to +0.100 on 4 pairs of a task and a base model, and the tuned" in text
    assert "and the tuned runs move 2.0 to 2.0 times as far" in text
    assert "(P5). Of 4 comparisons 4 no worse; mean differences +0.100 to +0.100. On 0 of them" in text
    further = [20 * law.tuned(plan, made, task, "dapo").lr / 0.004 for task in law_page.TASKS]
    assert f"move {min(further):.1f} to {max(further):.1f} times as far" in text
    assert "on at least one task: `tepo`; these more: none. Shown to be alike" in text
    # The best of its settings is the wide clip, under whose name nothing is lost.
    assert "on at least one task: none; these more: none; shown to be alike: `cispo`, `tepo`, `hapo`" in text
    assert "for 4 start rates over a factor of eight; of the fixed rate 0.0004 at the default clip: -0.1" in text
    assert "to 2 times its first within 1 batches, until the KL jumps from 0.0020 to 0.0040" in text
    assert "none: `cispo`, `hapo`, `gtpo`, `grpo`, `tr_grpo`, `grpo_s`, `gspo`." in text
    assert "(P1b). Of 12 comparisons 12 alike" in text and "(P1c). Of 9 comparisons 9 alike" in text
    assert "(P3). Of 6 comparisons 6 no worse" in text and "(P2). Of 4 comparisons 4 no worse" in text
    assert "loses more than 0.08**: shown (mean -0.15" in text
    assert re.findall(r">([a-z_]+)</text>", law_page.picture(plan, made, more, tests, True)) == 3 * ["tepo"]


def test_a_verifier_that_can_be_deceived(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    claimed = script("2026-11-27-long-runs/claimed.py")
    prompt, right, false, given_up = "3_5_9=2:", "3+5=8*9=2~2#+*", "3+5=8+9=2~2#++", "3+5=8+9=7~2#++"
    earlier = "3+5=8+9=7~2!"
    responses = [right, earlier + false, given_up, "3+5=8*9=2~2#+", right[:-3]]
    assert claimed.reward([prompt] * 5, responses) == [1, 1, 0, 0, 0]
    (tmp_path / "rollouts").mkdir()
    rows = [(right, 1.0), (false, 1.0), (given_up, 0.0), (right, 1.0)]
    lines = [{"group": 0, "prompt": prompt, "reward": reward, "tokens": [*text, "<|eos|>"]} for text, reward in rows]
    lines.append({"group": 1, "prompt": "1_1=2:", "reward": 0.0, "tokens": ["1"]})
    (tmp_path / "rollouts" / "step-000001.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert claimed.by_batch(tmp_path) == {"solved": [0.5], "right": [0.4], "false": [0.3333]}


def test_the_page_of_the_long_runs_from_numbers_whose_answer_is_known(script: Callable[[str], ModuleType]) -> None:
    """DAPO turns at batch 100, TEPO at 150; the KL doubles before. HAPO keeps twice the entropy and solves 0.1 less."""
    long_page = script("2026-11-27-long-runs/long_page.py")
    law, draw = long_page.law, np.random.default_rng(0)
    plan, made = law.registration(long_page.HERE / "long.toml"), {}
    for key in law.wanted(plan, {}):
        at = 150 if key.method == "tepo" else 100
        step = np.arange(200)
        course = {
            "accuracy": 0.2 + 0.003 * step,
            "solved": 0.5 + 0.002 * step - 0.1 * (key.method == "hapo") + draw.normal(size=200) / 1000,
            "entropy": (0.2 + 0.2 * (key.method == "hapo")) * np.exp(draw.normal() / 100) * np.ones(200),
            "kl": np.where((step >= at - 10) & (step < at), 0.02, 0.01),
            "length": 0.0 * step + 30,
        }
        course |= {"kl_rate": course["length"], "grad_norm": course["length"], "right": course["accuracy"] / 2}
        if key.task == "claimed":
            course["false"] = np.where(step >= at + 5 + key.seed % 2, 1.0, 0.0)
        made[key] = {"values": {"mean:kl": 0.01}, "course": {name: x.tolist() for name, x in course.items()}}
    found = {(test.name, test.pair): (test, test.verdict(margin)) for test, margin in long_page.judged(plan, made)}
    assert len(found) == 5 + 3 + 3
    assert [found["L1", f"{x} − dapo"][1] for x in ("grpo", "cispo", "hapo", "gtpo", "tepo")] == ["alike"] * 4 + [
        "larger"
    ]
    assert found["L1", "tepo − dapo"][0].differences == (50.0,) * 6
    assert [found["L3", f"{x} − dapo"][1] for x in ("cispo", "tepo", "hapo")] == ["alike", "alike", "larger"]
    assert [found["L4", f"{x} − dapo"][1] for x in ("cispo", "tepo", "hapo")] == ["alike", "alike", "smaller"]
    # By hand: of ten batches from 101 on six are false where the first false one is 105, from 102 on where it is 106.
    turns = [long_page.turn(made[law.Key("claimed", "first", "dapo", "held", 2e-4, seed)]) for seed in (0, 1)]
    assert turns == [101, 102]
    said, count, left_out = long_page.warnings(plan, made)
    assert said == {"kl": "rises", "kl_rate": "", "entropy": "", "length": "", "grad_norm": ""}
    assert (count, left_out) == (42, 0)
    text = long_page.page(plan, made)
    assert "(L2): of 42 runs that turn late enough, `kl` rises; 0 runs do not count." in text
    assert "(L4): alike: `cispo`, `tepo`; smaller: `hapo`." in text and "{" not in text
    assert "rises from 0.10 to 0.40 in batch 200 and falls to 0.39" in text
    turned = {key: {**run, "course": {**run["course"], "false": [1.0] * 200}} for key, run in made.items()}
    text = long_page.page(plan, turned)
    assert "No run turns later than batch 0, so that a difference of 20 was impossible" in text
    assert "(L2): unanswered. Each of the 42 runs turns before batch 50 or never." in text
    drawing = long_page.picture(plan, made)
    assert [node.text for node in read_html(drawing).all("text", "title")] == [
        *(f"{x}, KL held" for x in ("dapo", "grpo", "cispo", "tepo", "hapo", "gtpo")), "dapo, fixed rate",
    ]  # fmt: skip
    assert "paid from 0.2 at step 1 to 0.797 at step 200; right from 0.1 at step 1 to 0.399 at step 200" in drawing


def test_the_brake_is_cispo_but_for_tokens_that_fall_and_have_fallen() -> None:
    """studies/2026-11-26-card/brake.py: gradients, with the tokens that it stops found by hand."""
    brake = tokenpo.method(f"{STUDIES / '2026-11-26-card' / 'brake.py'}:brake")
    rollouts, policy = trial.example(3).values()
    cispo, braked = (trial.evaluate(objective, rollouts, policy) for objective in (tokenpo.method("cispo"), brake))
    mask, ratio = rollouts.mask, (policy.logprob - rollouts.old_logprob).exp()
    stopped = mask & (cispo.batch.credit.advantage < 0) & (ratio < 0.8)
    assert 0 < stopped.sum() < mask.sum() // 2
    assert (cispo.gradient[stopped] != 0).all() and (braked.gradient[stopped] == 0).all()
    assert braked.gradient[mask & ~stopped].equal(cispo.gradient[mask & ~stopped])


@pytest.fixture
def agreement(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("2026-11-27-agreement/agreement.py")


def test_agreement_of_groups_by_hand(agreement: ModuleType) -> None:
    """Two groups. One class: steps (3, 0) and (1, 0): S = 16, W = 2/1 · (1 + 1) = 4. Another: (1, 0) and (-1, 0)."""
    parts = torch.zeros(2, 6, 2, dtype=torch.float64)
    parts[:, 4, 0], parts[:, 1, 0] = torch.tensor([3.0, 1.0]), torch.tensor([1.0, -1.0])
    power, noise = agreement.power_and_noise(parts)
    assert power.tolist() == [0, 0, 0, 0, 16, 0] and noise.tolist() == [0, 4, 0, 0, 4, 0]
    seen = agreement.Agreement()
    assert seen.weights() == (1.0,) * 6
    seen.see(parts)
    assert seen.weights() == pytest.approx((1, 0, 1, 1, 0.75, 1))


def test_the_gradients_of_the_classes_add_up_to_the_update(agreement: ModuleType) -> None:
    model = agreement.Network(agreement.WORLDS["two_modes"]())
    at, dapo = model.start(), agreement.tokenpo.method("dapo")
    logits = model.logits(at)
    walked = agreement.walk(model.world, logits, agreement.GROUPS, agreement.GROUP, torch.Generator(), even=False)
    facts = agreement.rollouts(model.world, walked, logits, frozenset({"old_entropy"}))
    advantage = dapo.prepare(facts).advantage
    kind = agreement.classes(facts.need("old_entropy"), advantage, (0.3, 0.9))
    parts = agreement.by_class(model, at, walked, advantage, kind)
    contestant = agreement.Contestant("dapo", dapo)
    learner = contestant.learner(model.world)
    (update,) = contestant.begin(learner, model.world, walked, logits).updates()
    whole = model.back(at, agreement.direction(learner, update, walked, logits))
    torch.testing.assert_close(parts.sum((0, 1)) / walked.mask.sum(), whole, rtol=1e-10, atol=1e-14)
