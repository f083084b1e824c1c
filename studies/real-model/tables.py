"""The tables and the picture of the study, from runs.jsonl.

    python studies/real-model/tables.py [docs/real_model.svg]

Verdicts come from `tokenpo.lab.compare.verdict.judge`.
"""

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import fifth
import fourth
import second
import third
from study import METHODS, Job

from tokenpo.lab.compare.verdict import Pair, bootstrap, judge

HERE = Path(__file__).parent
NAMES = {
    "grpo": "GRPO", "gspo": "GSPO", "cispo": "CISPO", "tepo": "TEPO", "gtpo": "GTPO", "grpo_s": "GRPO-S",
    "tr_grpo": "TR-GRPO", "tr_grpo_literal": "TR-GRPO, literal", "hapo": "HAPO",
}  # fmt: skip
MARGIN = 0.03
Rows = dict[str, dict[str, Pair]]


def area(run: dict) -> float:
    return statistics.fmean(run["curve"]["accuracy"])


MEASURES = {"training": area, "held out": lambda run: run["held_out"]}


def full(runs: dict[str, dict], name: Callable[[str, int], str], methods: Sequence[str], most: int) -> list[int]:
    """The seeds that every method has."""
    return [s for s in range(1, most + 1) if all(name(m, s) in runs for m in methods)]


def compare(
    runs: dict[str, dict], name: Callable[[str, int], str], methods: Sequence[str], seeds: Sequence[int]
) -> Rows:
    """measure -> method -> its pair with DAPO; `name` gives the run of a method and seed."""
    pairs = [(m, "dapo") for m in methods]
    found = {}
    for measure, of in MEASURES.items():
        values = {m: {s: of(runs[name(m, s)]) for s in seeds} for m in ("dapo", *methods)}
        found[measure] = dict(zip(methods, judge(values, pairs, margin=MARGIN), strict=True))
    return found


def word_of(pair: Pair) -> str:
    words = [] if pair.larger is None else ["larger" if pair.larger == pair.a else "smaller"]
    return ", ".join(words + ["alike"] * pair.equivalent)


def methods(runs: dict[str, dict], title: str, name: Callable[[str, int], str], names: Sequence[str], seeds) -> None:
    found = compare(runs, name, names, seeds)
    dapo = [statistics.fmean(of(runs[name("dapo", s)]) for s in seeds) for of in MEASURES.values()]
    print(f"\n{title}: {len(seeds)} seeds; DAPO {dapo[0]:.3f} in training, {dapo[1]:.3f} held out\n")
    print("| less DAPO | in training | | held out | |\n| --- | --- | --- | --- | --- |")
    for m in names:
        cells = []
        for pairs in found.values():
            pair = pairs[m]
            ahead = f"{sum(d > 0 for d in pair.differences)} of {len(seeds)} above, p {pair.p:.3g}"
            word = word_of(pair) if pair.decided else "undecided"
            cells.append(f"{pair.mean:+.3f} [{pair.low:+.3f}, {pair.high:+.3f}] {ahead} | {word}")
        curves = [runs[name(m, s)]["curve"] for s in seeds]
        entropy = statistics.fmean(x["entropy"][-1] for x in curves)
        kl, clip = (statistics.fmean(y for x in curves for y in x[k] if y is not None) for k in ("kl", "clip_fraction"))
        print(f"| {NAMES.get(m, m)} | {' | '.join(cells)} | entropy {entropy:.2f}, KL {kl:.4f}, clipped {clip:.3f}")
    for m in ("dapo", *names):
        print(m, [[round(area(runs[name(m, s)]), 3), runs[name(m, s)]["held_out"]] for s in seeds])


def tuned(runs: dict[str, dict]) -> dict[str, float | None]:
    """The rate of each method, with what the tuning runs gave."""
    rates = {}
    for m in METHODS:
        known, rates[m] = second.halves(runs, m)
        tried = {job.name.partition("tune ")[2]: round(area(runs[job.name]), 3) for job in known if job.name in runs}
        print(f"{m}: {rates[m]}", tried)
    return rates


