"""Runs what continuations.toml asks for and its .json lacks, judges it, and writes a section of docs/composition.md.

python continuations.py                    all that is missing, in exact worlds; goes on where it was interrupted
python continuations.py --check            whether the section is current
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import tokenpo
from tokenpo.base.files import write_whole
from tokenpo.core.parts import Continuations, EqualEntropy, SegmentGain
from tokenpo.core.seeds import keyed_generator
from tokenpo.lab.estimate import Estimate, combined
from tokenpo.lab.exact import measures
from tokenpo.lab.exact.contestant import Contestant, continued
from tokenpo.lab.exact.model import Table
from tokenpo.lab.exact.sampling import rollouts, walk
from tokenpo.lab.exact.worlds import LARGE, WORLDS

HERE = Path(__file__).resolve().parent
HALVES = HERE.parent / "2026-11-23-composition"
sys.path.insert(0, str(HALVES))
PAGE, NUMBERS = HERE.parents[1] / "docs" / "composition.md", HERE / "continuations.json"

from composition import FAR, over, table, write_section  # noqa: E402

GROUPS, SIZE, BATCHES = 8, 8, 64  # of an update; updates of which tokens are counted
Found = dict[str, dict[str, tuple[float, Estimate]]]  # label, world: c and useful progress


def contestants(plan: Mapping) -> dict[str, Contestant]:
    """The references and the candidates by name."""
    made = {name: tokenpo.method(name) for name in (plan["against"], *plan["also"])}
    for label, options in plan["methods"].items():
        name = options["method"]
        made[label] = tokenpo.method(name, **{key: value for key, value in options.items() if key != "method"})
    for label, asked in plan["plans"].items():
        free = not asked.get("plain", False)
        by = Continuations(
            EqualEntropy(asked["cuts"]), asked["count"], mixed=True, start=True, own=free, lean=1.0 if free else 0.0
        )
        made[label] = dataclasses.replace(tokenpo.method("dapo"), name=label, credit=SegmentGain(by))
    return {label: Contestant(label, objective) for label, objective in made.items()}


def measured(contestant: Contestant, name: str) -> tuple[float, Estimate]:
    """How many times the tokens of its responses a method samples, and its useful progress."""
    world = (WORLDS | LARGE)[name]()
    seen = measures.observe(contestant, Table(world), "init")
    return cost(contestant, name), measures.useful(seen)


def cost(contestant: Contestant, name: str) -> float:
    """c, over `BATCHES` updates."""
    by, world = contestant.objective.continuations, (WORLDS | LARGE)[name]()
    if by is None:
        return 1.0
    more = own = 0
    for batch in range(BATCHES):
        walked = walk(world, world.initial, GROUPS, SIZE, keyed_generator(batch, f"continuations/{name}"), even=False)
        facts = rollouts(world, walked, world.initial, contestant.objective.needs)
        more += continued(world, walked, world.initial, facts, by).tokens
        own += int(walked.mask.sum())
    return 1 + more / own


def at_tokens(c: float, u: float) -> float:
    """Useful progress of an unbiased method at c times as many groups."""
    x = u**2 / (1 - u**2)
    return (c * x / (1 + c * x)) ** 0.5


def lead(found: Found, label: str, against: str, world: str, *, tokens: bool = True) -> Estimate:
    """Useful progress less that of the reference with as many sampled tokens, or else responses."""
    c, own = found[label][world]
    return combined(lambda x, y: x - at_tokens(c if tokens else 1.0, y), own, found[against][world][1])


def best(plan: Mapping, found: Found, chosen: list[str]) -> str:
    """The candidate with the highest mean lead on the chosen half."""
    candidates = [*plan["methods"], *plan["plans"]]
    return max(candidates, key=lambda c: over(lead(found, c, plan["against"], w) for w in chosen)[0])


def pays(plan: Mapping, leads: Mapping[str, Estimate]) -> bool:
    mean, error = over(leads.values())
    rule = plan["pays"]
    lowest = all(x.value + FAR * x.error >= rule["worst"] for x in leads.values())
    return mean >= rule["mean"] and mean > FAR * error and lowest


def run(plan: Mapping, chosen: list[str], held_out: list[str], found: Found) -> None:
    """Measures what is missing, and saves after each: all on the chosen half, then the one that was chosen by it."""
    entered = contestants(plan)
    references = [plan["against"], *plan["also"]]

    def fill(labels: list[str], worlds: list[str]) -> None:
        for label, world in itertools.product(labels, worlds):
            if world not in found.setdefault(label, {}):
                found[label][world] = measured(entered[label], world)
                save(found)

    fill(list(entered), chosen)
    fill([*references, best(plan, found, chosen)], held_out)


def save(found: Found) -> None:
    rows = {k: {w: [c, u.value, *u.without] for w, (c, u) in row.items()} for k, row in found.items()}
    short = {k: {w: [float(f"{x:.7g}") for x in xs] for w, xs in row.items()} for k, row in rows.items()}
    write_whole(NUMBERS, "{\n" + ",\n".join(f"{json.dumps(k)}:{json.dumps(r)}" for k, r in short.items()) + "\n}\n")


def load() -> Found:
    held = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    return {k: {w: (x[0], Estimate(x[1], tuple(x[2:]))) for w, x in row.items()} for k, row in held.items()}


def page(plan: Mapping, chosen: list[str], held_out: list[str], found: Found) -> str:
    """The section of docs/composition.md."""
    against = plan["against"]
    name = best(plan, found, chosen)
    leads = {c: {w: lead(found, c, against, w) for w in chosen} for c in (*plan["methods"], *plan["plans"])}
    held = {w: lead(found, name, against, w) for w in held_out}
    beside = {other: {w: lead(found, name, other, w) for w in held_out} for other in plan["also"]}
    mean, error = over(held.values())
    return HEAD.format(best=name, verdict="pays" if pays(plan, held) else "does not pay") + "\n".join([
        '<details markdown="1"><summary>On the worlds to choose by</summary>', "",
        PLANS.format(best=name),
        "c: sampled tokens, in multiples of those of the responses. Lead: useful progress less that of "
        f"`{against}`, in the",
        "mean over nine worlds; with as many sampled tokens also the lowest and the highest.", "",
        *table(["", "c", "lead, same responses", "lead, same tokens", "lowest", "highest"], [
            [f"`{c}`", " to ".join(f"{pick(found[c][w][0] for w in chosen):.2f}" for pick in (min, max)),
             _told(*over(lead(found, c, against, w, tokens=False) for w in chosen)), _told(*over(by_world.values())),
             *(_extreme(by_world, pick) for pick in (min, max))]
            for c, by_world in leads.items()
        ]), "",
        "</details>", "", f'<details markdown="1"><summary>{name} on the worlds to judge by</summary>', "",
        *table(["", "c", f"`{against}`, same responses", "lead, same tokens",
                *(f"over `{other}`" for other in plan["also"])], [
            *([f"`{w}`", f"{found[name][w][0]:.2f}", f"{found[against][w][1].value:.3f}", _told(x.value, x.error),
               *(_told(beside[other][w].value, beside[other][w].error) for other in plan["also"])]
              for w, x in held.items()),
            ["mean", "", "", _told(mean, error), *(_told(*over(beside[other].values())) for other in plan["also"])],
        ]), "", TAIL,
    ])  # fmt: skip


def _told(value: float, error: float) -> str:
    return f"{value:+.4f} ± {error:.4f}"


def _extreme(by_world: Mapping[str, Estimate], pick: Callable) -> str:
    world = pick(by_world, key=lambda w: by_world[w].value)
    return f"{by_world[world].value:+.3f} `{world}`"


HEAD = """[VinePPO](methods/vineppo.md) and [SPO](methods/spo.md) sample continuations from the middle of a response to learn what
its parts are worth. With as many responses their update makes more progress than DAPO's; with as many sampled tokens it
makes less in all nine worlds, because DAPO then sees more responses. The best of eight thriftier plans of ours, `{best}`,
**{verdict}** either: it leads in five of the worlds to judge by and loses in four. So it is no method of the table.

