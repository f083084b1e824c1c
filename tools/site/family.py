"""Tables and picture of the whole family: what each method changes relative to GRPO, and how hard it pushes a token."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape

import torch
from fingerprint.curves import EQUAL, distance, gap
from fingerprint.drawing import HEIGHT, LEFT, WIDTH, Panel, panel_svg, panels, svg
from layout import code, method_link, table

from tokenpo.core.objective import Objective
from tokenpo.core.parts import Part, walk
from tokenpo.methods import METHODS

BASE = "grpo"
METHODS_PER_ROW, HEAD = 2, 22  # of the picture; height of a name
MOST = 3  # panels of a method
VISIBLE = 0.01  # share of a panel: lines that are closer are one to the eye
# Groups of methods by the slot in which they use different parts than the base, in the order of the page.
TITLES = {
    "": ("The same parts", "These methods use the same parts with different numbers, or another denominator."),
    "credit": (
        "Credit",
        "The reward is turned into advantages differently; ratio and trust region are the same parts.",
    ),
    "surrogate": ("Surrogate", "The ratio or the trust region is different."),
    "weights": ("Weights", "Some tokens count more than others, or not at all."),
    "penalties": ("Penalties", "The loss has an additional term, on some tokens or on all of them."),
    "shaping": ("Shaping", "Something is added to the reward before the advantage is computed."),
    "temperature": ("Temperature", "Each token is sampled at a temperature of its own."),
    "passes": ("Passes", "The tokens of a rollout batch are trained on in several optimiser passes."),
    "several": ("Several slots", "These methods use different parts in more than one slot."),
}


def choices() -> str:
    """The parts of the base, one slot a line."""
    return f"```text\n{METHODS[BASE]()}\n```"


def what_changes() -> str:
    """The slots that no method changes, and a table for each group of methods."""
    objectives = {name: build() for name, build in METHODS.items()}
    base = objectives[BASE]
    slots = [field.name for field in dataclasses.fields(Objective) if field.name != "name"] + ["needs", "scope"]
    rows = {name: [changes(slot, objective, base) for slot in slots] for name, objective in objectives.items()}
    idle = [f"`{slot}`" for i, slot in enumerate(slots) if not any(row[i] for row in rows.values())]
    parts = [f"No method changes the slot{'s' * (len(idle) > 1)} {', '.join(idle)}."] if idle else []
    for key, (title, meaning) in TITLES.items():
        members = [name for name in objectives if name != BASE and group(objectives[name], base) == key]
        used = [i for i in range(len(slots)) if any(rows[name][i] for name in members)]
        body = [(method_link(name), *(rows[name][i] for i in used)) for name in members]
        if body:
            parts.append(f"### {title}\n\n{meaning}\n\n{table(('method', *(slots[i] for i in used)), body)}")
    return "\n\n".join(parts)


def changes(slot: str, objective: Objective, base: Objective) -> str:
    """What a slot holds that the base's does not, as a cell; empty where they are equal."""
    choice, usual = getattr(objective, slot), getattr(base, slot)
    if choice == usual:
        return ""
    if isinstance(choice, frozenset):
        return ", ".join(code(need) for need in sorted(choice))
    if isinstance(choice, tuple):
        return " · ".join(code(brief(part, usual)) for part in choice) or "none"
    return ", ".join(code(text) for text in differences(choice, usual))


def differences(choice: Any, usual: Any) -> list[str]:
    """The fields in which a part differs from one of the same kind; a part of another kind by name."""
    if not isinstance(choice, Part):
        return [str(choice)]
    if type(choice) is not type(usual):
        return [brief(choice, usual)]
    texts = []
    for field in dataclasses.fields(choice):  # type: ignore[arg-type]  # every part is a dataclass
        value, usual_value = getattr(choice, field.name), getattr(usual, field.name)
        if value != usual_value:
            texts += differences(value, usual_value) if isinstance(value, Part) else [f"{field.name}={value!r}"]
    return texts


