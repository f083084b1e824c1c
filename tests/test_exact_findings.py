"""What docs/exact.md says was found: its sentences and its tables are made from the numbers of docs/exact*.json."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean, median
from types import ModuleType

import exact_checkpoints
import pytest

import tokenpo
from tokenpo.cli.options import objectives
from tokenpo.lab import gradients
from tokenpo.lab.exact import study
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.methods import METHODS
from tokenpo.methods.corrections import PRESETS

DOCS = Path(__file__).parents[1] / "docs"
sys.path.append(str(DOCS.parent / "studies" / "2026-11-23-exact-claims"))
import exact_claims  # noqa: E402

LEAST, FAR = 0.05, 2.0  # a twentieth of the possible gain; standard errors
NEAR = 0.01  # of the area under the reward
PERFECT = study.PERFECT
FIRST_LARGE = ("long_filler", "wide", "paraphrases")
ORACLE = "gigpo"  # is told the state that a token began in
RUN = [
    name
    for name in METHODS
    if not any(x.startswith("teacher") for x in tokenpo.method(name).needs)
    and not (tokenpo.method(name).coalitions or tokenpo.method(name).drafts)
]
COUNTED = [m for m in RUN if "value" not in tokenpo.method(m).needs]  # the worlds' value is exact, no critic's is


@functools.cache
def rows(axis: str = "") -> Mapping[str, study.Row]:
    return study.load(DOCS / f"exact{'_' * bool(axis)}{axis}.json")


def at(method: str, world: str, key: str, axis: str = "") -> float:
    return rows(axis)[method].cells[world].numbers[key].value


def clearly(method: str, world: str, key: str = "init/captured") -> float:
    """The value where it is beyond two standard errors, else 0."""
    x = rows()[method].cells[world].numbers[key]
    return x.value if abs(x.value) > FAR * x.error else 0.0


def over(method: str, key: str, less: str = "", axis: str = "") -> list[float]:
    """In each of the twelve worlds; `less` that of another method."""
    return [at(method, w, key, axis) - (at(less, w, key, axis) if less else 0.0) for w in WORLDS]


def alike(texts: Iterable[str]) -> str:
    """The text that all of them are."""
    (text,) = {*texts}
    return text


def stays(worlds: Mapping[str, object] = WORLDS) -> dict[str, dict[str, float]]:
    """The mean reward at which exact training ends below the goal, by method and world."""
    ends = {m: {w: at(m, w, "train/J") for w in worlds if at(m, w, "train/batches") == math.inf} for m in COUNTED}
    return {method: found for method, found in ends.items() if found}


def at_best_size() -> Iterator[str]:
    """Noisy training of every method that has it, each at its own best step size."""
    tried = [m for m in COUNTED if all("noisy/area" in rows()[m].cells[w].numbers for w in WORLDS)]
    lead = {m: over(m, "noisy/area", "dapo") for m in [*tried, PERFECT]}
    means = {m: mean(lead[m]) for m in lead}
    for method in (PERFECT, "cispo", "gtpo", "tepo", "grpo_s", "grpo", "hapo", "gspo", "tr_grpo"):
        name = method if " " in method else f"`{method}`"
        yield f"| {name} | {means[method]:+.3f} | {min(lead[method]):+.3f} to {max(lead[method]):+.3f} |"
    others = [m for m in tried if m != "dapo"]
    below = {m: means[m] for m in sorted(others, key=lambda m: means[m]) if means[m] < -NEAR}
    best = max(others, key=lambda m: means[m])
    assert means[best] <= NEAR
    assert mean(x for x in lead["tr_grpo"] if x > -0.5) > -NEAR
    yield f"{len(others) - len(below)} of {len(others)} methods lie within {NEAR:g} of DAPO in the mean"
    yield f"the best, `{best}`, is at {means[best]:+.3f}, and perfect credit at {means[PERFECT]:+.3f}"
    yield ", ".join(f"`{m}` ({x:.3f})" for m, x in below.items())


def one_method() -> Iterator[str]:
    def unbent(worlds: list[str]) -> int:
        policies = ("init", "late", "stuck")
        return sum(all(at(m, w, f"{p}/cosine") >= 0.99 for w in worlds for p in policies) for m in COUNTED)

    fixed = [w for w in WORLDS if w not in ("free_length", "lucky_guess")]
    others = [m for m in COUNTED if m != "dapo"]
    same = sum(all(abs(x) <= 0.002 for x in over(m, "init/useful", "dapo")) for m in others)
    yield f"Of {len(COUNTED)} methods {same} have DAPO's useful progress to 0.002 in every world"
    yield f"{unbent(list(WORLDS))} a cosine of 0.99 or more with the true gradient in all 36 cells"
    yield f"they are {unbent(fixed)} without the two worlds whose lengths differ"


def token_credit() -> Iterator[str]:
    shown = ("wandering_sure", "rare_right", "two_modes", "sparse_chain", "easy_and_hard")
    for method in (PERFECT, "gtpo", "tr_grpo", "hapo", "forking_tokens", "t_spmo", "thr"):
        cells = [round(at(method, w, "init/useful"), 3) + 0.0 for w in shown]
        name = method if " " in method else f"`{method}`"
        yield f"| {name} | {' | '.join(f'{x:.3f}' if x else '0' for x in cells)} |"
    assert {alike(f"{at(m, w, 'init/useful'):.3f}" for m in ("dapo", "grpo", "tepo")) for w in shown}
    most = {m: max(clearly(m, w) for w in WORLDS) for m in COUNTED}
    gains = {method: x for method, x in most.items() if x > LEAST}
    assert {m for m in gains if min(clearly(m, w) for w in WORLDS) > -LEAST} == {"luspo", "gdpo", "eb_cispo"}
    gets = {m: [at(m, w, "init/captured") for w in FIRST_LARGE] for m in COUNTED}
    none = sum(all(abs(x) <= 0.02 for x in found) for found in gets.values())
    yield f"{none} of the {len(COUNTED)} get or lose at most a fiftieth of it"


def fixed_points() -> Iterator[str]:
    found = stays()
    assert set(found) == {"hapo", "forking_tokens", "grpo_passk"}
    assert set(found["hapo"]) == {"sure_fork_filler", "wandering_sure", "rare_right", "two_modes", "free_length"}
    assert (len(found["forking_tokens"]), len(found["grpo_passk"])) == (8, 12)
    ends = found["forking_tokens"].values()
    yield f"HAPO in five of twelve worlds (J = {min(found['hapo'].values()):.2f} to {max(found['hapo'].values()):.2f})"
    yield f"forking tokens in eight ({min(ends):.2f} to {max(ends):.2f})"
    ends = found["grpo_passk"].values()
    yield f"`grpo_passk` in all ({min(ends):.2f} to {max(ends):.2f})"
    large = stays(dict.fromkeys(FIRST_LARGE))
    assert {m: len(ends) for m, ends in large.items()} == {
        "hapo": 1, "forking_tokens": 3, "t_spmo": 1, "thr": 1, "grpo_passk": 3
    }  # fmt: skip
    yield f"T-SPMO in `long_filler` ({large['t_spmo']['long_filler']:.2f})"
    arrives = [at(m, "sure_fork_filler", "train/batches", "network") for m in ("hapo", "dapo")]
    yield "HAPO arrives in `sure_fork_filler` after {:.0f} batches, DAPO after {:.0f}".format(*arrives)
    stuck = [at("forking_tokens", w, "train/J", "network") for w in ("sure_fork_filler", "rare_right")]
    yield "forking tokens stay at J = {:.2f} and {:.2f}".format(*stuck)


def drift() -> Iterator[str]:
    methods = ("dapo", PERFECT, "grpo", "gspo", "tepo", "cispo", "sapo")
    d, x, g, s, t, c, f = (f"{mean(over(m, 'drift/toward')):.2f}" for m in methods)
    yield (
        f"of {mean(over('dapo', 'init/useful')):.2f} on policy, `dapo` keeps {d} (exact credit under the same clip "
        f"{x}), `grpo` {g}, `gspo` {s}, `tepo` {t}, `cispo` {c} and `sapo` {f}"
    )
    ratios = [at("tepo", w, "train/batches") / at("grpo", w, "train/batches") for w in WORLDS]
    loose = [at("cispo", w, "train/batches") / at("grpo", w, "train/batches") for w in WORLDS]
    yield f"TEPO takes {median(ratios):.2f} of GRPO's batches to J = 0.9 in the median, CISPO {median(loose):.2f}"


def lengths() -> Iterator[str]:
    def ended(*methods: str) -> str:
        return alike(f"{at(m, 'free_length', 'train/length'):.1f}" for m in methods)

    def reasoned(*methods: str) -> str:
        return alike(f"{100 * at(m, 'lucky_guess', 'train/sound'):.0f} %" for m in methods)

    yield f"stays at {ended(PERFECT, 'dapo', 'tepo', 'dr_grpo')} tokens with DAPO, TEPO, Dr. GRPO and exact credit"
    yield f"falls to {ended('grpo')} with GRPO, {ended('grpo_s', 'gspo')} with GRPO-S and GSPO"
    yield f"{reasoned(PERFECT, 'dapo')} with DAPO and exact credit, {reasoned('grpo')} with GRPO and CISPO"
    assert reasoned("grpo") == reasoned("cispo") and reasoned("hapo", "forking_tokens") == "0 %"
    yield f"{reasoned('tepo')} with TEPO, {reasoned('sapo')} with SAPO, {reasoned('grpo_s')} with GRPO-S"


def positions() -> Iterator[str]:
    same = [w for w in WORLDS if abs(at("gtpo", w, "init/useful") - at("dapo", w, "init/useful")) < 5e-7]
    assert len(same) == 7
    rest = [at("gtpo", w, "init/useful") - at("dapo", w, "init/useful") for w in WORLDS if w not in same]
    yield f"DAPO's to six digits in seven worlds, and within {max(abs(x) for x in rest):.3f} of it in the others"
    inside = dict(zip(WORLDS, over("tr_grpo", "init/useful", "grpo"), strict=True))
    lower = [x for x in inside.values() if x < -0.04]
    assert len(lower) == 9
    yield f"{-max(lower):.2f} to {-min(lower):.2f} below GRPO's in nine worlds"
    outside = over("tr_grpo:weight_placement=advantage", "init/useful", "grpo")
    yield f"`weight_placement=advantage`) it lies between {min(outside):+.3f} and {max(outside):+.3f}"


def other_samplers() -> Iterator[str]:
    fixed, every = ("sure_fork_filler", "forks_between_sure", "easy_and_hard"), list(rows("sampler")["dapo"].cells)
    presets = ("tis", "seq_tis", "icepop", "seq_mis", "mis_k3", "mis_geo", "bypass", "bypass_pg_is")
    for method in ("grpo", *presets, "dppo_tv", "prime_rl", "rollout_is"):
        cells: list[float] = []
        for axis in ("sampler", "rounded"):
            cells.append(min(at(method, w, "init/cosine", axis) for w in fixed))
            cells += [mean(at(method, w, key, axis) for w in every) for key in ("init/useful", "noisy/area")]
        yield f"| `{method}` | {' | '.join(f'{x:.3f}' for x in cells)} |"


def sizes_of_groups() -> Iterator[str]:
    axes, fork, prompts = ("group4", "", "group16"), "sure_fork_filler", "easy_and_hard"
    for world in (fork, prompts):
        yield "{:.3f}, {:.3f} and {:.3f} in `{}`".format(*(at("dapo", world, "init/useful", a) for a in axes), world)


def composition() -> Iterator[str]:
    captured = {m: mean(over(m, "init/captured")) for m in COUNTED}
    assert max((m for m in COUNTED if m != ORACLE), key=lambda m: captured[m]) == "eb_cispo"
    lead = [mean(over(m, "noisy/area", "dapo")) for m in ("eb_cispo", "cispo")]
    yield "`eb_cispo` {:+.3f}, `cispo` alone {:+.3f}".format(*lead)


def checkpoints() -> Iterator[str]:
    """Beside the table of ρ, which is held to the numbers as a whole."""
    found = [gradients.load(DOCS / f"exact_step{step}.json") for step in (0, 10)]

    def after(method: str, which: int) -> str:
        return f"{found[which][1][method].numbers['after/useful'].value:.2f}"

    assert found[0][1].keys() == found[1][1].keys()
    for which, (about, _) in enumerate(found):
        yield f"from {about['reward']:.2f} to {about['after/reward']:.2f}"
        yield "DAPO {}, GRPO {}, CISPO {}, SAPO {}, TEPO {}".format(
            *(after(m, which) for m in ("dapo", "grpo", "cispo", "sapo", "tepo"))
        )


def papers_claims() -> Iterator[str]:
    """Which claims hold, or fail, in every world where their assumption is true, and what becomes of them elsewhere."""
    claims = exact_claims.judged()
    true, false = (
        {(c["method"], c["measure"], c.get("sampler", "")): exact_claims.verdicts(x, t) for c, x in claims}
        for t in ("true", "false")
    )

    def only(verdict: str) -> set[str]:
        return {method for (method, *_), found in true.items() if {*found} == {verdict}}

    assert only("holds") == {"cispo", "sapo", "dr_grpo", "hapo", "t_spmo"}
    assert {*false["hapo", "init/captured", ""], *false["t_spmo", "init/captured", ""]} == {"refuted"}
    assert only("refuted") == {"tr_grpo", "maxrl", "kl_cov"}
    assert {"tepo", "gtpo", "grpo_s"} <= only("smaller")
    faster = [x for (method, measure, sampler), found in true.items() for x in found
              if sampler and measure == "noisy/area" and method != "bypass"]  # fmt: skip
    assert {*faster} == {"holds", "undecided"}
    yield f"train faster in {faster.count('holds')} of {len(faster)} cases; the others are undecided"


def readme() -> Iterator[str]:
    """The area under the reward of noisy training, in the mean over the twelve worlds; and where progress stops."""
    lead = [mean(over(m, "noisy/area", "dapo")) for m in COUNTED if m != "dapo"]
    assert max(lead) < NEAR
    within = sum(abs(x) <= NEAR for x in lead)
    yield f"{within} of {len(lead)} other methods train as well as DAPO and none better by {NEAR:g}"
    for method in ("hapo", "forking_tokens"):
        assert all(abs(at(method, w, "init/useful")) < 0.01 for w in ("sure_fork_filler", "wandering_sure"))
    yield "an update of HAPO or forking tokens makes no progress where the policy is sure of a wrong token"


FINDINGS = (
    at_best_size, one_method, token_credit, fixed_points, drift, lengths, positions, other_samplers, sizes_of_groups,
    composition, checkpoints, papers_claims, readme,
)  # fmt: skip


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.__name__)
def test_stands_on_the_page(finding: Callable[[], Iterator[str]]) -> None:
    path = DOCS.parent / "README.md" if finding is readme else DOCS / "exact.md"
    page = " ".join(path.read_text(encoding="utf-8").split())
    assert [sentence for sentence in finding() if sentence not in page] == []


@pytest.mark.parametrize("made", (exact_checkpoints, exact_claims), ids=lambda made: made.__name__)
def test_its_tables_are_what_the_numbers_say(made: ModuleType) -> None:
    assert made.page() == made.PAGE.read_text(encoding="utf-8")


def test_every_method_was_run() -> None:
    """Those of the page of claims, of the methods' pages and of the picture, in the worlds that the page names."""
    assert [m for m in RUN if not {*WORLDS, *FIRST_LARGE} <= set(rows()[m].cells)] == []


def made(label: str) -> str:
    """The text of today's objective of a row."""
    if label in PRESETS:
        return str(tokenpo.corrected(tokenpo.method("grpo"), label))
    return str(objectives([study.BASE if label == study.PERFECT else label], "exact")[0].popitem()[1])


@pytest.mark.parametrize("file", sorted(DOCS.glob("exact*.json")), ids=lambda file: file.stem)
def test_rows_are_of_todays_objectives(file: Path) -> None:
    """A formula that changes makes its rows stale: run those again (the commands are in docs/exact.md)."""
    kept = json.loads(file.read_text(encoding="utf-8"))
    held = {label: row["objective"] for label, row in kept.get("methods", kept).items()}
    assert [label for label, text in held.items() if text != made(label)] == []
