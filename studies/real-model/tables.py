"""The tables and the picture of the study, from runs.jsonl.

    python studies/real-model/tables.py [docs/real_model.svg]

Verdicts come from `tokenpo.lab.compare.verdict.judge`.
"""

import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenpo.lab.compare.verdict import Pair, bootstrap, judge, least_seeds

HERE = Path(__file__).parent
NAMES = {
    "grpo": "GRPO", "gspo": "GSPO", "cispo": "CISPO", "tepo": "TEPO", "gtpo": "GTPO", "grpo_s": "GRPO-S",
    "tr_grpo": "TR-GRPO", "tr_grpo_literal": "TR-GRPO, literal", "hapo": "HAPO",
}  # fmt: skip
FIXED = ("tr_grpo_literal", "gspo", "grpo_s", "hapo", "gtpo", "grpo", "tepo", "cispo", "tr_grpo")
MARGIN = 0.03


def area(run: dict) -> float:
    return statistics.fmean(run["curve"]["accuracy"])


MEASURES = {"training": area, "held out": lambda run: run["held_out"]}


def load() -> tuple[dict[str, dict], list[int]]:
    """Runs by name, and the seeds that every method has."""
    runs = {x["name"]: x for x in map(json.loads, (HERE / "runs.jsonl").read_text("utf-8").splitlines())}
    full = [s for s in range(1, 10) if all(f"{m} {s}" in runs for m in ("dapo", *NAMES))]
    return runs, full


def verdicts(runs: dict[str, dict], seeds: list[int]) -> dict[str, dict[str, tuple[Pair, str]]]:
    """measure -> method -> its pair with DAPO, and larger, smaller, alike or undecided."""
    found = {name: {} for name in MEASURES}
    holm = len(seeds) >= least_seeds(len(FIXED))
    own = seeds if holm else range(1, 10)  # in the fixed order a method is compared over all of its pairs
    for measure, of in MEASURES.items():
        stopped = False
        values = {m: {s: of(runs[f"{m} {s}"]) for s in own if f"{m} {s}" in runs} for m in ("dapo", *NAMES)}
        pairs = judge(values, [(m, "dapo") for m in FIXED], margin=MARGIN)
        for i, m in enumerate(FIXED):
            if not holm:
                (pairs[i],) = judge(values, [(m, "dapo")], margin=MARGIN)
            word = "undecided" if stopped or not pairs[i].decided else word_of(pairs[i])
            stopped |= not holm and word == "undecided"
            found[measure][m] = pairs[i], word
    return found


def word_of(pair: Pair) -> str:
    words = [] if pair.above is None else ["larger" if pair.above == pair.a else "smaller"]
    return ", ".join(words + ["alike"] * pair.equivalent)


def methods(runs: dict[str, dict], seeds: list[int]) -> None:
    found = verdicts(runs, seeds)
    dapo = [statistics.fmean(of(runs[f"dapo {s}"]) for s in seeds) for of in MEASURES.values()]
    print(f"\n{len(seeds)} seeds; DAPO {dapo[0]:.3f} in training, {dapo[1]:.3f} held out\n")
    print("| less DAPO | in training | | held out | |\n| --- | --- | --- | --- | --- |")
    for m, name in NAMES.items():
        cells = []
        for measure in MEASURES:
            pair, word = found[measure][m]
            if pair.p is None or pair.low is None:
                cells.append(f"{pair.differences[0]:+.3f} | {word}")
                continue
            ahead = f"{sum(d > 0 for d in pair.differences)} of {len(seeds)} above, p {pair.p:.3g}"
            cells.append(f"{pair.mean:+.3f} [{pair.low:+.3f}, {pair.high:+.3f}] {ahead} | {word}")
        curves = [runs[f"{m} {s}"]["curve"] for s in seeds]
        entropy = statistics.fmean(x["entropy"][-1] for x in curves)
        kl, clip = (statistics.fmean(y for x in curves for y in x[k] if y is not None) for k in ("kl", "clip_fraction"))
        print(f"| {name} | {' | '.join(cells)} | entropy {entropy:.2f}, KL {kl:.4f}, clipped {clip:.3f}")
    for m in ("dapo", *NAMES):
        print(m, [[round(area(runs[f"{m} {s}"]), 3), runs[f"{m} {s}"]["held_out"]] for s in seeds])


