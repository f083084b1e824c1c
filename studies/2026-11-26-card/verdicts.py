"""The predictions of the four plans against the numbers, and docs/card_study.md with its pictures.

python studies/2026-11-26-card/verdicts.py            write the page from the plans' .jsonl files and base models
python studies/2026-11-26-card/verdicts.py --check    exit 1 if it is not what the numbers say
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools" / "site")]

import card  # noqa: E402
import card_page  # noqa: E402
import picture  # noqa: E402
from layout import table, write  # noqa: E402

sys.path.insert(0, str(HERE.parent / "2026-11-24-kl-law"))  # its `verdicts`, not this one
from verdicts import LEVEL, Test, above, corrected, interval  # noqa: E402

Made = Mapping[card.Job, Mapping[str, Any]]
WORDS = {"no worse": "no worse", "alike": "alike", "smaller": "less", "larger": "more", "undecided": "undecided"}


@dataclass(frozen=True)
class Part:
    """A registration with the numbers of its complete seeds, and its tests, one family of Holm's correction.

    Raises:
        SystemExit: fewer than three seeds are complete.
    """

    plan: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    base: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not self.tests:
            raise SystemExit(f"{self.plan['name']}: {len(self.seeds)} seeds are complete: it takes three for a test")

    @functools.cached_property
    def seeds(self) -> list[int]:
        return card.complete(self.plan, self.lines)

    @functools.cached_property
    def made(self) -> Made:
        return {card.job_of(line): line for line in self.lines}

    @functools.cached_property
    def tests(self) -> list[Test]:
        return corrected([*raw(self.plan, self.made, self.seeds)])

    @functools.cached_property
    def runs(self) -> list[tuple[str, str, list[Mapping[str, Any]]]]:
        """Method, arm and the lines of its complete seeds, in the order of the registration."""
        names = [(method, arm) for method, arm, _ in card.of_seed(self.plan, 0)]
        return [(*name, [self.made[*name, seed] for seed in self.seeds]) for name in names]

    def course(self, method: str, arm: str, name: str) -> list[float]:
        """Mean over the seeds, for each batch; a batch without updates counts in no mean."""
        runs = next(lines for *which, lines in self.runs if which == [method, arm])
        columns = zip(*(run["course"][name] for run in runs), strict=True)
        return [statistics.fmean(x for x in column if x is not None) for column in columns]

    def mean(self, method: str, arm: str, name: str) -> float:
        """Of a value of the runs, over the seeds."""
        runs = next(lines for *which, lines in self.runs if which == [method, arm])
        return statistics.fmean(x for run in runs if (x := run["values"][name]) is not None)

    def best(self) -> str:
        return best_fixed(self.plan, self.made, "dapo", self.seeds)


def areas(made: Made, method: str, arm: str, seeds: Sequence[int]) -> list[float]:
    return [made[method, arm, seed]["values"]["train-area"] for seed in seeds]


def fixed(plan: Mapping[str, Any], method: str) -> list[str]:
    """The arms with a fixed rate that the method is run in, from the lowest rate up."""
    there = [x["arm"] for x in plan["runs"] if "lr" in plan["arm"][x["arm"]] and method in x["methods"]]
    return sorted(there, key=lambda arm: plan["arm"][arm]["lr"])


def best_fixed(plan: Mapping[str, Any], made: Made, method: str, seeds: Sequence[int]) -> str:
    """The fixed arm with the highest mean area."""
    return max(fixed(plan, method), key=lambda arm: statistics.fmean(areas(made, method, arm, seeds)))


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


def told(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.3f} to {interval[1]:+.3f}"


def pair_of(test: Test, part: Part) -> str:
    """The pair of a test, in words that are the same in all parts."""
    others = {prediction["name"]: prediction["other_arm"] for prediction in part.plan["prediction"]}
    beside_best = others[test.name] == "best fixed"
    return test.pair.replace(f"− {part.best()}", "− best fixed") if beside_best else test.pair


def verdict_rows(parts: Sequence[Part]) -> str:
    """A row for each pair of any part, and two cells for each part."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for part in parts:
        words = {prediction["name"]: prediction["words"] for prediction in part.plan["prediction"]}
        for test in part.tests:
            verdict = f"**{test.verdict(part.plan['margin'])}**"
            row = found.setdefault((words[test.name], pair_of(test, part), test.expected), {})
            row[part.plan["name"]] = f"{test.mean:+.3f} ({told(interval(test.differences))}) | {verdict}"
    heads = [x for part in parts for x in (f"{part.plan['train']['steps']} batches: mean (95 % interval)", "verdict")]
    body = [(*front, *(cells.get(part.plan["name"], " | ") for part in parts)) for front, cells in found.items()]
    return table(("claim", "difference of area", "expected", *heads), body)