- **Weak.** Both papers judge by updates and wall-clock time, where sampling is the cheaper part. DAPO with as many tokens
  was computed, not run. Training on the continuations too was not tried.

"""
PLANS = """`{best}` makes one cut where half of the response's entropy lies before it, and one continuation, only in groups whose
rewards differ. The response is itself one more continuation from each of its cuts, and what a segment is counted from
leans on the mean of the group's others. Both cost nothing and leave the update unbiased; without them (`half_1_plain`)
the same samples lose 0.032 in place of 0.002.

From DAPO's useful progress u follows that with c times as many groups, √(cx / (1 + cx)) with x = u² / (1 − u²); a test
compares the formula with a run.
"""
TAIL = """</details>

<details markdown="1"><summary>The parts of half_1, for a run of yours</summary>

```python
import dataclasses

import tokenpo
from tokenpo.core.parts import Continuations, EqualEntropy, SegmentGain


def half_1():
    by = Continuations(EqualEntropy(1), 1, mixed=True, start=True, own=True, lean=1.0)
    return dataclasses.replace(tokenpo.method("dapo"), name="half_1", credit=SegmentGain(by))


assert half_1().needs == {"gain", "old_entropy"}
```

</details>"""

if __name__ == "__main__":
    plan, halves = (
        tomllib.loads(file.read_text(encoding="utf-8"))
        for file in (HERE / "continuations.toml", HALVES / "composition.toml")
    )
    found = load()
    asked = plan, halves["chosen"], halves["held_out"], found
    if "--check" not in sys.argv:
        run(*asked)
    sys.exit(write_section(PAGE, "continuations", page(*asked)))