def sides(runs: dict[str, dict]) -> None:
    print("\n| run | in training | last batch | held out | - | 3 digits | bare | entropy | equal groups |")
    for name, x in runs.items():
        if name.split(" ")[0] in ("tune", "sort", "groups", "updates", *METHODS) and name != "dapo 1":
            continue
        curve, rest = x["curve"], {k: x[k] for k in ("differences", "three_digits", "bare") if k in x}
        ends = [f"{curve[k][-1]:.2f}" for k in ("entropy", "equal_reward_groups")] if curve else ["", ""]
        trained = [f"{area(x):.3f}", f"{curve['accuracy'][-1]:.2f}"] if curve else ["", ""]
        print("|", " | ".join([name, *trained, str(x["held_out"]), *map(str, rest.values()), *ends]), "|")
        more = {k: x[k] for k in ("avg@8", "pass@8", "tokens", "gap", "largest", "outside") if k in x}
        print("   ", more or "", x["notes"].get("note/echo", ""), x.get("texts", ""))


def recipe(runs: dict[str, dict]) -> None:
    if "recipe" not in runs:
        return
    curve = runs["recipe"]["curve"]
    print("\n| batch |", " | ".join(str(i + 1) for i in range(len(curve["kl"]))), "|")
    for key in (
        "accuracy",
        "entropy",
        "kl",
        "clip_fraction",
        "length",
        "truncated",
        "equal_reward_groups",
        "grad_norm",
    ):
        print("|", key, "|", " | ".join(f"{x:.2g}" if key != "length" else f"{x:.1f}" for x in curve[key]), "|")


def rates(runs: dict[str, dict]) -> None:
    """GTPO against DAPO at two rates, and the rate alone: each family with a correction of its own."""
    seeds = [
        s for s in third.SEEDS if all(second.run(m, s, lr).name in runs for m in ("dapo", "gtpo") for lr in third.RATES)
    ]
    low, high = third.RATES
    values = {
        (m, lr, measure): {s: of(runs[second.run(m, s, lr).name]) for s in seeds}
        for m in ("dapo", "gtpo") for lr in third.RATES for measure, of in MEASURES.items()
    }  # fmt: skip
    four = [(("gtpo", lr, measure), ("dapo", lr, measure)) for lr in third.RATES for measure in MEASURES]
    two = [((m, low, "held out"), ("dapo", high, "held out")) for m in ("gtpo", "dapo")]
    print(f"\nTwo rates: {len(seeds)} seeds")
    for key, of_seed in values.items():
        print(*key, f"{statistics.fmean(of_seed.values()):.3f}", [round(x, 3) for x in of_seed.values()])
    named = {" ".join(map(str, key)): of_seed for key, of_seed in values.items()}
    for family in (four, two):
        verdicts(named, [tuple(" ".join(map(str, side)) for side in pair) for pair in family])


def arms(runs: dict[str, dict], title: str, jobs: dict[str, Callable[[int], Job]], base: str) -> None:
    """DAPO in several settings, each against the base, over the fourth part's seeds."""
    seeds = [s for s in fourth.SEEDS if all(job(s).name in runs for job in jobs.values())]
    named = {
        f"{arm} {measure}": {s: of(runs[job(s).name]) for s in seeds}
        for arm, job in jobs.items() for measure, of in MEASURES.items()
    }  # fmt: skip
    print(f"\n{title}: {len(seeds)} seeds")
    for key, of_seed in named.items():
        print(key, f"{statistics.fmean(of_seed.values()):.3f}", [round(x, 3) for x in of_seed.values()])
    others = [arm for arm in jobs if arm != base]
    verdicts(named, [(f"{arm} {measure}", f"{base} {measure}") for arm in others for measure in MEASURES])