def sides(runs: dict[str, dict]) -> None:
    print("\n| run | in training | last batch | held out | - | 3 digits | bare | entropy | equal groups |")
    for name, x in runs.items():
        if name.rpartition(" ")[0] in ("dapo", *NAMES) and name != "dapo 1":
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

    With three seeds or more, the means and the 95 % interval of the paired difference; with fewer, every run.
    """
    curves = {m: [runs[f"{m} {s}"]["curve"]["accuracy"] for s in seeds] for m in ("dapo", *NAMES)}
    few = len(seeds) < 3
    drawn = {m: x if few else [mean_of(x)] for m, x in curves.items()}
    top = math.ceil(10 * max(y for x in drawn.values() for line in x for y in line)) / 10
    steps = len(drawn["dapo"][0])

    def line(heights: Sequence[float]) -> str:
        ends = [f"{i * WIDE / (steps - 1):.1f} {HIGH * (1 - y / top):.1f}" for i, y in enumerate(heights)]
        return "M" + "L".join(ends)

    def band(method: str) -> str:
        """DAPO's mean plus the ends of the interval, within the panel."""
        gaps = [[a - b for a, b in zip(*x, strict=True)] for x in zip(curves[method], curves["dapo"], strict=True)]
        ends = [bootstrap(x) if any(x) else (0.0, 0.0) for x in zip(*gaps, strict=True)]
        low, high = (
            [min(top, max(0.0, d + e[k])) for d, e in zip(drawn["dapo"][0], ends, strict=True)] for k in (0, 1)
        )
        return f'<path class="b" d="{line(high)}L{"L".join(reversed(line(low)[1:].split("L")))}Z"/>'

    panels = []
    for k, (method, name) in enumerate(NAMES.items()):
        x, y = LEFT + (k % 3) * (WIDE + 28), TOP + (k // 3) * (HIGH + 52)
        axis = f'<path class="a" d="M0 0V{HIGH}H{WIDE}"/><text class="x" x="0" y="{HIGH + 14}">1</text>'
        axis += f'<text class="x" x="{WIDE}" y="{HIGH + 14}">{steps}</text>'
        if k % 3 == 0:
            axis += f'<text class="y" x="-5" y="8">{top:.1f}</text><text class="y" x="-5" y="{HIGH}">0</text>'
        shapes = [f'<path class="g" d="{line(x)}"/>' for x in drawn["dapo"]]
        shapes += [f'<path class="r" d="{line(x)}"/>' for x in drawn[method]]
        text = f'<text class="n" x="4" y="-7">{name}</text>{axis}{"" if few else band(method)}{"".join(shapes)}'
        panels.append(f'<g transform="translate({x} {y})">{text}</g>')
    said = "one line a seed" if few else "with the 95 % interval of the paired difference"
    legend = (
        f'<path class="g" d="M{LEFT} 16h24"/><text x="{LEFT + 30}" y="20">DAPO</text><path class="r" d="M110 16h24"/>'
        f'<text x="140" y="20">the method, {said}; sampled accuracy by batch</text>'
    )
    width, height = LEFT + 3 * WIDE + 2 * 28 + 14, TOP + 3 * (HIGH + 52) - 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    title = "Sampled accuracy by batch: DAPO and nine other methods on a real model"
    style = f'role="img"><title>{title}</title><style>{STYLE}</style><path class="p" d="M0 0H{width}V{height}H0Z"/>'
    return "\n".join([head + style + legend, *panels]) + "</svg>\n"


def mean_of(lines: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(x) for x in zip(*lines, strict=True)]


if __name__ == "__main__":
    made, common = load()
    if common:
        methods(made, common)
        if sys.argv[1:]:
            Path(sys.argv[1]).write_text(picture(made, common), "utf-8")
    recipe(made)
    sides(made)
