"""The predictions of long.toml against the numbers, the page docs/long_runs.md and its picture.

python studies/2026-11-27-long-runs/long_page.py            write both from long.jsonl
python studies/2026-11-27-long-runs/long_page.py --check    exit 1 if they are not what the numbers say
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
sys.path[:0] = [str(HERE), str(HERE.parent / "2026-11-24-kl-law"), str(HERE.parents[1] / "tools" / "site")]

import law  # noqa: E402
from layout import table, write  # noqa: E402
from verdicts import LEVEL, Made, Test, above, corrected, interval  # noqa: E402

from tokenpo.page.chart import HEIGHT, LEFT, WIDTH, Chart, Line, draw  # noqa: E402

WINDOW, BEFORE = 10, 40
WORDS = {"held": "KL held", "fixed": "fixed rate"}
COURSES = {"paid": "accuracy", "right": "right"}
METRICS = ("kl", "kl_rate", "entropy", "length", "grad_norm")
NAME = "Share of responses that are paid, and that are right, over 200 batches"
ACROSS, TITLE = 4, 20  # panels in a row, height of a panel's title
STYLE = """\
text { font: 11px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #16181a }
.title { font-weight: 600 } .tick { fill: #55636f } .tick.y { text-anchor: end } .tick.x, .axis { text-anchor: middle }
.grid { stroke: #ddd; fill: none } .line { fill: none; stroke-width: 1.8 } .c0 { stroke: #8a5a00 } .c1 { stroke: #1763a6 }"""
Run = Mapping[str, Any]
Measured = Callable[[Run], float | None]


def windows(course: Sequence[float | None]) -> list[float | None]:
    """The mean of each ten batches in a row; None where nothing in them was measured."""
    found = []
    for i in range(len(course) - WINDOW + 1):
        known = [x for x in course[i : i + WINDOW] if x is not None]
        found.append(statistics.fmean(known) if known else None)
    return found


def turn(run: Run) -> int:
    """The first batch, from 0, from which over ten batches more than half of what is paid is false; 200 if none."""
    course = run["course"]["false"]
    return next((i for i, share in enumerate(windows(course)) if share is not None and share > 0.5), len(course))


def entropy(run: Run) -> float:
    """Log of the mean entropy of the last ten batches."""
    return math.log(statistics.fmean(run["course"]["entropy"][-WINDOW:]))


def halfway(runs: Sequence[Run]) -> float:
    """Between the mean accuracies of the first and of the best ten batches."""
    mean = [statistics.fmean(x) for x in zip(*(windows(run["course"]["accuracy"]) for run in runs), strict=True)]
    return (mean[0] + max(mean)) / 2


def diversity(run: Run, accuracy: float) -> float | None:
    """pass@8 of the first ten batches whose mean accuracy is reached; None where it never is."""
    solved = windows(run["course"]["solved"])
    there = (i for i, x in enumerate(windows(run["course"]["accuracy"])) if x is not None and x >= accuracy)
    first = next(there, None)
    return None if first is None else solved[first]


def runs_of(made: Made, task: str, method: str, arm: str, seeds: Sequence[int]) -> list[Run]:
    return [made[law.Key(task, "first", method, arm, 2e-4, seed)] for seed in seeds]


def quotients(run: Run) -> dict[str, float] | None:
    """Of each metric, its mean over the ten batches before the turn by that over the forty before those; or None."""
    at = turn(run)
    if not WINDOW + BEFORE <= at < len(run["course"]["false"]):
        return None
    found = {}
    for name in METRICS:
        course = run["course"][name]
        late, early = ([x for x in part if x is not None] for part in (course[at - 10 : at], course[at - 50 : at - 10]))
        if late and early:
            found[name] = statistics.fmean(late) / statistics.fmean(early)
    return found


def tells(found: Sequence[float]) -> str:
    """ "rises", "falls" or "", by 80 % of the runs."""
    for word, moved in (("rises", lambda x: x > 1.5), ("falls", lambda x: x < 2 / 3)):
        if found and sum(map(moved, found)) >= 0.8 * len(found):
            return word
    return ""


def raw(plan: Mapping[str, Any], made: Made) -> Iterator[tuple[Test, float]]:
    """Every test, without correction, and its margin."""
    seeds = range(*plan["block"][0]["seeds"])
    of_budget = runs_of(made, "budget", "dapo", "held", seeds)
    level = halfway(of_budget)
    asked: dict[str, tuple[str, Measured, float]] = {
        "turn": ("claimed", turn, 20),
        "entropy": ("budget", entropy, math.log(1.25)),
        "diversity": ("budget", lambda run: diversity(run, level), 0.02),
    }
    for prediction in plan["prediction"]:
        if prediction["measure"] not in asked:
            continue
        task, measure, margin = asked[prediction["measure"]]
        block = next(x for x in plan["block"] if task in x["tasks"] and "held" in x["arms"])
        base = [measure(run) for run in runs_of(made, task, "dapo", "held", seeds)]
        for method in block["methods"][1:]:
            pairs = zip(map(measure, runs_of(made, task, method, "held", seeds)), base, strict=True)
            d = tuple(float(x - y) for x, y in pairs if x is not None and y is not None)
            if len(d) < 3:
                continue
            other = [-x for x in d]
            p = min(1.0, 2 * min(above(d, 0.0), above(other, 0.0)))
            alike = max(above(d, margin), above(other, margin))
            yield (
                Test(prediction["name"], task, "first", f"{method} − dapo", prediction["expected"], d, p, alike),
                margin,
            )


def judged(plan: Mapping[str, Any], made: Made) -> list[tuple[Test, float]]:
    """All tests, corrected as one family, each with its margin."""
    tests, margins = zip(*raw(plan, made), strict=True)
    return [*zip(corrected([*tests]), margins, strict=True)]


def warnings(plan: Mapping[str, Any], made: Made) -> tuple[dict[str, str], int, int]:
    """For each metric whether it tells, the runs that count, and those that are left out."""
    found = [quotients(run) for key, run in made.items() if key.task == "claimed"]
    known = [x for x in found if x is not None]
    said = {name: tells([x[name] for x in known if name in x]) for name in METRICS}
    return said, len(known), len(found) - len(known)


def _mean(runs: Sequence[Run], of: Measured) -> str:
    known = [x for run in runs if (x := of(run)) is not None]
    return f"{statistics.fmean(known):.3g}" if known else ""


def _last(name: str) -> Measured:
    return lambda run: windows(run["course"][name])[-1]


def means(plan: Mapping[str, Any], made: Made) -> str:
    """A row for each task, method and arm."""
    head = ("task", "method", "rate", "accuracy", "right", "false of paid", "turn", "entropy", "pass@8", "KL")
    body = []
    for block in plan["block"]:
        for task in block["tasks"]:
            for method in block["methods"]:
                for arm in block["arms"]:
                    runs = runs_of(made, task, method, arm, range(*block["seeds"]))
                    read = task == "claimed"
                    turns = " ".join(f"{turn(run)}" for run in runs) if read else ""
                    own = [_mean(runs, _last(name)) if read else "" for name in ("right", "false")]
                    rest = [_mean(runs, _last(name)) for name in ("entropy", "solved")]
                    kl = _mean(runs, lambda run: run["values"]["mean:kl"])
                    body.append(
                        (task, f"`{method}`", WORDS[arm], _mean(runs, _last("accuracy")), *own, turns, *rest, kl)
                    )
    return table(head, body)


def tests_table(found: Sequence[tuple[Test, float]]) -> str:
    head = ("", "difference", "mean", "95 % interval", "pairs", "p, different", "p, alike", "verdict")
    body = []
    for test, margin in found:
        low, high = interval(test.differences)
        numbers = (f"{test.mean:+.3g}", f"{low:+.3g} to {high:+.3g}", f"{len(test.differences)}")
        p = (f"{test.p:.3f}", f"{test.alike:.3f}")
        body.append((test.name, f"{test.pair}, {test.task}", *numbers, *p, f"**{test.verdict(margin)}**"))
    return table(head, body)


def answers(plan: Mapping[str, Any], made: Made) -> Iterator[str]:
    """A line for each prediction."""
    found = judged(plan, made)
    for prediction in plan["prediction"]:
        name, words = prediction["name"], prediction["words"]
        if prediction["measure"] == "warning":
            said, count, left_out = warnings(plan, made)
            those = ", ".join(f"`{metric}` {word}" for metric, word in said.items() if word) or "no metric does"
            told = f"of {count} runs that turn late enough, {those}; {left_out} runs do not count"
            if not count:
                told = f"unanswered. Each of the {left_out} runs turns before batch {WINDOW + BEFORE} or never"
            yield f"- **{words}** ({name}): {told}."
            continue
        verdicts = [(test.pair.split()[0], test.verdict(margin)) for test, margin in found if test.name == name]
        told = "; ".join(
            f"{word}: {', '.join(f'`{method}`' for method, x in verdicts if x == word)}"
            for word in dict.fromkeys(word for _, word in verdicts)
        )
        more = ""
        if prediction["measure"] == "turn" and (latest := _latest(made)) < prediction["margin"]:
            more = (
                f" No run turns later than batch {latest}, so that a difference of {prediction['margin']} was impossible, "
                "and this says only that exploiting takes no method long."
            )
        yield f"- **{words}** ({name}): {told}.{more}"


def seen(plan: Mapping[str, Any], made: Made) -> str:
    """What was not asked: how right DAPO's responses were over its runs with a held KL, and what it cost on `budget`."""
    runs = {task: runs_of(made, task, "dapo", "held", range(6)) for task in ("claimed", "budget")}
    right = [share for _, share in _course(runs["claimed"], "right")]
    fixed = runs_of(made, "budget", "dapo", "fixed", range(6))
    held, alone = (statistics.fmean(_last("accuracy")(run) or 0.0 for run in x) for x in (runs["budget"], fixed))
    best = max(range(len(right)), key=right.__getitem__)
    return (
        f"Not registered, but seen: **exploiting undoes what was learned.** With DAPO the share of right responses rises "
        f"from {right[0]:.2f} to {right[best]:.2f} in batch {best + 1} and falls to "
        f"{statistics.fmean(right[-WINDOW:]):.2f}, while nearly all are paid; the others do likewise. On `budget` DAPO "
        f"ends at {held:.3f} with its KL held and at {alone:.3f} with the fixed rate."
    )


def _latest(made: Made) -> int:
    """The latest turn of a run."""
    return max(turn(run) for key, run in made.items() if key.task == "claimed")


def picture(plan: Mapping[str, Any], made: Made) -> str:
    """docs/long_runs.svg: of each setting on `claimed` what is paid and what is right, means over the seeds."""
    shown = [
        (method, arm, runs_of(made, "claimed", method, arm, range(*block["seeds"])))
        for block in plan["block"]
        if "claimed" in block["tasks"]
        for method in block["methods"]
        for arm in block["arms"]
    ]
    width, height = ACROSS * WIDTH, -(-len(shown) // ACROSS) * (HEIGHT + TITLE)
    front = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{NAME}">'
    parts = [front, f'<style>\n{STYLE}\n</style><rect width="100%" height="100%" fill="#fff"/>']
    for place, (method, arm, runs) in enumerate(shown):
        x, y = place % ACROSS * WIDTH, place // ACROSS * (HEIGHT + TITLE) + TITLE
        title = f"{method}, {WORDS[arm]}"
        lines = [Line(words, _course(runs, name), k) for k, (words, name) in enumerate(COURSES.items())]
        drawn, _, _ = str(draw(Chart(title, "share", "", lines, high=1.0))).partition('<g class="hit">')
        parts.append(f'<text class="title" x="{x + LEFT}" y="{y - 4}">{title}</text>')
        parts.append(drawn.replace("<svg ", f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" ', 1) + "</svg>")
    return "\n".join(parts) + "</svg>\n"


def _course(runs: Sequence[Run], name: str) -> list[tuple[float, float]]:
    """(batch from 1, mean over the runs)."""
    columns = zip(*(run["course"][name] for run in runs), strict=True)
    return [(batch, statistics.fmean(column)) for batch, column in enumerate(columns, start=1)]


def page(plan: Mapping[str, Any], made: Made) -> str:
    """docs/long_runs.md."""
    found = judged(plan, made)
    return TEMPLATE.format(
        answers="\n".join(answers(plan, made)), seen=seen(plan, made), means=means(plan, made), tests=tests_table(found),
        family=2 * len(found), level=f"{100 * LEVEL:g}", runs=len(law.wanted(plan, made)), target=plan["kl_target"], name=NAME,
    )  # fmt: skip


TEMPLATE = """\
<!-- Written by studies/2026-11-27-long-runs/long_page.py. -->

# What happens in 200 batches?

{answers}

{seen}

!!! note "What this can say"
    A model of 0.6 M parameters, two generated tasks, six paired seeds, {runs} runs.
    [long.toml](../studies/2026-11-27-long-runs/long.toml) was committed before the first run that counts.

`claimed` is a task with a verifier that can be deceived: a response is paid if the total that it writes is the target,
whether or not the steps before it are right. `budget` has a verifier that cannot be deceived. The KL is held at
{target} nats a token, the largest of a batch, or the rate stays at 2e-4.

![{name}](long_runs.svg)

`claimed`, means of six seeds. Brown: the share of responses that is paid; blue: the share that is right.

{means}

All but "turn" and "KL" are means of the last ten batches. "Turn" is, by seed, the first batch, counted from 0, from which
over ten batches more than half of what is paid is false; 200 says never.

<details markdown="1"><summary>Every test</summary>

Paired t-tests against DAPO with its KL held; p-values after Holm's correction over all {family}, at {level} %. L3's
differences are of the logarithm of the entropy.

{tests}

</details>
"""


def main() -> int:
    plan = law.registration(HERE / "long.toml")
    made = law.numbers(HERE / "long.jsonl")
    if left := sum(key not in made for key in law.wanted(plan, made)):
        print(f"{left} runs are still to be made: their verdicts are looked at once")
        return int((DOCS / "long_runs.md").is_file())
    return max(write(DOCS / "long_runs.svg", picture(plan, made)), write(DOCS / "long_runs.md", page(plan, made)))


if __name__ == "__main__":
    sys.exit(main())