def updates(runs: dict[str, dict]) -> None:
    """One and four updates a batch, each at its rate, against two."""
    chosen = {n: fifth.rate(runs, n) for n in fifth.TRIED}
    for n, tried in fifth.TRIED.items():
        print(f"\n{n} updates, rate {chosen[n]}:", {x: second.mean(runs, [fifth.run(n, s, x) for s in second.TUNING])
                                                    for x in tried})  # fmt: skip
    if None not in chosen.values():
        rates = {**chosen, 2: second.FIRST}
        jobs = {str(n): (lambda seed, n=n: fifth.run(n, seed, rates[n])) for n in (1, 2, 4)}
        arms(runs, "Updates a batch", jobs, "2")


def verdicts(named: dict[str, dict[int, float]], pairs: list) -> None:
    """Prints each pair's difference and verdict, with one correction for all."""
    for pair in judge(named, pairs, margin=MARGIN):
        ahead = f"{sum(d > 0 for d in pair.differences)} of {len(pair.differences)} above, p {pair.p:.3g}"
        word = word_of(pair) if pair.decided else "undecided"
        gap = f"{pair.mean:+.3f} [{pair.low:+.3f}, {pair.high:+.3f}] {ahead}, {pair.adjusted:.3g} corrected"
        print(f"{pair.a} less {pair.b}: {gap}, {word}")


# ---- The picture


STYLE = (
    'text{font:11px system-ui,-apple-system,"Segoe UI","Liberation Sans",sans-serif;fill:#5b616a}'
    ".n{font-size:13px;font-weight:650;fill:#1c1e21}.y{text-anchor:end}.x{text-anchor:middle}"
    "path{fill:none;stroke-linejoin:round}.p{fill:#fcfcfa}.a{stroke:#c4c4be}.g{stroke:#8b8f96;stroke-width:2}"
    ".r{stroke:#0a66a8;stroke-width:2}.b{fill:#0a66a8;opacity:.2}"
    "@media(prefers-color-scheme:dark){text{fill:#a0a6ae}.n{fill:#e6e6e3}.p{fill:#15171a}.a{stroke:#4c5259}"
    ".g{stroke:#9aa0a8}.r{stroke:#62b2ee}.b{fill:#62b2ee;opacity:.25}}"
)
WIDE, HIGH, LEFT, TOP = 195, 95, 36, 54