def own_rows(part: Part) -> str:
    """A row for each pair of a part that has a table of its own."""
    words = {prediction["name"]: prediction["words"] for prediction in part.plan["prediction"]}
    head = ("claim", "difference of area", "expected", "mean (95 % interval)", "verdict")
    body = [
        (
            words[test.name], pair_of(test, part), test.expected, f"{test.mean:+.3f} ({told(interval(test.differences))})",
            f"**{test.verdict(part.plan['margin'])}**",
        )
        for test in part.tests
    ]  # fmt: skip
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


def means(part: Part) -> str:
    """A row for each arm and method."""
    head = ("arm", "method", "area", "lowest to highest seed", "by four batches", "last three", "mean KL", "left out")
    body = []
    for method, arm, runs in part.runs:
        area = [run["values"]["train-area"] for run in runs]
        cells = (
            f"`{arm}`: {card.in_words(part.plan, arm)}",
            f"`{method}`",
            f"{statistics.fmean(area):.3f}",
            f"{min(area):.3f} to {max(area):.3f}",
            " ".join(f"{x:.3f}" for x in by_four(part, method, arm)),
            f"{part.mean(method, arm, 'last'):.3f}",
            f"{part.mean(method, arm, 'mean:kl'):{'.4f' if part.mean(method, arm, 'mean:kl') > 5e-4 else '.5f'}}",
            f"{statistics.fmean(run['left_out'] for run in runs):.1f}",
        )
        body.append(cells)
    return table(head, body)


def by_four(part: Part, method: str, arm: str) -> list[float]:
    """Mean accuracy of four batches each; of fewer at the end."""
    course = part.course(method, arm, "accuracy")
    return [statistics.fmean(course[i : i + 4]) for i in range(0, len(course), 4)]


def part_rows(parts: Sequence[Part]) -> str:
    """What sets the parts apart, a column for each."""
    columns = [part_column(part) for part in parts]
    head = ("", *(f"[{x.plan['name']}.toml](../studies/{HERE.name}/{x.plan['name']}.toml)" for x in parts))
    return table(head, [(label, *(column[label] for column in columns)) for label in columns[0]])


def part_column(part: Part) -> dict[str, str]:
    plan, course = part.plan, part.course("dapo", "held", "accuracy")
    held = [part.mean(method, arm, "mean:kl") for method, arm, _ in part.runs if arm == "held"]
    mean, kl = part.mean("dapo", "held", "mean:kl"), part.course("dapo", "held", "kl")
    high = [x / mean for x in part.course("dapo", "held_high", "kl")]
    rates = fixed(plan, "dapo")
    place = {0: "the lowest", len(rates) - 1: "the highest"}.get(rates.index(part.best()), "inside the range")
    return {
        card_page.BATCHES: f"{plan['train']['steps']}",
        "complete seeds": f"{len(part.seeds)}",
        "KL that is held, the largest of a batch": f"{plan['kl_target']:g}",
        "mean KL of the seven methods' batches, KL held": f"{min(held):.4f} to {max(held):.4f}",
        "accuracy of the first batch, before any update": f"{course[0]:.2f}",
        "DAPO, KL held: accuracy by four batches": " ".join(f"{x:.2f}" for x in by_four(part, "dapo", "held")),
        card_page.GAIN: f"{part.mean('dapo', 'held', 'train-area') - part.base['accuracy']:.2f}",
        "fixed rates": ", ".join(card.rate_in_words(plan["arm"][arm]["lr"]) for arm in rates),
        "the best of them": f"{card.rate_in_words(plan['arm'][part.best()]['lr'])}, {place}",
        "first batch that reaches the mean KL, low start rate": f"{1 + next(i for i, x in enumerate(kl) if x >= mean)}",
        "KL of the first two batches, high start rate": f"{high[0]:.0f} and {high[1]:.0f} times that mean",
    }


