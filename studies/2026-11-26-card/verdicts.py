"""The predictions of card.toml against the numbers, and the page docs/card_study.md with its picture.

python studies/2026-11-26-card/verdicts.py            write the page from card.jsonl and base.json
python studies/2026-11-26-card/verdicts.py --check    exit 1 if it is not what the numbers say
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools" / "site")]

import card  # noqa: E402
import picture  # noqa: E402
from layout import table, write  # noqa: E402

sys.path.insert(0, str(HERE.parent / "2026-11-24-kl-law"))  # its `verdicts`, not this one
from verdicts import LEVEL, Test, corrected  # noqa: E402

Made = Mapping[card.Job, Mapping[str, Any]]
FIXED = ("fixed_low", "fixed_mid", "fixed_high")
ARMS = {
    "held": "KL held, first rate 0.35 r",
    "held_high": "KL held, first rate 2.8 r",
    "fixed_low": "fixed at 0.35 r",
    "fixed_mid": "fixed at r",
    "fixed_high": "fixed at 2.8 r",
}


START = {"held": "low", "held_high": "high"}


def areas(made: Made, method: str, arm: str, seeds: Sequence[int]) -> list[float]:
    return [made[method, arm, seed]["values"]["train-area"] for seed in seeds]


def best_fixed(plan: Mapping[str, Any], made: Made, method: str, seeds: Sequence[int]) -> str:
    """The fixed arm with the highest mean area, of those that the method was run in."""
    there = [block["arm"] for block in plan["runs"] if block["arm"] in FIXED and method in block["methods"]]
    return max(sorted(there), key=lambda arm: statistics.fmean(areas(made, method, arm, seeds)))


def above(differences: Sequence[float], margin: float) -> float:
    """p of "the mean is -margin or less", one-sided paired t-test."""
    moved = [x + margin for x in differences]
    spread = statistics.stdev(moved) / math.sqrt(len(moved))
    if spread == 0:
        return float(moved[0] <= 0)
    return float(stats.t.sf(statistics.fmean(moved) / spread, len(moved) - 1))


def raw(plan: Mapping[str, Any], made: Made, seeds: Sequence[int]) -> Iterator[Test]:
    """Every test, without correction; none with fewer than three seeds."""
    margin = plan["margin"]
    for prediction in plan["prediction"] if len(seeds) > 2 else ():
        for method in prediction["methods"]:
            other, arms = prediction["other"], (prediction["arm"], prediction["other_arm"])
            if arms[1] == "best fixed":
                arms = arms[0], best_fixed(plan, made, other, seeds)
            sides = areas(made, method, arms[0], seeds), areas(made, other, arms[1], seeds)
            d = tuple(a - b for a, b in zip(*sides, strict=True))
            pair = f"{method} − {other}, {arms[0]}" if arms[0] == arms[1] else f"{method}, {arms[0]} − {arms[1]}"
            mirrored = [-x for x in d]
            one_sided = prediction["expected"] == "alike or larger"
            p = None if one_sided else min(1.0, 2 * min(above(d, 0.0), above(mirrored, 0.0)))
            alike = above(d, margin) if one_sided else max(above(d, margin), above(mirrored, margin))
            yield Test(prediction["name"], "mixture", "card", pair, prediction["expected"], d, p, alike)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """95 %, of the mean, by t."""
    mean, n = statistics.fmean(differences), len(differences)
    half = float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(differences) / math.sqrt(n)
    return mean - half, mean + half


def verdict_rows(plan: Mapping[str, Any], tests: Sequence[Test]) -> str:
    words = {prediction["name"]: prediction["words"] for prediction in plan["prediction"]}
    head = ("claim", "difference of area", "mean", "95 % interval", "expected", "verdict")
    body = []
    for test in tests:
        low, high = interval(test.differences)
        verdict = f"**{test.verdict(plan['margin'])}**"
        cells = (words[test.name], test.pair, f"{test.mean:+.3f}", f"{low:+.3f} to {high:+.3f}", test.expected, verdict)
        body.append(cells)
    return table(head, body)


def p_rows(tests: Sequence[Test]) -> str:
    head = ("claim", "difference", "p, different", "p, alike or no worse", "differences by seed")
    body = [
        (
            test.name,
            test.pair,
            "" if test.p is None else f"{test.p:.4f}",
            f"{test.alike:.4f}",
            " ".join(f"{x:+.3f}" for x in test.differences),
        )
        for test in tests
    ]
    return table(head, body)


def means(plan: Mapping[str, Any], made: Made, seeds: Sequence[int]) -> str:
    """A row for each arm and method."""
    head = ("arm", "method", "area", "lowest to highest seed", "last three batches", "mean KL", "updates left out")
    body = []
    for block in plan["runs"]:
        for method in block["methods"]:
            runs = [made[method, block["arm"], seed] for seed in seeds]
            area = [run["values"]["train-area"] for run in runs]
            kl = [run["values"]["mean:kl"] for run in runs if run["values"]["mean:kl"] is not None]
            body.append(
                (
                    ARMS[block["arm"]],
                    f"`{method}`",
                    f"{statistics.fmean(area):.3f}",
                    f"{min(area):.3f} to {max(area):.3f}",
                    f"{statistics.fmean(run['values']['last'] for run in runs):.3f}",
                    f"{statistics.fmean(kl):.4f}" if kl else "",
                    f"{statistics.fmean(run['left_out'] for run in runs):.1f}",
                )
            )
    return table(head, body)


def answer(plan: Mapping[str, Any], tests: Sequence[Test]) -> str:
    """One sentence for each half of the question."""
    verdicts: dict[str, list[str]] = {}
    for test in tests:
        if test.name == "A":
            verdicts.setdefault(test.verdict(plan["margin"]), []).append(f"`{test.pair.split()[0]}`")
    words = {"alike": "alike within the margin", "smaller": "less", "larger": "more", "undecided": "undecided"}
    first = "; ".join(f"{words[v]}: {', '.join(verdicts[v])}" for v in words if v in verdicts)
    held = [f"{START[test.pair.split()[1]]} start rate {test.mean:+.3f}" for test in tests if test.name == "C"]
    beside = f"DAPO with its KL held, beside its best fixed rate: {', '.join(held)}."
    return f"What methods learn beside DAPO with the KL held: {first}. {beside}"


def page(plan: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> str:
    """docs/card_study.md."""
    seeds, made = card.complete(plan, lines), {card.job_of(line): line for line in lines}
    tests = corrected([*raw(plan, made, seeds)])
    if not tests:
        raise SystemExit(f"{len(seeds)} seeds are complete: it takes three for a test")
    model, cut = known["base"], len(lines) - len(seeds) * len(card.of_seed(plan, 0))
    return TEMPLATE.format(
        answer=answer(plan, tests),
        gained=f"{statistics.fmean(areas(made, 'dapo', 'held', seeds)) - model['accuracy']:.2f}",
        best=ARMS[best_fixed(plan, made, "dapo", seeds)],
        verdicts=verdict_rows(plan, tests),
        means=means(plan, made, seeds),
        tests=p_rows(tests),
        family=sum(1 + (test.p is not None) for test in tests),
        level=f"{100 * LEVEL:g}",
        margin=plan["margin"],
        seeds=len(seeds),
        cut=cut,
        target=plan["kl_target"],
        rate=f"{known['pilot']['rate']:g}",
        parameters=f"{model['parameters'] / 1e6:.0f}",
        accuracy=f"{model['accuracy']:.2f}",
        greedy=f"{model['greedy']:.2f}",
        steps=model["steps"],
        **plan["rollout"],
        batches=plan["train"]["steps"],
        updates=plan["train"]["minibatches"],
    )


TEMPLATE = """\
<!-- Written by studies/2026-11-26-card/verdicts.py. -->

