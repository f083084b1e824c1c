"""What docs/exact.md says was found: these sentences are made from the numbers of docs/exact.json and stand there."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean, median

import pytest

import tokenpo
from tokenpo.cli.options import objectives
from tokenpo.lab import gradients
from tokenpo.lab.exact import study
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.methods import METHODS
from tokenpo.methods.corrections import PRESETS

DOCS = Path(__file__).parents[1] / "docs"
sys.path.append(str(DOCS.parent / "tools" / "site"))
from exact_checkpoints import interval, spearman  # noqa: E402  # pyright: ignore[reportMissingImports]

LEAST, FAR = 0.05, 2.0  # a twentieth of the possible gain; standard errors
FIRST_LARGE = ("long_filler", "wide", "paraphrases")
OUTSIDE = "tr_grpo:weight_placement=advantage"
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
    """The mean reward at which exact training with middle steps ends below the goal, by method and world."""
    ends = {m: {w: at(m, w, "middle/J") for w in worlds if at(m, w, "middle/batches") == math.inf} for m in COUNTED}
    return {method: found for method, found in ends.items() if found}


def same_method() -> Iterator[str]:
    def unbent(worlds: list[str]) -> int:
        policies = ("init", "late", "stuck")
        return sum(all(at(m, w, f"{p}/cosine") >= 0.99 for w in worlds for p in policies) for m in COUNTED)

    fixed = [w for w in WORLDS if w not in ("free_length", "lucky_guess")]
    others = [m for m in COUNTED if m != "dapo"]
    alike = sum(all(abs(x) <= 0.002 for x in over(m, "init/useful", "dapo")) for m in others)
    yield (
        f"{unbent(list(WORLDS))} of the {len(COUNTED)} have a cosine of 0.99 or more with the true gradient in all 36 "
        f"cells (twelve worlds, three policies), and {alike} have DAPO's useful progress to 0.002 in every world."
    )
    yield f"there are {unbent(fixed)} without `free_length` and `lucky_guess`, whose lengths differ"


def token_credit() -> Iterator[str]:
    shown = ("wandering_sure", "rare_right", "two_modes", "sparse_chain", "easy_and_hard")
    for method in ("exact credit", "gtpo", "tr_grpo", "hapo", "forking_tokens", "t_spmo"):
        cells = [round(at(method, w, "init/useful"), 3) + 0.0 for w in shown]
        name = method if " " in method else f"`{method}`"
        yield f"| {name} | {' | '.join(f'{x:.3f}' if x else '0' for x in cells)} |"
    most = {m: max(clearly(m, w) for w in WORLDS) for m in COUNTED}
    gains = {method: x for method, x in most.items() if x > LEAST}
    spared = {m for m in gains if min(clearly(m, w) for w in WORLDS) > -LEAST}
    assert spared == {"luspo", "gdpo", "eb_cispo"}
    yield f"but for `luspo` ({gains['luspo']:.2f} in `free_length`), `gdpo`, whose gain is one of scale"
    behind = sum(clearly("t_spmo", w) < 0 for w in WORLDS)
    assert behind == 8
    yield "falls below DAPO in eight of the twelve worlds"
    sure = [at(m, w, "init/captured") for m in ("hapo", "forking_tokens") for w in ("fork_sure_filler", "rare_filler")]
    yield f"get {100 * min(sure):.0f} to {100 * max(sure):.0f} % of the possible gain where decisions are uncertain"


def training() -> Iterator[str]:
    def ahead(method: str, worlds: Iterable[str] = WORLDS) -> dict[str, float]:
        return {w: at(method, w, "noisy/area") - at("dapo", w, "noisy/area") for w in worlds}

    def told(world: str) -> bool:
        errors = (rows()[m].cells[world].numbers["noisy/area"].error for m in (exact, "dapo"))
        return abs(lead[world]) > FAR * math.hypot(*errors)

    exact = "exact credit"
    lead = ahead(exact)
    assert [w for w in WORLDS if told(w)] == ["wandering_sure", "sparse_chain", "forks_between_sure"]
    means = [mean(x.values()) for x in (lead, ahead("cispo"))]
    yield "{:.3f} above DAPO's in the mean over the twelve worlds (CISPO's {:.3f})".format(*means)
    yield "`sparse_chain` and `wandering_sure` ({:+.3f}, {:+.3f}) and below it in `forks_between_sure` ({:.3f})".format(
        *(lead[w] for w in ("sparse_chain", "wandering_sure", "forks_between_sure"))
    )
    pace = [at(exact, w, "middle/batches") / at("dapo", w, "middle/batches") for w in WORLDS]
    yield f"exact training takes {min(pace):.2f} to {max(pace):.2f} of DAPO's batches"
    yield "the area is {:.3f}, {:.3f} and {:.3f} above".format(*ahead(exact, FIRST_LARGE).values())


def large_worlds() -> Iterator[str]:
    gets = {m: [at(m, w, "init/captured") for w in FIRST_LARGE] for m in COUNTED}
    for method, found in gets.items():
        if max(abs(x) for x in found) > 0.1:
            yield f"| `{method}` | {' | '.join(f'{x:.2f}' for x in found)} |"
    none = sum(all(abs(x) <= 0.02 for x in found) for found in gets.values())
    yield f"{none} of the {len(COUNTED)} methods get or lose at most 0.02"
    spans = [[at(m, w, "init/useful") for m in ("dapo", "exact credit")] for w in FIRST_LARGE]
    first, second, third = (f"{low:.3f} to {high:.3f}" for low, high in spans)
    yield f"which is larger (from {first}, {second} and {third})"


def looser_clip() -> Iterator[str]:
    for method in ("tepo", "cispo", "sapo"):
        cells: list[str] = []
        for size in ("small", "middle", "large"):
            ratios = [at(method, w, f"{size}/batches") / at("grpo", w, f"{size}/batches") for w in WORLDS]
            cells.append(f"{min(ratios):.2f}, {median(ratios):.2f}, {max(ratios):.2f}")
        yield f"| `{method}` | {' | '.join(cells)} |"
    kept = over("tepo", "middle/entropy", "tepo_v1")
    yield f"leaves between {min(kept):.3f} and +{max(kept):.3f} nats a token more at J = 0.9"


def fixed_points() -> Iterator[str]:
    found = stays()
    assert set(found) == {"hapo", "forking_tokens", "grpo_passk"}
    assert set(found["hapo"]) == {"sure_fork_filler", "wandering_sure", "rare_right", "two_modes", "free_length"}
    yield (
        f"`two_modes` ends at {found['hapo']['two_modes']:.2f} and `free_length` at "
        f"{found['hapo']['free_length']:.2f}, because the decision becomes the surest token on the way"
    )
    ends = found["forking_tokens"].values()
    assert len(ends) == 8
    yield f"Forking tokens freeze in eight worlds ({min(ends):.2f} to {max(ends):.2f})"
    ends = found["grpo_passk"].values()
    assert len(ends) == 12
    yield f"`grpo_passk` ends between {min(ends):.2f} and {max(ends):.2f} in all twelve"
    found = stays(dict.fromkeys(FIRST_LARGE))
    times = {method: len(ends) for method, ends in found.items()}
    assert times == {"hapo": 1, "forking_tokens": 3, "t_spmo": 1, "thr": 1, "grpo_passk": 3}
    yield f"share a prefix for long, training ends at {found['t_spmo']['long_filler']:.2f}"
    (hapo,), (long, wide, said) = found["hapo"].values(), found["forking_tokens"].values()
    yield f"HAPO ends there at {hapo:.2f}, forking tokens at {long:.2f}"
    yield f"({wide:.2f} in `wide`, {said:.2f} in `paraphrases`)"
    ends = found["grpo_passk"].values()
    yield f"`grpo_passk` at {min(ends):.2f} to {max(ends):.2f} in all three."
    yield f"THR is at {found['thr']['long_filler']:.2f} after 160 batches"


def drift() -> Iterator[str]:
    methods = ("dapo", "exact credit", "grpo", "gspo", "tepo", "cispo", "sapo")
    d, x, g, s, t, c, f = (f"{mean(over(m, 'drift/toward')):.2f}" for m in methods)
    yield (
        f"in the mean over worlds ({mean(over('dapo', 'init/useful')):.3f} on policy): `dapo` {d}, exact credit with "
        f"DAPO's clip {x}, `grpo` {g}, `gspo` {s}, `tepo` {t}, `cispo` {c}, `sapo` {f}."
    )


def positions() -> Iterator[str]:
    same = [w for w in WORLDS if abs(at("gtpo", w, "init/useful") - at("dapo", w, "init/useful")) < 5e-7]
    words = {6: "six", 7: "seven", 8: "eight"}
    yield f"useful progress is DAPO's to six digits in {words[len(same)]} worlds."
    rest = [100 * at("gtpo", w, "init/captured") for w in WORLDS if w not in same]
    yield f"it gets {min(rest):.0f} to +{max(rest):.0f} % of the possible gain."
    inside = dict(zip(WORLDS, over("tr_grpo", "init/useful", "grpo"), strict=True))
    assert sum(x < -0.04 for x in inside.values()) == 9
    for world in ("sparse_chain", "forks_between_sure"):
        yield "{:.3f} for {:.3f} in `{}`".format(*(at(m, world, "init/useful") for m in ("tr_grpo", "grpo")), world)
    more = {w: x for w, x in inside.items() if x > 0}
    assert [*more] == ["sure_fork_filler", "wandering_sure", "rare_right"]
    yield f"and at most {max(more.values()):.3f} above in three"
    pace = [at("tr_grpo", w, "middle/batches") / at("grpo", w, "middle/batches") for w in WORLDS]
    yield f"Exact training takes {min(pace):.2f} to {max(pace):.2f} of GRPO's batches"
    more_entropy = [w for w, x in zip(WORLDS, over("tr_grpo", "middle/entropy", "grpo"), strict=True) if x > 0]
    assert len(more_entropy) == 10
    yield "{:.3f} nats for {:.3f} in `two_modes`".format(
        *(at(m, "two_modes", "middle/entropy") for m in ("tr_grpo", "grpo"))
    )
    outside = dict(zip(WORLDS, over(OUTSIDE, "init/useful", "grpo"), strict=True))
    true, false = outside.pop("rare_filler"), outside.pop("rare_right")
    yield f"it gains {true:.3f} where"
    yield f"(`rare_filler`), {false:.3f} where it is false (`rare_right`), and"
    yield f"between {min(outside.values()):.3f} and +{max(outside.values()):.3f} elsewhere"
    ratios = [at(m, "rare_filler", "init/snr") for m in (OUTSIDE, "grpo")]
    yield "in `rare_filler` is {:.1f} for GRPO's {:.1f}.".format(*ratios)


def lengths() -> Iterator[str]:
    def ended(*methods: str) -> str:
        return alike(f"{at(m, 'free_length', 'middle/length'):.1f}" for m in methods)

    yield f"is {ended('exact credit', 'dapo', 'tepo', 'dr_grpo')} tokens with exact credit, DAPO, TEPO and Dr. GRPO"
    yield f"and {ended('grpo')} with GRPO, {ended('grpo_s', 'gspo')} with GRPO-S and GSPO."


def sound_answers() -> Iterator[str]:
    def reasoned(*methods: str) -> str:
        return alike(f"{100 * at(m, 'lucky_guess', 'middle/sound'):.0f} %" for m in methods)

    yield f"it earns {reasoned('exact credit', 'dapo')} with exact credit and DAPO, {reasoned('grpo')} with GRPO"
    yield f"{reasoned('tepo')} with TEPO, {reasoned('grpo_s')} with GRPO-S and nothing with HAPO and forking tokens"
    assert reasoned("hapo", "forking_tokens") == "0 %"
    yield f"cost as much: {reasoned('cispo')} with CISPO, {reasoned('sapo')} with SAPO."


def shared_parameters() -> Iterator[str]:
    def gets(axis: str) -> list[float]:
        return [at(m, w, "init/captured", axis) for w in ("rare_filler", "rare_right") for m in argue]

    argue = ("tr_grpo", "adv_reweight")
    inside, table = gets("network"), gets("")
    yield "get {:.2f} and {:.2f} of the possible gain in `rare_filler` and {:.2f} and {:.2f} in `rare_right`".format(
        *inside
    )
    yield "as in a table ({:.2f}, {:.2f}, {:.2f}, {:.2f})".format(*table)
    arrives = [at(m, "sure_fork_filler", "middle/batches", "network") for m in ("hapo", "dapo")]
    yield "HAPO arrives in `sure_fork_filler` after {:.0f} batches (DAPO {:.1f})".format(*arrives)
    stuck = [at("forking_tokens", w, "middle/J", "network") for w in ("sure_fork_filler", "rare_right")]
    yield "stay at J = {:.2f} and {:.2f} there".format(*stuck)
    every = rows("network")["lopti"].cells
    pace = [at("lopti", w, "middle/batches", "network") / at("dapo", w, "middle/batches", "network") for w in every]
    yield f"arrive in {min(pace):.2f} to {max(pace):.2f} of DAPO's batches"


def scale() -> Iterator[str]:
    direction = max(abs(x) for x in over("gdpo", "init/single", "dapo"))
    assert direction < 5e-4
    gain = over("gdpo", "init/useful", "dapo")
    assert min(gain) > 0
    yield f"in all twelve (+{min(gain):.3f} to +{max(gain):.3f}), with DAPO's single-batch cosine to 0.0005."
    gpg = at("gpg", "forks_between_sure", "init/captured")
    yield f"`gpg` gets {gpg:.2f} of the possible gain in `forks_between_sure`, but its single-batch cosine is DAPO's"
    direction = sorted(over("reinforce_pp", "init/single", "dapo"))
    yield f"+{direction[1]:.3f} to +{direction[-1]:.3f} of single-batch cosine, where there is one prompt"
    yield f"and loses {-direction[0]:.3f} in `easy_and_hard`"


def noisy_training() -> Iterator[str]:
    guesses: tuple[tuple[str, Callable[[str, str], float]], ...] = (
        ("", lambda m, w: -min(at(m, w, "middle/batches"), 1e9)),
        ("; with useful progress times progress after a drift toward the gradient",
         lambda m, w: at(m, w, "init/useful") * at(m, w, "drift/toward")),
        ("; with useful progress alone", lambda m, w: at(m, w, "init/useful")),
    )  # fmt: skip
    told = "batches of exact training"
    for name, guess in guesses:
        found = [spearman([guess(m, w) for m in COUNTED], [at(m, w, "noisy/area") for m in COUNTED]) for w in WORLDS]
        told += f"{name}: {min(found):.2f} to {max(found):.2f}"
    yield told + " (lowest and highest world)"


def other_samplers() -> Iterator[str]:
    fixed, every = ("sure_fork_filler", "forks_between_sure", "easy_and_hard"), list(rows("sampler")["dapo"].cells)
    presets = ("tis", "seq_tis", "icepop", "seq_mis", "mis_k3", "mis_geo", "bypass", "bypass_pg_is")
    for method in ("grpo", *presets, "dppo_tv", "prime_rl", "rollout_is"):
        cells: list[float] = []
        for axis in ("sampler", "rounded"):
            cells.append(min(at(method, w, "init/cosine", axis) for w in fixed))
            cells += [mean(at(method, w, key, axis) for w in every) for key in ("init/useful", "noisy/area")]
        yield f"| `{method}` | {' | '.join(f'{x:.3f}' for x in cells)} |"
    bent = (min(at("grpo", w, "init/cosine", axis) for w in fixed) for axis in ("sampler", "rounded"))
    yield "cosine {:.3f} or more under the hot sampler, {:.3f} under the rounded one".format(*bent)
    mended = [at(m, "forks_between_sure", "init/cosine", "rounded") for m in ("tis", "icepop")]
    assert mended[0] == mended[1]
    yield f"where the cap of 2 binds on rounded logits ({mended[0]:.3f})"
    took = [at(m, "forks_between_sure", "middle/batches", "sampler") for m in ("bypass", "rollout_is", "grpo")]
    yield "{:.1f} and {:.1f} batches to J = 0.9 in `forks_between_sure` under the hot sampler, {:.1f} with".format(
        *took
    )
    still = [w for w in every if all(at("mis_geo", w, "middle/batches", a) == math.inf for a in ("sampler", "rounded"))]
    assert still == ["free_length", "forks_between_sure", "easy_and_hard"]


def adam() -> Iterator[str]:
    worlds = ("fork_sure_filler", "two_modes", "sparse_chain", "forks_between_sure")
    d, c, e = (
        ", ".join(f"{at(m, w, 'noisy/area', 'adam'):.3f}" for w in worlds) for m in ("dapo", "cispo", "eb_cispo")
    )
    yield f"DAPO's area is {d} in the four worlds, CISPO's {c}, that of `eb_cispo` {e}."


def sizes_of_groups() -> Iterator[str]:
    axes, fork, prompts = ("group4", "", "group16"), "sure_fork_filler", "easy_and_hard"
    useful = [f"{at('dapo', fork, 'init/useful', axis):.3f}" for axis in axes]
    yield f"({', '.join(useful)} in `{fork}`;"
    baseline = [[f"{at('eb_cispo', w, 'init/captured', axis):.2f}" for axis in axes] for w in (fork, prompts)]
    yield "{}, {} and {} of the possible gain with 16 groups of 4, 8 of 8 and 4 of 16".format(*baseline[0])
    yield "{}, {} and {} in `easy_and_hard`, where four prompts".format(*baseline[1])
    siblings = [f"{at('t_spmo', fork, 'init/captured', axis):.2f}" for axis in axes]
    yield "gets {}, {} and {} of the possible gain in `sure_fork_filler`".format(*siblings)


def composition() -> Iterator[str]:
    area = {m: mean(over(m, "noisy/area")) for m in COUNTED}
    first, second, third = sorted(area, key=lambda m: -area[m])[:3]
    assert (first, second) == ("eb_cispo", "sapo") and area[third] < 0.8945
    told = f"{area[first]:.3f}; `sapo` {area['sapo']:.3f}, `cispo` {area['cispo']:.3f}"
    yield f"largest area in the mean over the twelve worlds ({told})"
    captured = {m: mean(over(m, "init/captured")) for m in COUNTED}
    assert max((m for m in COUNTED if m != ORACLE), key=lambda m: captured[m]) == "eb_cispo"
    yield f"captures {captured['eb_cispo']:.2f} of the possible gain in the mean"


def two_checkpoints() -> Iterator[str]:
    """The first column of docs/exact_checkpoints.md."""
    found = [gradients.load(DOCS / f"exact_step{step}.json") for step in (0, 10)]

    def first(method: str, key: str = "after/useful", which: int = 0) -> float:
        return found[which][1][method].numbers[key].value

    second = functools.partial(first, which=1)
    alike = [sum(abs(held[m].numbers["against"].value) <= 0.002 for m in held if m != "dapo") for _, held in found]
    assert found[0][1].keys() == found[1][1].keys()
    yield f"quickstart and after the tenth: {len(found[0][1])} methods."
    yield (
        f"{alike[0]} and {alike[1]} have DAPO's useful progress to 0.002, which is {first('dapo', 'useful'):.2f} and "
        f"{second('dapo', 'useful'):.2f}"
    )
    hmpo = found[0][1]["hmpo"].numbers["useful"]
    yield f"({hmpo.value:.2f} ± {hmpo.error:.2f})"
    for about, _ in found:
        yield f"from {about['reward']:.2f} to {about['after/reward']:.2f}"
    cosines = [first(m, "after/cosine") for m in ("dapo", "grpo")]
    yield f"({first('dapo'):.2f}, {first('grpo'):.2f}; cosine {cosines[0]:.2f}, {cosines[1]:.2f})"
    loose = ("cispo", "sapo", "tepo")
    cosines = [first(m, "after/cosine") for m in loose]
    yield f"({', '.join(f'{first(m):.2f}' for m in loose)}; cosine {min(cosines):.2f} to {max(cosines):.2f})"
    yield (
        f"DAPO {second('dapo'):.2f}, GRPO {second('grpo'):.2f}, CISPO {second('cispo'):.2f}, SAPO {second('sapo'):.2f}"
    )
    yield f"TEPO's update is at {second('tepo'):.2f}, GMPO's at {second('gmpo'):.2f} at the second"
    away = [mean(over(m, "drift/away")) for m in ("dapo", "cispo")]
    yield f"(DAPO {away[0]:.3f}, CISPO {away[1]:.3f})"
    for (_, held), here, there in (
        (found[0], "useful", "init/useful"), (found[1], "useful", "init/useful"),
        (found[0], "after/useful", "drift/toward"), (found[1], "after/useful", "drift/away"),
        (found[1], "after/useful", "drift/toward"),
    ):  # fmt: skip
        pairs = [(held[m].numbers[here].value, mean(over(m, there))) for m in held if m in rows()]
        rho, low, high = interval(*zip(*pairs, strict=True))
        yield f"{rho:.2f} ({low:.2f} to {high:.2f})"


@pytest.fixture(scope="module")
def page() -> str:
    return " ".join((DOCS / "exact.md").read_text(encoding="utf-8").split())


FINDINGS = (
    same_method, token_credit, training, large_worlds, looser_clip, fixed_points, drift, positions, lengths,
    sound_answers, shared_parameters, scale, noisy_training, other_samplers, adam, sizes_of_groups, composition,
    two_checkpoints,
)  # fmt: skip


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.__name__)
def test_stands_on_the_page(finding: Callable[[], Iterator[str]], page: str) -> None:
    assert [sentence for sentence in finding() if sentence not in page] == []


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
