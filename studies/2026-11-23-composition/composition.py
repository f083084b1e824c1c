"""Runs what composition.toml asks for and composition.json lacks, judges it, and writes its section of docs/composition.md.

python composition.py                      all that is missing, in exact worlds; goes on where it was interrupted
python composition.py --check              whether the section is current
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import tokenpo
from tokenpo.base.files import write_whole
from tokenpo.core.parts import TokenMean
from tokenpo.lab.estimate import Estimate, combined, mean_of
from tokenpo.lab.exact import measures, training
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.model import Table
from tokenpo.lab.exact.table import CATALOGUE
from tokenpo.lab.exact.worlds import LARGE, WORLDS

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "composition.md"
sys.path.insert(0, str(HERE.parents[1] / "tools" / "site"))

from composition_parts import CREDIT, SURROGATE, WEIGHT  # noqa: E402
from layout import write_section  # noqa: E402

KEYS = ("init/single", "init/useful", "drift/toward", "drift/random")
FAR = 2.0  # standard errors
Numbers = dict[str, dict[str, dict[str, Estimate]]]  # label, world, measure


def contestants(plan: Mapping) -> dict[str, Contestant]:
    """The references and the candidates by name."""
    made = {name: tokenpo.method(name) for name in (plan["against"], *plan["also"])}
    for name, parts in (plan["candidates"] | plan["after"]).items():
        made[name] = dataclasses.replace(
            tokenpo.method("dapo"), name=name, credit=CREDIT[parts["credit"]](parts.get("scale", "")),
            surrogate=SURROGATE[parts["surrogate"]], weights=WEIGHT[parts.get("weight", "")], aggregate=TokenMean(),
        )  # fmt: skip
    return {name: Contestant(name, objective) for name, objective in made.items()}


def measured(contestant: Contestant, world: str) -> dict[str, Estimate]:
    """The four measures in a world."""
    model = _model(world)
    seen = measures.observe(contestant, model, "init")
    return {
        "init/single": measures.single_cosine(seen),
        "init/useful": measures.useful(seen),
        **{f"drift/{way}": measures.drift(contestant, model, seen, way) for way in ("toward", "random")},
    }


_MODELS: dict[str, Table] = {}


def _model(world: str) -> Table:
    return _MODELS.setdefault(world, Table((WORLDS | LARGE)[world]()))


def run(plan: Mapping, found: Numbers, trained: dict[str, dict[str, list[float]]]) -> None:
    """Measures what is missing, and saves after each: all on the chosen half, then the one that was chosen by it."""
    entered = contestants(plan)

    def fill(labels: Iterable[str], worlds: Iterable[str]) -> None:
        for label, world in itertools.product(labels, worlds):
            if world not in found.setdefault(label, {}):
                found[label][world] = measured(entered[label], world)
                _save(found, trained)

    fill((name for name in entered if name not in plan["after"]), plan["chosen"])
    best = [name] if (name := winner(plan, found)) else []
    fill([plan["against"], *plan["also"], *best, *plan["after"]], plan["held_out"])
    for label, world in itertools.product([plan["against"], *best, *plan["after"]], plan["held_out"]):
        if world not in trained.setdefault(label, {}):
            trained[label][world] = [
                training.train(entered[label], _model(world), training.STEPS["middle"], even=False, seed=seed).area
                for seed in range(plan["training"]["seeds"])
            ]
            _save(found, trained)


def differences(found: Numbers, label: str, against: str, worlds: Iterable[str], key: str) -> dict[str, Estimate]:
    """A measure less that of the reference, on the same rollouts, by world."""
    return {w: combined(lambda x, y: x - y, found[label][w][key], found[against][w][key]) for w in worlds}


def over(estimates: Iterable[Estimate]) -> tuple[float, float]:
    """The mean over worlds, whose errors are independent, and its standard error."""
    held = list(estimates)
    return sum(x.value for x in held) / len(held), sum(x.error**2 for x in held) ** 0.5 / len(held)


def meets(rule: Mapping[str, float], by_world: Mapping[str, Estimate]) -> bool:
    """The mean reaches its margin, beyond chance where that is above 0, and no world lies below the worst."""
    mean, error = over(by_world.values())
    reached = mean >= rule["mean"] and (rule["mean"] <= 0 or mean > FAR * error)
    return reached and all(x.value + FAR * x.error >= rule["worst"] for x in by_world.values())


def eligible(plan: Mapping, found: Numbers, label: str) -> bool:
    """Whether a candidate meets the rule on the chosen half."""
    for key in KEYS:
        rule = plan["choose"] if key.startswith("init") else plan["holds"][key]
        if not meets(rule, differences(found, label, plan["against"], plan["chosen"], key)):
            return False
    return True


def winner(plan: Mapping, found: Numbers) -> str:
    """The eligible candidate with the highest sum of mean differences on the chosen half; "" where none is."""

    def score(label: str) -> float:
        return sum(over(differences(found, label, plan["against"], plan["chosen"], key).values())[0] for key in KEYS)

    return max((c for c in plan["candidates"] if eligible(plan, found, c)), key=score, default="")


def _save(found: Numbers, trained: Mapping) -> None:
    held = {
        label: {w: {k: [_short(x) for x in (e.value, *e.without)] for k, e in cell.items()} for w, cell in row.items()}
        for label, row in found.items()
    }
    lines = ",\n".join(f"{json.dumps(k)}:{json.dumps(row, separators=(',', ':'))}" for k, row in held.items())
    areas = {label: {w: [_short(x) for x in xs] for w, xs in row.items()} for label, row in trained.items()}
    write_whole(HERE / "composition.json", f'{{"found":{{\n{lines}\n}},\n"areas":{json.dumps(areas)}}}\n')


def _short(x: float) -> float:
    return float(f"{x:.7g}")


def load() -> tuple[Numbers, dict[str, dict[str, list[float]]]]:
    """What was measured and trained so far."""
    path = HERE / "composition.json"
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"found": {}, "areas": {}}
    return {
        label: {w: {k: Estimate(v[0], tuple(v[1:])) for k, v in cell.items()} for w, cell in row.items()}
        for label, row in held["found"].items()
    }, held["areas"]


def areas(plan: Mapping, trained: Mapping, label: str) -> tuple[Estimate, dict[str, Estimate]]:
    """The area under the reward in noisy training less that of the reference: the mean over worlds, and by world."""
    by_world = {
        world: mean_of([x - y for x, y in zip(trained[label][world], trained[plan["against"]][world], strict=True)])
        for world in plan["held_out"]
    }
    seeds = range(plan["training"]["seeds"])
    total = [
        sum(trained[label][w][k] - trained[plan["against"]][w][k] for w in by_world) / len(by_world) for k in seeds
    ]
    return mean_of(total), by_world


def page(plan: Mapping, found: Numbers, trained: Mapping) -> str:
    """The section of docs/composition.md."""
    best, against = winner(plan, found), plan["against"]
    parts = plan["candidates"][best]
    held = {key: differences(found, best, against, plan["held_out"], key) for key in KEYS}
    passed = {key: meets(plan["holds"][key], held[key]) for key in KEYS}
    area, by_world = areas(plan, trained, best)
    trains = area.value + FAR * area.error >= plan["training"]["mean"]
    verdict = "holds" if all(passed.values()) and trains else "does not hold"
    ours = {c: {k: differences(found, c, against, plan["chosen"], k) for k in KEYS} for c in plan["candidates"]}
    points = [over(x.values())[0] for x in ours[best].values()]
    after = {name: areas(plan, trained, name)[0] for name in plan["after"]}
    chosen = CHOSEN.format(best=best, score=sum(points), toward=points[2], **parts)
    return HEAD.format(against=against, verdict=verdict) + "\n".join([
        '<details markdown="1"><summary>The candidates, on the worlds to choose by</summary>', "", chosen,
        f"Difference from `{against}`: mean over nine worlds with its standard error, and the lowest of them.",
        "Eligible: it meets the rule's conditions there.", "",
        *table(["", *(CATALOGUE[k].title for k in KEYS), "eligible"], [
            [f"`{c}`", *(f"{_told(*over(x.values()))}, {_low(x)}" for x in row.values()),
             _yes(eligible(plan, found, c))] for c, row in ours.items()
        ]), "",
        "</details>", "", f'<details markdown="1"><summary>{best} on the worlds to judge by</summary>', "",
        f"Each cell: difference from `{against}`, whose value is in brackets.", "",
        *table(["", *(CATALOGUE[k].title for k in KEYS), "area, noisy training"], [
            *([f"`{w}`", *(f"{_told(held[k][w].value, held[k][w].error)} ({found[against][w][k].value:.3f})"
                           for k in KEYS), _told(by_world[w].value, by_world[w].error)] for w in plan["held_out"]),
            ["mean", *(_told(*over(held[k].values())) for k in KEYS), _told(area.value, area.error)],
            ["as asked", *(_yes(passed[k]) for k in KEYS), _yes(trains)],
        ]), "",
        "</details>", "", '<details markdown="1"><summary>Which part does what</summary>', "",
        "Looked at after the verdict, in the held-out worlds; nothing depends on it.", "",
        *table(["", "area, noisy training", CATALOGUE["init/single"].title], [
            [f"`{name}`", _told(x.value, x.error),
             _told(*over(differences(found, name, against, plan["held_out"], "init/single").values()))]
            for name, x in ({best: area} | after).items()
        ]), "", TAIL,
    ])  # fmt: skip


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _told(value: float, error: float) -> str:
    return f"{value:+.4f} ± {error:.4f}"


def _low(by_world: Mapping[str, Estimate]) -> str:
    return f"{min(x.value for x in by_world.values()):+.3f}"


def _yes(held: bool) -> str:
    return "yes" if held else "no"


HEAD = """Chosen among sixteen candidates on nine worlds, [`eb_cispo`](methods/eb_cispo.md) **{verdict}** on nine others: its updates
are a little better than those of `{against}`. At each method's best step size the two train alike. On the
[benchmark](bed.md) it learns less than DAPO on both tasks.