# Is learning bought with KL on a larger model, too?

**{answer}**

!!! note "What this can say"
    One base model of {parameters} M parameters, one task, {batches} batches of training, {seeds} seeds: early learning
    on generated arithmetic and search, on one H200, where runs did not repeat bit for bit. The base model is right at
    {accuracy} of what it samples ({greedy} greedily) after {steps} supervised steps. **Little is learned in so few
    batches**: DAPO with its KL held gains {gained} over the base model, and the margin of {margin}, chosen before, is
    most of that. So read the intervals rather than the word "alike". Of the fixed rates the best is the one {best}; with
    the smallest of a grid best, a smaller one may be better still, and the KL that is held may be too large.

![Accuracy against KL: with it held, all methods but TR-GRPO lie together; high fixed rates lose](card_study.svg)

Methods differ in how far a batch moves the policy. `train.kl_target` makes that equal: the learning rate follows the
KL, so that the largest within a batch is {target} nats a token; its mean over a batch's updates, below, is about a
third of that. From the low start rate it is there by the fourth batch; from the high one the first two batches have ten
and five times as much. If learning is bought with KL, methods then learn alike, and nobody has to
tune a rate. [Another study](../studies/2026-11-24-kl-law/law.toml) asks this of a model of 0.6 M parameters.

## Verdicts

{verdicts}

Area is the mean accuracy of what is sampled for training. "Alike" and "no worse" are within {margin}, "larger" and
"smaller" are shown and at least {margin}; "undecided" says that none of these is shown. Where only "no worse" is asked,
it may mean worse: the interval tells. TR-GRPO's weight is on the ratio, its default.
[card.toml](../studies/2026-11-26-card/card.toml) was committed before the first run that counts: claims, margin, runs
and their order. r is the rate at which three pilot runs of DAPO kept the KL: {rate}.

## What each arm did

{means}

A run makes {batches} batches of {prompts} prompts x {group_size} responses of at most {max_new_tokens} tokens,
{updates} updates each.

<details><summary>Every test</summary>

Paired t-tests over the {seeds} complete seeds; p-values after Holm's correction over all {family}, at {level} %.
{cut} runs of seeds that the time cut off are in [card.jsonl](../studies/2026-11-26-card/card.jsonl) and are not counted.

{tests}

</details>
"""


def main() -> int:
    numbers, known = HERE / "card.jsonl", HERE / "base.json"
    if not numbers.is_file():
        print("there are no numbers yet: card.py run, then card.py collect")
        return int((DOCS / "card_study.md").is_file())
    plan, lines, about = card.registration(), card.lines(numbers), json.loads(known.read_text(encoding="utf-8"))
    seeds, made = card.complete(plan, lines), {card.job_of(line): line for line in lines}
    runs = [(m, b["arm"], [made[m, b["arm"], seed] for seed in seeds]) for b in plan["runs"] for m in b["methods"]]
    changed = write(DOCS / "card_study.svg", picture.drawing(runs, about["base"]["accuracy"]))
    return write(DOCS / "card_study.md", page(plan, lines, about)) or changed


if __name__ == "__main__":
    sys.exit(main())