def methods_beside(part: Part, prediction: str = "A") -> str:
    """The verdicts of a prediction, shortly."""
    verdicts: dict[str, list[str]] = {}
    for test in part.tests:
        if test.name == prediction:
            verdicts.setdefault(test.verdict(part.plan["margin"]), []).append(f"`{test.pair.split()[0]}`")
    return "; ".join(f"{WORDS[v]}: {', '.join(verdicts[v])}" for v in WORDS if v in verdicts)


def beside_the_best(part: Part) -> str:
    """The verdicts of prediction C, shortly."""
    start = {"held": "low", "held_high": "high"}
    found = (test for test in part.tests if test.name == "C")
    return ", ".join(
        f"{test.mean:+.3f} from the {start[test.pair.split()[1]]} start rate ({test.verdict(part.plan['margin'])})"
        for test in found
    )


def much_to_learn(part: Part) -> dict[str, str]:
    """The fields of the page about the fourth part."""
    beside, less = (next(test for test in part.tests if test.name == name) for name in "CE")
    course = {arm: part.course("dapo", arm, "accuracy") for arm in ("held", "held_small", part.best())}
    kl, rate = (part.course("dapo", "held", name) for name in ("kl", "kl_rate"))
    peak = max(range(len(rate)), key=rate.__getitem__)
    fixed_kl = part.course("dapo", "fixed_low", "kl")
    margin, start = part.plan["margin"], part.base["accuracy"]
    return {
        "gain": f"{part.mean('dapo', 'held', 'train-area') - start:.2f}",
        "beside": methods_beside(part),
        "numbers": ", ".join(f"`{x.pair.split()[0]}` {x.mean:+.3f}" for x in part.tests if x.name == "A"),
        "fixed": f"{beside.mean:+.3f}, {told(interval(beside.differences))}; {beside.verdict(margin)}",
        "small": f"{less.mean:+.3f}, {told(interval(less.differences))}; {less.verdict(margin)}",
        "best": card.rate_in_words(part.plan["arm"][part.best()]["lr"]),
        "best_kl": f"{part.mean('dapo', part.best(), 'mean:kl'):.4f}",
        "held_kl": f"{part.mean('dapo', 'held', 'mean:kl'):.4f}",
        "seeds": f"{len(part.seeds)}",
        "accuracy": f"{start:.2f}",
        "steps": f"{part.base['steps']}",
        "last": " and ".join(f"{statistics.fmean(x[-3:]):.2f}" for x in (course["held"], course[part.best()])),
        "dip": f"{max(course['held'][:8]):.2f} to {min(course['held'][8:11]):.2f}",
        "climb": f"{rate[peak] / rate[0]:.1f} times in {peak} batches",
        "high": f"{max(kl):.3f}",
        "fall": f"{fixed_kl[0]:.4f} to {statistics.fmean(fixed_kl[-3:]):.4f}",
        "low": card.rate_in_words(part.plan["arm"]["fixed_low"]["lr"]),
        "low_area": f"{part.mean('dapo', 'fixed_low', 'train-area') - part.mean('dapo', part.best(), 'train-area'):+.3f}",
        "rows": own_rows(part),
        "means": means(part),
        "tests": p_rows(part.tests),
        "family": f"{sum(1 + (test.p is not None) for test in part.tests)}",
    }