- **Not new.** Shrinkage baselines (2511.03710) and EBPO (2602.05165) shrink a prompt's mean towards that of others.
- **Weak.** Most of the worlds took part in the earlier search that the baseline came from. In the two of the new ones
  that judged, updates are better and training is not. After a drift the measure counts the length of a step, too, and a
  token at twice its probability pushes twice as hard. The area in noisy training is at one step size for all, which
  favours what moves the policy more.

"""
CHOSEN = """Chosen: `{best}`, with a score of {score:.3f}, of which {toward:.3f} is the update's worth after a drift. Its credit
"{credit}" is a baseline that leans on other prompts the more, the less its own group says; its surrogate "{surrogate}" is
CISPO's with a cap of 3. The method `eb_cispo` is `{best}`; the candidate of that name has CISPO's own cap. No candidate
samples more than the others. `many_prompts`, `hard_prompts` and `long_paraphrases` are new to the baseline.
"""
TAIL = """`group_open` has DAPO's credit under the wide cap, `eb_cispo_again` the baseline under CISPO's own. In training cap
and baseline are worth about as much as each other.

</details>"""

if __name__ == "__main__":
    plan = tomllib.loads((HERE / "composition.toml").read_text(encoding="utf-8"))
    found, trained = load()
    if "--check" not in sys.argv:
        run(plan, found, trained)
    sys.exit(write_section(PAGE, "composition", page(plan, found, trained)))
