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

from tokenpo.core.coefficient import COPIES, MEAN_ENTROPY, ROWS, TOKENS
from tokenpo.core.objective import Objective
from tokenpo.core.parts import Part, walk
from tokenpo.evidence.report.coefficients import OLD_PROB, RATIOS, numbers, write_family

BASE = "grpo"
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

PAGE = """\
{generated}

# The family

This page compares all methods in two ways: by what each one changes relative to [`{base}`](methods/{base}.md), and by
its [effective coefficient](ideas.md#effective-coefficient), which says how hard it pushes a token. Both are computed
from the objectives at their default options.

## What each method changes

`{base}` consists of these parts, one slot per line:

```text
{choices}
```

The tables below list what is different. An empty cell means that the slot is the same as in `{base}`. Where a method
uses the same part with different numbers, the cell shows only those numbers. Where it uses another part, the cell shows
the name of that part, with the parts inside it in brackets; all their numbers are on the page of the method.
{unchanged}

{tables}

## How hard each method pushes a token

![The effective coefficient of every method]({picture})

`tokenpo show METHOD --coefficients --out FILE.png` draws a larger picture of one method, which also shows c over ratio
and advantage. The table below gives c at a few ratios r, for a token with p_old = {old_prob:g}. Methods with the same c
at all of these ratios share a row; at other ratios they may differ.

How c is computed here:

- The advantage A is set to +1 or −1 and not computed, so methods that differ only in their credit have the same c.
- The reference policy and the rollout policy equal the old policy, and the token's influence is 1.
- c includes the penalties, so a clipped token can have a c other than 0. A gradient through the entropy is left out.
- All tokens of the response have the same ratio r, and r is also the ratio of the whole sequence.
- The column "entropy" is filled only where entropy makes a difference. A method that reads the entropy H of the current
  policy is shown at several values of H, with the entropy H_old of the old policy at its median; a method that reads
  only H_old is shown at several values of H_old. Both are in nats.
- Some methods compare a token with the other tokens of the optimiser step. For them the step holds {rows} other
  responses of {tokens} tokens each, half of them right, on which the policy has not changed. The entropies of these
  tokens follow an exponential distribution with mean {mean_entropy:g} nats, and each token has lp = −H. This
  distribution is our choice and comes from no paper.
- For methods that draw tokens at random, c is the mean over {copies} draws.

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
        unchanged=f"No method changes the slot{'s' * (len(idle) > 1)} {', '.join(idle)}." if idle else "",
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