def page(longer: Part, first: Part, clips: Part, habits: Part, known: Mapping[str, Any]) -> str:
    """docs/card_study.md."""
    model, pairs = known["base"], [methods_beside(part) for part in (longer, first)]
    small = next(test for test in longer.tests if test.name == "E")
    held, less = (by_four(longer, "dapo", arm) for arm in ("held", "held_small"))
    late = [by_four(longer, *which)[-1] - by_four(longer, *which)[1] for which in LATE]
    gains = [part.mean("dapo", "held", "train-area") - part.base["accuracy"] for part in (longer, first)]
    open_high, chosen, *candidates = (test for test in clips.tests if test.name != "F")
    return TEMPLATE.format(
        much=much_to_learn(habits),
        clips=methods_beside(clips, "F"),
        open_high=f"{-open_high.mean:.3f}",
        open_high_kl=" instead of ".join(
            f"{clips.mean(method, 'fixed_high', 'mean:kl'):.3f}" for method in ("no_clip", "dapo")
        ),
        chosen=f"{chosen.mean:+.3f}, {told(interval(chosen.differences))}; {chosen.verdict(clips.plan['margin'])}",
        candidates=", ".join(
            f"`{test.pair.split(',')[0]}` {test.mean:+.3f} ({test.verdict(clips.plan['margin'])})"
            for test in candidates
        ),
        clip_rows=own_rows(clips),
        clip_means=means(clips),
        clip_tests=p_rows(clips.tests),
        clip_family=sum(1 + (test.p is not None) for test in clips.tests),
        clip_seeds=len(clips.seeds),
        beside=pairs[0],
        both="The first part says the same." if pairs[0] == pairs[1] else f"The first part: {pairs[1]}.",
        small=f"{longer.plan['arm']['held_small']['kl_target']:g}",
        small_mean=f"{small.mean:+.3f}, {told(interval(small.differences))}",
        bought=BOUGHT[small.verdict(longer.plan["margin"])][0],
        small_word=BOUGHT[small.verdict(longer.plan["margin"])][1],
        high_kl=f"{longer.mean('dapo', 'fixed_high', 'mean:kl'):.4f}",
        beside_longer=beside_the_best(longer),
        beside_first=beside_the_best(first),
        p_low=f"{next(test for test in longer.tests if test.name == 'C').alike:.3f}",
        parts=part_rows((longer, first)),
        verdicts=verdict_rows((longer, first)),
        gains=[f"{x:.2f}" for x in gains],
        share=[f"{100 * longer.plan['margin'] / x:.0f}" for x in gains],
        behind=[f"{less[i] - held[i]:+.3f}" for i in (1, -1)],
        late=[f"{x:+.2f}" for x in late],
        first_batch=[f"{part.course('dapo', 'held', 'accuracy')[0]:.2f}" for part in (longer, first)],
        best=[part_column(part)["the best of them"] for part in (longer, first)],
        means=[means(part) for part in (longer, first)],
        tests=[p_rows(part.tests) for part in (longer, first)],
        family=[sum(1 + (test.p is not None) for test in part.tests) for part in (longer, first)],
        cut=[len(part.lines) - len(part.seeds) * len(part.runs) for part in (longer, first)],
        level=f"{100 * LEVEL:g}",
        margin=longer.plan["margin"],
        seeds=[len(part.seeds) for part in (longer, first)],
        batches=[part.plan["train"]["steps"] for part in (longer, first)],
        target=[f"{part.plan['kl_target']:g}" for part in (longer, first)],
        rate=f"{known['pilot']['rate']:g}",
        parameters=f"{model['parameters'] / 1e6:.0f}",
        accuracy=f"{model['accuracy']:.2f}",
        greedy=f"{model['greedy']:.2f}",
        steps=model["steps"],
        **longer.plan["rollout"],
        updates=longer.plan["train"]["minibatches"],
    )