def brief(part: Part, usual: Any) -> str:
    """A part's name with the names of the parts it holds, those of the base left out."""
    known = set(names(usual))
    inner = [name for name in names(part)[1:] if name not in known]
    return f"{type(part).__name__}({', '.join(inner)})" if inner else type(part).__name__


def names(value: Any) -> list[str]:
    """The names of the parts in a value, outermost first, each once."""
    return list(dict.fromkeys(type(part).__name__ for part in walk(value)))


def group(objective: Objective, base: Objective) -> str:
    """The slot that uses other parts than the base, "" for none, "several" for more; denominators do not count."""
    slots = [field.name for field in dataclasses.fields(Objective) if field.name not in ("name", "aggregate")]
    changed = [slot for slot in slots if names(getattr(objective, slot)) != names(getattr(base, slot))]
    return "several" if len(changed) > 1 else "".join(changed)


def equal_ones() -> str:
    """Every pair whose fingerprints are equal, with the slots in which they differ all the same."""
    objectives = {name: build() for name, build in METHODS.items()}
    slots = [field.name for field in dataclasses.fields(Objective) if field.name != "name"]
    lines = []
    for (a, one), (b, other) in itertools.combinations(objectives.items(), 2):
        if distance(one, other)[0] <= EQUAL:
            changed = [f"`{slot}`" for slot in slots if getattr(one, slot) != getattr(other, slot)]
            lines.append(f"- `{a}` and `{b}` differ in {', '.join(changed) or 'nothing'}, which no push here shows.")
    return "\n".join(lines) or "None."


def picture(methods: Mapping[str, Callable[..., Objective]]) -> str:
    """The picture as SVG; groups stand together as on the page, the base first."""
    objectives = {name: build() for name, build in methods.items()}
    order = list(TITLES)
    ranked = sorted(objectives, key=lambda name: (name != BASE, order.index(group(objectives[name], objectives[BASE]))))
    return draw_family({name: objectives[name] for name in ranked}, objectives[BASE])


def draw_family(objectives: Mapping[str, Any], base: Any) -> str:
    """Every method with the panels in which it differs most from the base; the base with its own."""
    parts, wide = [], HEAD + WIDTH * MOST
    for i, (name, objective) in enumerate(objectives.items()):
        x, y = wide * (i % METHODS_PER_ROW) + LEFT, (HEIGHT + HEAD) * (i // METHODS_PER_ROW)
        parts.append(f'<text class="n" x="{x - 16}" y="{y + 14}">{escape(name)}</text>')
        parts += [panel_svg(panel, x + WIDTH * k, y + HEAD) for k, panel in enumerate(telling(objective, base))]
    height = (HEIGHT + HEAD) * -(-len(objectives) // METHODS_PER_ROW)
    return svg("How hard every method pushes a token", wide * METHODS_PER_ROW + LEFT, height, parts)


def telling(objective: Any, base: Any) -> list[Panel]:
    """The few panels in which a method differs most from the base, at most one for each fact, in their order."""
    visible = [panel for panel in panels(objective, base) if difference(panel) > VISIBLE or objective == base]

    def bend(panel: Panel) -> float:  # the same distance once all lines are shifted to 0 at the usual facts
        return _apart(panel, panel.own - panel.usual[0], panel.behind - panel.usual[1])

    ranked = sorted(visible, key=lambda panel: (bend(panel), difference(panel)))
    most = {(panel.axis.fact, panel.channel): panel for panel in ranked}
    kept = [panel for panel in ranked if panel in most.values()][-MOST:]
    return [panel for panel in visible if panel in kept]


def difference(panel: Panel) -> float:
    """Distance of the lines from those behind, as a share of the panel."""
    return _apart(panel, panel.own, panel.behind)


def _apart(panel: Panel, one: torch.Tensor, other: torch.Tensor) -> float:
    room = panel.limit
    return round(gap(one.clamp(-room, room), other.clamp(-room, room)) / room, 6)


TABLES = {"choices": choices, "changes": what_changes, "equal": equal_ones}  # of docs/family.md