def picture(runs: dict[str, dict], seeds: list[int]) -> str:
    """Nine panels of accuracy by batch: a method against DAPO.

    Means over seeds, and the 95 % interval of the paired difference.
    """
    curves = {m: [runs[f"{m} {s}"]["curve"]["accuracy"] for s in seeds] for m in ("dapo", *NAMES)}
    drawn = {m: [statistics.fmean(y) for y in zip(*x, strict=True)] for m, x in curves.items()}
    top = math.ceil(10 * max(y for x in drawn.values() for y in x)) / 10
    steps = len(drawn["dapo"])

    def line(heights: Sequence[float]) -> str:
        ends = [f"{i * WIDE / (steps - 1):.1f} {HIGH * (1 - y / top):.1f}" for i, y in enumerate(heights)]
        return "M" + "L".join(ends)

    def band(method: str) -> str:
        """DAPO's mean plus the ends of the interval, within the panel."""
        gaps = [[a - b for a, b in zip(*x, strict=True)] for x in zip(curves[method], curves["dapo"], strict=True)]
        ends = [bootstrap(x) if any(x) else (0.0, 0.0) for x in zip(*gaps, strict=True)]
        low, high = ([min(top, max(0.0, d + e[k])) for d, e in zip(drawn["dapo"], ends, strict=True)] for k in (0, 1))
        return f'<path class="b" d="{line(high)}L{"L".join(reversed(line(low)[1:].split("L")))}Z"/>'

    panels = []
    for k, (method, name) in enumerate(NAMES.items()):
        x, y = LEFT + (k % 3) * (WIDE + 28), TOP + (k // 3) * (HIGH + 52)
        axis = f'<path class="a" d="M0 0V{HIGH}H{WIDE}"/><text class="x" x="0" y="{HIGH + 14}">1</text>'
        axis += f'<text class="x" x="{WIDE}" y="{HIGH + 14}">{steps}</text>'
        if k % 3 == 0:
            axis += f'<text class="y" x="-5" y="8">{top:.1f}</text><text class="y" x="-5" y="{HIGH}">0</text>'
        shapes = f'<path class="g" d="{line(drawn["dapo"])}"/><path class="r" d="{line(drawn[method])}"/>'
        text = f'<text class="n" x="4" y="-7">{name}</text>{axis}{band(method)}{shapes}'
        panels.append(f'<g transform="translate({x} {y})">{text}</g>')
    legend = (
        f'<path class="g" d="M{LEFT} 16h24"/><text x="{LEFT + 30}" y="20">DAPO</text><path class="r" d="M110 16h24"/>'
        f'<text x="140" y="20">the method, with the 95 % interval of the paired difference; accuracy by batch</text>'
    )
    width, height = LEFT + 3 * WIDE + 2 * 28 + 14, TOP + 3 * (HIGH + 52) - 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    title = "Sampled accuracy by batch: DAPO and nine other methods on a real model"
    style = f'role="img"><title>{title}</title><style>{STYLE}</style><path class="p" d="M0 0H{width}V{height}H0Z"/>'
    return "\n".join([head + style + legend, *panels]) + "</svg>\n"


def moved(runs: dict[str, dict]) -> None:
    """Largest KL of a batch against held-out accuracy: sums by the true reward, six batches, every method and rate."""
    chosen = [
        x for x in runs.values() if x["reward"] == "true" and not x["name"].startswith(("sort", "group", "updates"))
    ]
    pairs = [(max(kl for kl in x["curve"]["kl"] if kl is not None), x["held_out"])
             for x in chosen if len(x["curve"].get("kl", ())) == 6]  # fmt: skip
    print("\n| largest KL of a batch | runs | held out, median | below 0.2 |\n| --- | --- | --- | --- |")
    bounds = (0, 0.004, 0.01, 0.03, 0.1, math.inf)
    for low, high in pairwise(bounds):
        found = [y for kl, y in pairs if low <= kl < high]
        print(f"| {low} to {high} | {len(found)} | {statistics.median(found):.2f} | {sum(y < 0.2 for y in found)} |")


if __name__ == "__main__":
    made = {x["name"]: x for x in map(json.loads, (HERE / "runs.jsonl").read_text("utf-8").splitlines())}
    first = "{} {}".format
    common = full(made, first, list(METHODS), 9)
    methods(made, "One rate", first, list(NAMES), common)
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(picture(made, common), "utf-8")
    recipe(made)
    sides(made)
    own_rates = tuned(made)
    if None not in own_rates.values():

        def own(m: str, seed: int) -> str:
            return second.run(m, seed, own_rates[m]).name

        if seeds := full(made, own, list(METHODS), 9):
            methods(made, "Own rates", own, list(NAMES), seeds)
        held = {f"kl_held {s}": made[f"kl held {s}"] for s in range(1, 10) if f"kl held {s}" in made}
        if seeds := full(made, own, ["dapo"], len(held)):
            dapo = {f"dapo {s}": made[own("dapo", s)] for s in seeds}
            methods(held | dapo, "KL held", first, ["kl_held"], seeds)
    if seeds := full(made, "sort {} {}".format, second.SORTED, 8):
        methods(made, "Sorting", "sort {} {}".format, second.SORTED[1:], seeds)
    rates(made)
    arms(made, "Groups", {str(n): (lambda seed, n=n: fourth.run(n, seed)) for n in fourth.GROUPS}, "8")
    updates(made)
    moved(made)
