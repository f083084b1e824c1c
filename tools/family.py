"""The page of the whole family: what each method changes relative to GRPO, and how hard it pushes a token."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layout import GENERATED, code, table

from tokenpo.coefficient import COPIES, MEAN_ENTROPY, ROWS, TOKENS
from tokenpo.objective import Objective
from tokenpo.report.coefficients import OLD_PROB, RATIOS, numbers, write_family
from tokenpo.signals import Part, walk

BASE = "grpo"
# Groups of methods by the slot whose parts are others than the base's, in the order of the page.
TITLES = {
    "": ("The same parts", "Other numbers, or another denominator."),
    "credit": ("Credit", "The reward is shared out differently; ratio and trust region are the base's kind."),
    "surrogate": ("Surrogate", "Another ratio, or another trust region."),
    "weights": ("Weights", "Some tokens count more than others, or not at all."),
    "penalties": ("Penalties", "Some tokens are held back."),
    "shaping": ("Shaping", "Something is added to the reward."),
    "temperature": ("Temperature", "Tokens are sampled at temperatures of their own."),
    "passes": ("Passes", "The tokens of a rollout batch are learnt in several optimiser passes."),
    "several": ("Several slots", "Parts of more than one slot are others."),
}

PAGE = """\
{generated}

# The family

Every method as its difference from [`{base}`](methods/{base}.md), and as the [effective
coefficient](ideas.md#effective-coefficient) with which it pushes a token. Both at default options, and both computed
from the objectives themselves.

## What each method changes

`{base}` is

```text
{choices}
```

An empty cell holds the same as there. Of parts that `{base}` has too only the numbers that differ are shown, of others
the name and the names of what they hold; each method's page shows them whole. {unchanged}

{tables}

## How hard each method pushes a token

![The effective coefficient of every method]({picture})

`tokenpo show METHOD --coefficients` draws one method larger, with the plane of ratio and advantage. The numbers below
are c at a few ratios r, for a token with p_old = {old_prob:g}; methods that agree at these ratios share a row and may
differ elsewhere.

- The advantage A is given, so methods that differ in their credit alone have one c. Reference and rollout policy are
  the old one, and the token's influence is 1. Penalties are in c: with one, a clipped token need not be 0. A gradient
  through the entropy is not.
- Ratios of sequences: the tokens of a response share one ratio, hence have it as the ratio of the response.
- Entropies are shown where they make a difference, in nats: H of the current policy where a method reads it, H_old then
  standing at its median, else H_old.
- Methods that compare tokens see a step of {rows} other responses of {tokens} tokens, half of them right, whose policy
  has not moved. Their entropies are spread like an exponential distribution with mean {mean_entropy:g} nats, and each
  token is as surprising as its entropy says (lp = −H). That distribution is ours.
- Methods that draw tokens at random show the mean over {copies} draws.

{numbers}
"""


def page(methods: Mapping[str, Callable[..., Objective]], picture: str) -> str:
    """The text of the page; `picture` is the link to its picture."""
    objectives = {name: build() for name, build in methods.items()}
    base = objectives[BASE]
    slots = [field.name for field in dataclasses.fields(Objective) if field.name != "name"] + ["needs", "scope"]
    rows = {name: [changes(slot, objective, base) for slot in slots] for name, objective in objectives.items()}
    used = [i for i in range(len(slots)) if any(row[i] for row in rows.values())]
    idle = [f"`{slot}`" for i, slot in enumerate(slots) if i not in used]
    head = ("method", *(slots[i] for i in used))
    parts = []
    for key, (title, meaning) in TITLES.items():
        members = [name for name in objectives if name != BASE and group(objectives[name], base) == key]
        body = [(f"[`{name}`](methods/{name}.md)", *(rows[name][i] for i in used)) for name in members]
        if body:
            parts.append(f"### {title}\n\n{meaning}\n\n{table(head, body)}")
    return PAGE.format(
        generated=GENERATED.format(source="the table of methods"),
        base=BASE,
        choices=base,
        unchanged=f"No method changes {', '.join(idle)} at its defaults." if idle else "",
        tables="\n\n".join(parts),
        picture=picture,
        old_prob=OLD_PROB,
        rows=ROWS,
        tokens=TOKENS,
        mean_entropy=MEAN_ENTROPY,
        copies=COPIES,
        numbers=number_table(objectives),
    )


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
    found = []
    for field in dataclasses.fields(choice):  # type: ignore[arg-type]  # every part is a dataclass
        one, other = getattr(choice, field.name), getattr(usual, field.name)
        if one != other:
            found += differences(one, other) if isinstance(one, Part) else [f"{field.name}={one!r}"]
    return found


def brief(part: Part, usual: Any) -> str:
    """A part's name with the names of the parts it holds, those of the base left out."""
    known = set(names(usual))
    inner = [name for name in names(part)[1:] if name not in known]
    return f"{type(part).__name__}({', '.join(inner)})" if inner else type(part).__name__


def names(value: Any) -> list[str]:
    """The names of the parts in a value, outermost first, each once."""
    return list(dict.fromkeys(type(part).__name__ for part in walk(value)))


def group(objective: Objective, base: Objective) -> str:
    """The one slot whose parts are others than the base's, "" for none; denominators do not count."""
    slots = [field.name for field in dataclasses.fields(Objective) if field.name not in ("name", "aggregate")]
    changed = [slot for slot in slots if names(getattr(objective, slot)) != names(getattr(base, slot))]
    return "several" if len(changed) > 1 else "".join(changed)


def number_table(objectives: Mapping[str, Objective]) -> str:
    """c of every method at a few ratios, methods with equal rows together."""
    together: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for name, objective in objectives.items():
        together.setdefault(number_rows(objective), []).append(f"[`{name}`](methods/{name}.md)")
    rows = [
        (", ".join(members) if i == 0 else "", *row) for body, members in together.items() for i, row in enumerate(body)
    ]
    return table(("method", "A", "entropy", *(f"r = {r:g}" for r in RATIOS)), rows)


@functools.cache
def number_rows(objective: Objective) -> tuple[tuple[str, ...], ...]:
    """(A, entropy, c...) as text; computed once for equal objectives."""
    return tuple((f"{a:+.0f}", label, *(f"{x:.3g}" for x in c)) for a, label, c in numbers(objective))


def fingerprint(methods: Mapping[str, Callable[..., Objective]]) -> str:
    """Stands for everything that the picture shows: all choices, and the numbers they lead to."""
    objectives = {name: build() for name, build in methods.items()}
    shown = "\n".join(str(objective) for objective in objectives.values()) + number_table(objectives)
    return hashlib.sha256(shown.encode()).hexdigest()


def drawn_from(picture: Path) -> str:
    """The fingerprint in a PNG's metadata; "" where there is no picture, or none of ours."""
    if not picture.exists():
        return ""
    data, place = picture.read_bytes(), 8
    while place + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        key, _, value = data[place + 8 : place + 8 + length].partition(b"\0")
        if kind == b"tEXt" and key == b"Description":
            return value.decode("latin-1")
        place += 12 + length
    return ""


def draw(methods: Mapping[str, Callable[..., Objective]], picture: Path) -> None:
    """Writes the picture; groups stand together as on the page."""
    objectives = {name: build() for name, build in methods.items()}
    order = list(TITLES)
    ranked = sorted(objectives, key=lambda name: order.index(group(objectives[name], objectives[BASE])))
    write_family({name: objectives[name] for name in ranked}, picture, fingerprint(methods))