BOUGHT = {
    "alike": ("Hardly", "as much"), "smaller": ("Yes", "less"), "larger": ("No", "more"),
    "undecided": ("Undecided", "an undecided amount"),
}  # fmt: skip
LATE = (("dapo", "held"), ("tr_grpo", "held"), ("dapo", "fixed_high"))
TEMPLATE = """\
<!-- Written by studies/2026-11-26-card/verdicts.py. -->

# Is learning bought with KL on a larger model, too?

**{bought}: with a third of the KL that we held, DAPO learns {small_word}.** Longer runs answer what a first part left open.

- **How much KL?** Held at {small} instead of {target[0]} nats a token, DAPO learns {small_word} ({small_mean}).
- **Which method, once the KL is held?** Beside DAPO, {beside}.
  {both}
- **Hold the KL or tune the rate?** Beside the best of three fixed rates, DAPO with its KL held learns
  {beside_longer}.
  In the first part, with a larger KL and fewer batches:
  {beside_first}.
  On new seeds, beside the rate that the longer runs chose: {chosen}.
- **Which rate?** The best fixed one is {best[0]} of those tried. In the first part it was {best[1]}.
- **Which clip, once the KL is held?** Beside DAPO's, {clips}. At the fixed
  rate r it costs {open_high} to take DAPO's clip away: the mean KL is then {open_high_kl}. The clip limits how far a batch
  moves the policy, and a held KL does that, too.
- **Something better than DAPO at its tuned rate?** Not these candidates with their KL held: {candidates}.
- **And where much is to be learned?** From [another base model](#where-much-is-to-be-learned) DAPO with its KL held gains
  {much[gain]}. Beside it, {much[beside]}. Its difference to the best of four fixed rates: {much[fixed]}.

!!! note "What this can say"
    Two base models of {parameters} M parameters, one task of generated arithmetic and search, {seeds[0]} seeds ({seeds[1]}
    in the first part, {clip_seeds} for the clips), one H200, where runs did not repeat bit for bit. **From the first base model
    little is learned**: in {batches[0]} batches DAPO with its KL held gains {gains[0]} over it, in {batches[1]} batches {gains[1]}. The margin of {margin}, chosen
    before, is {share[0]} % and {share[1]} % of that: read the intervals rather than the word "alike". Nearly all of it is
    learned in eight batches: from the second four to the last four DAPO's accuracy changes by {late[0]}. The base model is
    right at {accuracy} of held-out prompts, but at {first_batch[0]} and {first_batch[1]} of the runs' first batches: a gain
    is no surer than that. "No worse" from the low start rate is shown narrowly (p = {p_low}).

![Accuracy against KL in the longer runs: flat up to the KL that is held, lower above it](card_study.svg)

Methods differ in how far a batch moves the policy. `train.kl_target` makes that equal: the learning rate follows the KL.
If learning is bought with KL, methods then learn alike, and nobody has to tune a rate. Not registered, but seen: with
the smaller KL DAPO is later, not worse ({behind[0]} in batches 5 to 8, {behind[1]} in the last four). At the highest
fixed rate, a mean KL of {high_kl}, accuracy falls again after eight batches ({late[2]}), and so does TR-GRPO's with its
KL held ({late[1]}). [A model of 0.6 M parameters](kl_law.md) learns more, and there methods differ.

## Verdicts

{verdicts}

Area is the mean accuracy of what is sampled for training. "Alike" and "no worse" are within {margin}, "larger" and
"smaller" are shown and at least {margin}; "undecided" says that none of these is shown. Where only "no worse" is asked,
it may mean worse: the interval tells. TR-GRPO's weight is on the ratio, its default.

## The two parts

{parts}

Each plan was committed before its first run that counts, the longer runs' after the first verdicts. r is the rate at
which three pilot runs of DAPO kept the first part's KL: {rate}. The best fixed rate is chosen by the same seeds, which
favours it. A batch has {prompts} prompts x {group_size} responses of at most {max_new_tokens} tokens and {updates}
updates. No prompt comes twice in a run. Runs of a seed share their prompts, so differences are of pairs; seeds do not.
After {steps} supervised steps the base model is right at {accuracy} of what it samples and {greedy} greedily.

## The clip, and two candidates

A third part ([clips.toml](../studies/2026-11-26-card/clips.toml), committed after the verdicts above and before its
first run) has batches, KL and base model of the longer runs and {clip_seeds} other seeds. `dapo_wide` has DAPO's clip twice as
wide; `lower_only` and `upper_only` one side of it; `no_clip` none. [`brake`](../studies/2026-11-26-card/brake.py) is
CISPO, except that a token which is to become less likely, and is already by a fifth, gets no gradient.

{clip_rows}

## Where much is to be learned

In the other parts the dial's prompts are too long to be worked in small steps within 64 tokens, so the base model has
little to learn. A fourth part ([habits.toml](../studies/2026-11-26-card/habits.toml), committed before its first run)
has another base model with bad habits: it leaps over most steps, and gives up after most failed attempts. Every prompt can
be worked in full. After {much[steps]} supervised steps it is right at {much[accuracy]}. Batches (16) and KL (0.012) are those of
[the study at 0.6 M](kl_law.md); {much[seeds]} seeds.

{much[rows]}

![Accuracy against KL where much is to be learned: the best fixed rates move less than held runs](card_study_habits.svg)

Not registered, but seen: **a possible cause of that price**. At a fixed rate of {much[low]} the KL falls by itself as rewards saturate, from
{much[fall]} (area {much[low_area]} beside the best). The controller answers by raising the rate, {much[climb]}, until the KL
jumps to {much[high]}; accuracy falls from {much[dip]} and the last three batches have {much[last]} at the best fixed rate, {much[best]},
whose mean KL is {much[best_kl]} instead of {much[held_kl]}. A first seed of the plan counts for nothing, as its base model was
lost ([its runs](../studies/2026-11-26-card/lost_habits.jsonl)).

<details markdown="1"><summary>What each arm did</summary>

Longer runs:

{means[0]}

First part:

{means[1]}

Third part:

{clip_means}

Fourth part:

{much[means]}

"Left out" are updates that a held run skipped because the KL was twice its target.

![Accuracy against KL in the first part: high fixed rates lose](card_study_first.svg)

</details>

<details markdown="1"><summary>Every test</summary>

Paired t-tests over complete seeds. p-values are after Holm's correction at {level} %, over the {family[0]} of the longer
runs, the {family[1]} of the first part, the {clip_family} of the third and the {much[family]} of the fourth apart: the verdicts of
a part were published before the next one was planned.
{cut[0]} and {cut[1]} runs of seeds that the time cut off are not counted.

Longer runs:

{tests[0]}

First part:

{tests[1]}

Third part:

{clip_tests}

Fourth part:

{much[tests]}

</details>
"""


def known_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the plan's base model and pilot."""
    return json.loads((HERE / plan["of_base"]).read_text(encoding="utf-8"))


def part_of(name: str) -> Part:
    """As it stands in the folder; raises as `Part`."""
    plan = card.registration(name=name)
    return Part(plan, card.lines(HERE / f"{name}.jsonl"), known_of(plan)["base"])


def main() -> int:
    parts = [part_of(name) for name in (*card_page.PARTS, *card_page.OTHERS)]
    known = known_of(parts[0].plan)
    pictures = zip(("card_study", "card_study_first", "card_study_habits"), (*parts[:2], parts[3]), strict=True)
    changed = [write(DOCS / f"{name}.svg", picture.drawing(x.plan, x.runs, x.base["accuracy"])) for name, x in pictures]
    return max(write(DOCS / "card_study.md", page(*parts, known)), *changed)


if __name__ == "__main__":
    sys.exit(main())
