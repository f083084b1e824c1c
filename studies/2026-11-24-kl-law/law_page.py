"""docs/kl_law.md and its pictures: the verdicts of law.toml, first in sentences, then in tables.

python studies/2026-11-24-kl-law/law_page.py            write the page and its pictures from law.jsonl
python studies/2026-11-24-kl-law/law_page.py --check    exit 1 if they are not what the numbers say
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools" / "site")]

import law  # noqa: E402
import verdicts  # noqa: E402
from layout import table, write  # noqa: E402

from tokenpo.evidence.compare import paired  # noqa: E402
from tokenpo.page.chart import HEIGHT, LEFT, WIDTH, Cloud, scatter  # noqa: E402

STYLE = """\
text { font: 9px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #16181a }
.title { font-weight: 600 } .tick { fill: #55636f } .tick.y { text-anchor: end } .tick.x, .axis { text-anchor: middle }
.grid { stroke: #ddd; fill: none } .seed { fill: #55636f; fill-opacity: .35 } .held { fill: #1763a6 } .fixed { fill: #8a5a00 }
.dapo { fill: #16181a } .lead { stroke: #55636f; stroke-width: .6 }"""
HIGHER = law.registration(HERE / "higher.toml")
HIGHER_ARM = "held higher"  # in the pictures
NAME = "Mean accuracy of what is sampled for training, against the mean KL of a batch"
TITLE, SIZE = 20, f'width="{WIDTH}" height="{HEIGHT}"'
TASKS = {
    "long_chains": "many small steps",
    "budget": "few tokens",
    "search": "trial and error",
}
BY_VERDICT = ("alike", "no worse", "larger", "smaller", "undecided")


def picture(
    plan: Mapping[str, Any], made: verdicts.Made, more: verdicts.Made, tests: Sequence[verdicts.Test], seeds: bool
) -> str:
    """docs/kl_law.svg: for each task that has runs, what they learned against their KL, side by side; or every seed."""
    tasks = _tasks(made)
    width, height = WIDTH * len(tasks), HEIGHT + TITLE
    panels = "".join(
        f'<text class="title" x="{k * WIDTH + LEFT}" y="{TITLE - 6}">{task}: {TASKS[task]}</text>'
        + _panel(plan, made, more, _named_in(plan, tests, task), task, seeds).replace(
            "<svg ", f'<svg x="{k * WIDTH}" y="{TITLE}" {SIZE} ', 1
        )
        for k, task in enumerate(tasks)
    )
    front = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{NAME}">'
    return f'{front}<style>\n{STYLE}\n</style><rect width="100%" height="100%" fill="#fff"/>{panels}</svg>\n'


def _tasks(made: verdicts.Made) -> list[str]:
    """Those that have runs."""
    return [task for task in TASKS if any(key.task == task for key in made)]


def _named_in(plan: Mapping[str, Any], tests: Sequence[verdicts.Test], task: str) -> set[str]:
    """Methods and clips that are shown to differ from DAPO with the KL held, from the first base of a task."""
    shown = (t for t in tests if (t.task, t.base) == (task, "first") and t.name in ("P1", "P1b"))
    return {t.pair.partition(" ")[0] for t in shown if t.verdict(plan["margin"]) in ("smaller", "larger")}


def _panel(
    plan: Mapping[str, Any], made: verdicts.Made, more: verdicts.Made, shown: Collection[str], task: str, seeds: bool
) -> str:
    """The panel of a task; `shown` are the held ones that are named, beside the highest and lowest fixed rate."""
    settings: dict[law.Key, list[Mapping[str, Any]]] = {}
    for key in law.wanted(plan, made):
        if (key.task, key.base) == (task, "first") and key in made and key.seed < 1000:
            settings.setdefault(key._replace(seed=0), []).append(made[key]["values"])
    for key, run in more.items():
        if (key.task, key.base) == (task, "first"):
            settings.setdefault(key._replace(arm=HIGHER_ARM, seed=0), []).append(run["values"])
    height = {key: statistics.fmean(x["train-area"] for x in values) for key, values in settings.items()}
    dapo = next(key for key in settings if (key.method, key.arm) == ("dapo", "held"))
    fixed = sorted((key for key in settings if key.arm == "fixed"), key=lambda key: height[key])
    clouds = []
    for key, values in settings.items():
        points = [(x["mean:kl"], x["train-area"], _label(key)) for x in values]
        if not seeds:
            points = [(statistics.geometric_mean(x for x, *_ in points), height[key], _label(key))]
        named = key.arm == HIGHER_ARM or key in fixed[:1] + fixed[-1:] or (key.arm == "held" and key.method in shown)
        colour = "held dapo" if key == dapo else "held" if key.arm == HIGHER_ARM else key.arm
        clouds.append(Cloud(_label(key) if named else "", points, colour))
    return str(scatter(clouds, "mean KL of a batch, nats a token", f"{task}: mean accuracy against mean KL"))


def _label(key: law.Key) -> str:
    if key.arm == HIGHER_ARM:
        return f"{key.method}, KL {HIGHER['kl_target']:g}"
    return key.method if key.arm == "held" else f"{key.method} at {key.lr:g}"


def headline(plan: Mapping[str, Any], tests: Sequence[verdicts.Test]) -> str:
    """The question's answer in a paragraph: which methods are shown to differ from DAPO, with the KL held and tuned."""
    less, more, alike = _found(plan, tests, "P1")
    front = "Not by KL alone" if less or more else "Nothing here speaks against it"
    words = (
        f"**{front}.** With the KL held at the same value, less than DAPO by {plan['margin']} or more is learned on at "
        f"least one task with {_listed(less)}, and more with {_listed(more)}. Alike on at least one task, and nowhere "
        f"shown to differ: {_listed(alike)}."
    )
    if any(test.name == "P1d" for test in tests):
        less, more, alike = _found(plan, tests, "P1d")
        words += (
            f" Each at its own tuned rate and clip, less is learned with {_listed(less)}, and more with {_listed(more)}; "
            f"shown to be alike: {_listed(alike)}."
        )
    return words


def _found(
    plan: Mapping[str, Any], tests: Sequence[verdicts.Test], name: str
) -> tuple[list[str], list[str], list[str]]:
    """Methods for which a prediction's tests say smaller at least once, larger at least once, and alike and no other."""
    found: dict[str, set[str]] = {}
    for test in tests:
        if test.name == name:
            found.setdefault(test.pair.partition(" ")[0], set()).add(test.verdict(plan["margin"]))
    less, more = ([m for m, words in found.items() if word in words] for word in ("smaller", "larger"))
    return less, more, [m for m, words in found.items() if "alike" in words and words <= {"alike", "undecided"}]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def price(plan: Mapping[str, Any], made: verdicts.Made, more: verdicts.Made, tests: Sequence[verdicts.Test]) -> str:
    """What holding DAPO's KL costs beside its tuned rate and clip, in sentences; empty before that is judged."""
    lines = []
    for name, target, held in (("P3", plan["kl_target"], made), ("P5", HIGHER["kl_target"], more)):
        if asked := [test for test in tests if test.name == name]:
            low, high = (pick(test.mean for test in asked) for pick in (min, max))
            further = [_moved(plan, made, test, "tuned") / _moved(plan, held, test, "held") for test in asked]
            lines.append(
                f"held at {target:g} it differs by {low:+.3f} to {high:+.3f} on {len(asked)} pairs of a task and a base "
                f"model, and the tuned runs move {min(further):.1f} to {max(further):.1f} times as far in a batch"
            )
    front = (
        "**Holding the KL beside tuning.** The area of DAPO with its KL held, beside DAPO at its tuned rate and clip: "
    )
    return f"{front}{'; '.join(lines)}.{_untuned(plan, tests)}" if lines else ""


def _untuned(plan: Mapping[str, Any], tests: Sequence[verdicts.Test]) -> str:
    """What a held run from any start rate costs beside the best fixed setting, in sentences; empty before its look."""
    asked = [test.mean for test in tests if test.name == "P2"]
    if not asked:
        return ""
    (contrast,) = (test.mean for test in tests if test.name == "P2, contrast")
    return (
        f" Mean difference of held runs to their method's best of eight fixed settings, over all methods and tasks: "
        f"{min(asked):+.3f} to {max(asked):+.3f} for {len(asked)} start rates over a factor of eight; of the fixed rate "
        f"{plan['start_rates']['contrast_rate']:g} at the default clip: {contrast:+.3f}. The best was chosen on the "
        "same two seeds, which favours it."
    )


def _moved(plan: Mapping[str, Any], made: verdicts.Made, test: verdicts.Test, arm: str) -> float:
    """Mean KL of DAPO's batches."""
    key = verdicts.side(plan, made, arm, test.task, test.base, "dapo")
    assert key is not None
    return statistics.fmean(made[key._replace(seed=seed)]["values"]["mean:kl"] for seed in range(15))


def why(plan: Mapping[str, Any], made: verdicts.Made, tests: Sequence[verdicts.Test]) -> str:
    """What the runs show of the price of a held KL, on search from the first base; empty before that is judged."""
    asked = [test for test in tests if test.name == "P3"]
    here = next((test for test in asked if (test.task, test.base) == ("search", "first")), None)
    if here is None:
        return ""
    moved = [_moved(plan, made, test, "tuned") for test in asked]
    held, tuned = (verdicts.side(plan, made, arm, here.task, here.base, "dapo") for arm in ("held", "tuned"))
    accuracy, kl, rate = (_course(made, held, name) for name in ("reward", "kl", "kl_rate"))
    peak = max(range(len(rate)), key=rate.__getitem__)
    ends = (statistics.fmean(course[-3:]) for course in (accuracy, _course(made, tuned, "reward")))
    return (
        f"Not registered, but seen: **a possible cause of that price.** At its tuned rate and clip DAPO's batches move {min(moved):.4f} to "
        f"{max(moved):.4f} nats, from pair to pair, so no one target fits all. On `search` a target of "
        f"{plan['kl_target']:g} is above what good runs move, and the controller raises the rate to "
        f"{rate[peak] / rate[0]:.0f} times its first within {peak} batches, until the KL jumps from {kl[peak - 1]:.4f} to {max(kl):.4f}. The last three batches have "
        f"{' instead of '.join(f'{x:.2f}' for x in ends)} at the tuned rate."
    )


def _course(made: verdicts.Made, key: law.Key | None, name: str) -> list[float]:
    """Mean over the seeds, for each batch."""
    assert key is not None
    runs = [made[key._replace(seed=seed)]["course"][name] for seed in range(15)]
    return [statistics.fmean(x for x in column if x is not None) for column in zip(*runs, strict=True)]


def answers(plan: Mapping[str, Any], tests: Sequence[verdicts.Test]) -> Iterator[str]:
    """A line for each prediction: how many of its tests ended how, and those that say something else."""
    asked = [(p["name"], p["words"], p["expected"]) for p in plan["prediction"]]
    start = plan["start_rates"]
    asked += [(p["name"], p["words"], p["expected"]) for p in (start, HIGHER["prediction"][0])]
    for name, words, expected in asked:
        of_it = [test for test in tests if test.name == name]
        if not of_it:
            continue
        counts = Counter(test.verdict(plan["margin"]) for test in of_it)
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in BY_VERDICT if counts[verdict])
        low, high = (pick(test.mean for test in of_it) for pick in (min, max))
        wanted = {"alike": ("alike",), "alike or larger": ("no worse",), "smaller": ("smaller",)}[expected]
        against = [test for test in of_it if test.verdict(plan["margin"]) not in (*wanted, "undecided")]
        line = (
            f"- **Predicted: {_small(words)}** ({name}). Of {len(of_it)} comparisons {told}; mean "
            f"differences {low:+.3f} to {high:+.3f}."
        )
        if expected == "alike or larger":
            below = sum(paired.bootstrap(test.differences)[1] < 0 for test in of_it)
            line += f" On {below} of them the 95 % interval lies below 0."
        if against:
            those = ", ".join(_named(test) for test in against)
            line += f" Against it: {those}."
        yield line
    for test in tests:
        if test.name == "P2, contrast":
            shown = "shown" if test.alike <= verdicts.LEVEL else "not shown"
            yield f"- **Predicted: {_small(start['contrast_words'])}**: {shown} (mean {test.mean:+.3f})."


def _small(words: str) -> str:
    """A sentence within a sentence."""
    return words[0].lower() + words[1:]


def waiting(plan: Mapping[str, Any], made: verdicts.Made) -> Iterator[str]:
    """A line that names what is not judged, as its runs are not all made."""
    done, words = verdicts.looks(plan, made), []
    for asked in (*plan["prediction"], plan["start_rates"]):
        tasks = [task for task, look in asked["look"].items() if look > done]
        if tasks:
            words.append(asked["name"] + (f" on `{'`, `'.join(tasks)}`" if len(tasks) < len(asked["look"]) else ""))
    if words:
        yield f"- Not judged, as their runs are not all made: {', '.join(words)}."


def _named(test: verdicts.Test) -> str:
    base = ", second base" if test.base == "second" else ""
    return f"{test.pair}, {test.task}{base} ({test.mean:+.3f})"


def tables(plan: Mapping[str, Any], tests: Sequence[verdicts.Test]) -> str:
    head = ("", "task", "base", "difference of area", "mean", "95 % interval", "p, different", "p, alike", "verdict")
    body = []
    for test in tests:
        low, high = paired.bootstrap(test.differences)
        p = "" if test.p is None else f"{test.p:.3f}"
        verdict = test.verdict(plan["margin"])
        if test.name == "P2, contrast":
            verdict = "shown" if test.alike <= verdicts.LEVEL else "undecided"
        front = (test.name, test.task, test.base, test.pair, f"{test.mean:+.3f}", f"{low:+.3f} to {high:+.3f}")
        body.append((*front, p, f"{test.alike:.3f}", f"**{verdict}**"))
    return table(head, body)


def means(plan: Mapping[str, Any], made: verdicts.Made) -> str:
    """For each method, base and task: the area with the KL held and at the tuned rate and clip, and the mean KL."""
    tasks = _tasks(made)
    both = [f"{task}, {arm}" for task in tasks for arm in ("held", "tuned")]
    head = ("method", "base", *both, "KL, held", "KL, tuned")
    body = []
    for base in ("first", "second"):
        for method in law.named(plan, "held")["methods"]:
            row, moved = [], {"held": [], "tuned": []}
            for task in tasks:
                for arm in ("held", "tuned"):
                    key = verdicts.side(plan, made, arm, task, base, method)
                    runs = [made[k]["values"] for s in range(15) if key and (k := key._replace(seed=s)) in made]
                    row.append(f"{statistics.fmean(x['train-area'] for x in runs):.3f}" if runs else "")
                    moved[arm] += [x["mean:kl"] for x in runs]
            if any(row):
                kl = [f"{statistics.fmean(x):.4f}" if x else "" for x in moved.values()]
                body.append((f"`{method}`", base, *row, *kl))
    return table(head, body)


def borders(plan: Mapping[str, Any], made: verdicts.Made) -> str:
    """A sentence that names the tuned settings at an end of the grid of rates; empty without any."""
    tried = sorted({key.lr for key in made if key.arm == "fixed" and key.seed >= 1000})
    ends = []
    for task in _tasks(made):
        for method in law.named(plan, "held")["methods"]:
            key = verdicts.side(plan, made, "tuned", task, "first", method)
            if key is not None and key.lr in (tried[0], tried[-1]):
                ends.append(f"`{method}` on `{task}` ({key.lr:g})")
    return f"The best rate is the lowest or highest for {', '.join(ends)}: others may suit them better." if ends else ""


def gains(made: verdicts.Made) -> list[float]:
    """For each task and base, the mean area of DAPO with its KL held less the accuracy of its first batch."""
    found: dict[tuple[str, str], list[float]] = {}
    for key, run in made.items():
        if (key.method, key.arm) == ("dapo", "held") and key.seed < 1000:
            found.setdefault((key.task, key.base), []).append(run["values"]["train-area"] - run["course"]["reward"][0])
    return [statistics.fmean(x) for x in found.values()]


def page(plan: Mapping[str, Any], made: verdicts.Made, more: verdicts.Made, tests: Sequence[verdicts.Test]) -> str:
    """docs/kl_law.md."""
    gained = gains(made)
    return TEMPLATE.format(
        gained=" to ".join(f"{pick(gained):.2f}" for pick in (min, max)),
        shares=" to ".join(f"{100 * plan['margin'] / pick(gained):.0f}" for pick in (max, min)),
        answers="\n".join([*answers(plan, tests), *waiting(plan, made)]), name=NAME, headline=headline(plan, tests), price=price(plan, made, more, tests),
        why=why(plan, made, tests),
        tests=tables(plan, tests), means=means(plan, made), borders=borders(plan, made), target=plan["kl_target"], margin=plan["margin"],
        runs=len(made), level=f"{100 * verdicts.LEVEL:g}", looks=verdicts.LOOKS,
        tasks=", ".join(f"`{task}` ({TASKS[task]})" for task in _tasks(made)),
    )  # fmt: skip


TEMPLATE = """\
<!-- Written by studies/2026-11-24-kl-law/law_page.py. -->

# Is learning bought with KL?

{headline}

{price}

{why}

{answers}

!!! note "What this can say"
    Models of 0.6 M parameters on generated tasks, 16 batches of training: {tasks}. {runs} runs, 15 paired seeds a
    test. [law.toml](../studies/2026-11-24-kl-law/law.toml) says what is claimed, by which margin, from which runs, and
    when it is looked at; it was committed before the first run, and
    its four looks before any two numbers were compared. DAPO with its KL held gains {gained} over its
    first batch, so the margin of {margin} is {shares} % of that. Runs were made on several processors. [The same question at 27 M](card_study.md).

![{name}](kl_law.svg)

Blue: `train.kl_target={target}` where no other KL is named, the largest of a batch in nats a token; brown: a fixed learning rate. A point is the
mean of 15 seeds; black is DAPO with its KL held. Named are the highest and lowest fixed rates, and held runs that are
shown to differ from DAPO's.

## What was learned

{means}

Mean accuracy of what is sampled for training ("area"). Held runs have one start rate, 2e-4, chosen for none of them; tuned
ones the best of four rates and two clips on seeds that no test uses. {borders}

<details markdown="1"><summary>Every seed</summary>

![{name}, a point a seed](kl_law_seeds.svg)

</details>

<details markdown="1"><summary>Every test</summary>

"Alike" and "no worse" are shown to be within {margin}; "larger" and "smaller" are shown and at least {margin};
"undecided" says that none of these is shown. Sign flips of the pairs' differences, p-values after Holm's correction over a
look's tests, times {looks} looks, at {level} %. P5 was [planned](../studies/2026-11-24-kl-law/higher.toml) after the second look
and is a family of its own.

{tests}

</details>
"""


def main() -> int:
    plan = law.registration()
    made = law.numbers(HERE / "law.jsonl")
    look = verdicts.looks(plan, made)
    if not look:
        print("the first look's runs are not all made: no verdict is looked at")
        return int((DOCS / "kl_law.md").is_file())
    made = {key: made[key] for key in law.wanted(plan, made, look)}
    more = law.numbers(HERE / "higher.jsonl")
    tests = verdicts.higher(plan, made, HIGHER, more)
    more = more if tests else {}
    tests = [*verdicts.judged(plan, made), *tests]
    drawn = [write(DOCS / f"kl_law{end}.svg", picture(plan, made, more, tests, bool(end))) for end in ("", "_seeds")]
    return write(DOCS / "kl_law.md", page(plan, made, more, tests)) or max(drawn)


if __name__ == "__main__":
    sys.exit(main())
