"""Writes docs/distillation.md and docs/distillation.svg: distillation losses in small worlds with a teacher, and which
of them frameworks compute; --check says whether they are current. Takes about a minute.

python tools/site/distillation.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from distillation_forms import FORMS
from distillation_worlds import STEPS, Found, judge, taught
from exact_picture import COLOURS, STYLE, svg, text
from layout import table, write

from tokenpo.base.text import number

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "distillation.md", DOCS / "distillation.svg"
WORLDS = 10
WAYS = {"sequence": "whole responses", "reverse": "reverse", "forward": "forward", "jsd": "JSD"}
# By form: its formula, and what it does.
SAID: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "A credit times log p of the sampled token": {
        "credit x to go": ("Σ_{k≥t} x_k", "reverse KL of whole responses"),
        "credit x": ("x_t", "reverse KL"),
        "credit x + KL of the state": ("x_t + KL(p ‖ q)", "reverse KL"),
        "credit x to go / tokens left": ("mean of x_k over k ≥ t", "no divergence; ends at the teacher"),
        "credit x / length": ("x_t / length", "no divergence; ends at the teacher"),
        "credit x within ±1": ("clip(x_t, ±1)", "a bounded reward; ends at the teacher"),
        "credit x, early ones more": ("x_t (1.5 − ½ share of Σ\\|x\\| before t)", "no divergence; ends at the teacher"),
        "credit σ(5x)": ("σ(5 x_t)", "a bounded reward; ends at the teacher"),
        "credit −k2": ("−x_t² / 2", "none; runs away from the teacher"),
        "credit −k3": ("−(e^x − 1 − x)", "reverse less forward KL; runs away"),
        "credit −KL of the state": ("−Σ_K p log(p/q)", "nothing, with noise"),
    },
    "An estimate at the sampled token, differentiated": {
        "path of k1": ("−x", "nothing, with noise"),
        "path of k2": ("x² / 2", "reverse KL"),
        "path of k3": ("e^x − 1 − x", "forward KL"),
        "path and credit of k3": ("k3 + sg(k3) log p", "reverse KL"),
    },
    "The whole vocabulary, differentiated": {
        "full reverse": ("Σ p log(p/q)", "reverse KL"),
        "full forward": ("Σ q log(q/p)", "forward KL"),
        "full JSD": ("½ KL(q ‖ m) + ½ KL(p ‖ m)", "Jensen-Shannon divergence"),
        "full forward, terms within 0.05": ("Σ min(q log(q/p), 0.05)", "none; runs away from the teacher"),
    },
    "Two of four tokens, differentiated": {
        "top-k forward and a tail": ("K, and the rest as one token", "a coarser forward KL"),
        "top-k soft targets": ("−Σ_K q/Q_K log p", "another distribution"),
        "top-k forward": ("Σ_K q log(q/p)", "moves off the teacher"),
        "top-k forward, at least 0": ("max(0, Σ_K q log(q/p))", "moves off the teacher"),
        "top-k reverse": ("Σ_K p log(p/q)", "empties K; runs away from the teacher"),
        "top-k generalised reverse": ("Σ_K p log(p/q) − p + q", "its own divergence; blind outside K"),
        "top-k renormalised forward": ("KL of q/Q_K from p/P_K", "blind to the mass of K"),
        "top-k renormalised, half and half": ("the same, both ways", "blind to the mass of K"),
        "top-k renormalised JSD, student's": ("the same with JSD, K the student's", "blind outside its own K"),
    },
}
# Framework, setting, form, where it was read. Commits and versions are below the table.
FRAMEWORKS = (
    ("tinker-cookbook", "defaults (`kl_discount_factor` 0)", "credit x", "code"),
    ("tinker-cookbook", "`kl_discount_factor` 1", "credit x to go", "code"),
    ("slime, miles", "`--opd-kl-coef`, no top-k", "credit x", "code"),
    ("miles", "`--opd-log-prob-top-k` above 0", "credit −KL of the state", "code, issue #2362"),
    ("NeMo-RL", "`adv_estimator: opd`", "credit x", "code"),
    ("NeMo-RL", "distillation, `kl_type` mixed", "top-k renormalised, half and half", "code"),
    ("ms-swift", "GRPO with a teacher", "credit x", "code"),
    ("SkyRL", "on_policy_distillation", "credit x", "code"),
    ("prime-rl", "`opd`, one update a batch", "credit x", "code"),
    ("ROLL", "`kl_penalty` k1", "credit x", "code"),
    ("ROLL", "`kl_penalty` k2", "credit −k2", "code"),
    ("AReaL", "`rl_loss_weight` 0", "credit x", "code"),
    ("AReaL", "`rl_loss_weight` above 0, the teacher's term", "path of k1", "code"),
    ("verl", "defaults (`loss_mode` k3, `use_policy_gradient`)", "credit −k3", "code"),
    ("verl", "`loss_mode` k1, `use_policy_gradient`, inside its bounds", "credit x", "code"),
    ("verl", "`loss_mode` k3, no `use_policy_gradient`", "path of k3", "code"),
    ("verl", "`forward_kl_topk`, no `use_policy_gradient`", "top-k forward, at least 0", "code"),
    ("verl", "`forward_kl_topk`, `use_policy_gradient` (it warns)", "credit −KL of the state", "code"),
    ("TRL", "`gkd`, `beta` 0.5 (its default)", "full JSD", "code"),
    ("TRL", "`gkd`, `beta` 0", "full forward", "code"),
    ("TRL", "`distillation`, `beta` 1 (its default)", "full reverse", "code"),
    ("TRL", "`sdpo`, `sampled_token` (its default), means of responses", "credit x / length", "code"),
    ("TRL", "`sdft`, defaults (its k is 100)", "top-k renormalised JSD, student's", "code"),
    ("TRL", "`iw_opd`", "credit x, early ones more", "code"),
    ("TRL", "`minillm`, `gamma` 1, `length_normalization`", "credit x to go / tokens left", "code"),
    ("tinker-cookbook", "`sdft`", "top-k soft targets", "code"),
    ("SDAR (2605.15155)", "its teacher's term", "credit σ(5x)", "code"),
    ("OPSD (2601.18734)", "clip of each vocabulary entry", "full forward, terms within 0.05", "TRL issue #5990"),
    ("MOPD (2606.30406)", "eq. 5", "top-k generalised reverse", "issue"),
    ("vOPD (2605.07865)", "baseline of the state", "credit x + KL of the state", "abstract"),
)
READ = """\
Read at: TRL 1.16.0 (`minillm` at f2cd57710, as 1.16.0 has none), verl 0.9.1, tinker-cookbook 9dfcc3a2, slime
624b824a8, miles 31f1ca961, NeMo-RL 7ea279abf, ms-swift 3602360a5, SkyRL a9564572e, prime-rl 559b44772, ROLL 8eb27cc2,
AReaL 4aef98d8d. Where "issue" or "abstract" stands, no code was read."""
# What a form does that does not end at the teacher.
ASTRAY = ("nothing", "away", "blind", "moves off", "another distribution")
FOUND = dict[str, list[Found]]


def page(found: FOUND) -> str:
    """The page as text."""
    rows = {name: (formula, does) for group in SAID.values() for name, (formula, does) in group.items()}
    head = ("form", "loss or credit", *WAYS.values(), "responses", "KL left", "what it descends")
    lines = [(f"`{name}`", f, *_cells(found[name]), _needed(found[name]), _left(found[name]), does)
             for name, (f, does) in rows.items()]  # fmt: skip
    theirs = [(who, how, f"`{form}`", rows[form][1], where) for who, how, form, where in FRAMEWORKS]
    return TEXT.format(
        table=table(head, lines),
        frameworks=table(("framework", "setting", "form", "what it descends", "read in"), theirs), settings=len(theirs),
        astray=table(("framework", "setting", "what it descends"), [
            (who, how, does) for who, how, _, does, _ in theirs if any(word in does for word in ASTRAY)]),
        read=READ, worlds=WORLDS, steps=STEPS, forms=len(rows),
        one=_needed(found["credit x"]), togo=_needed(found["credit x to go"]), full=_needed(found["full reverse"]),
        base=_needed(found["credit x + KL of the state"]), k3=_left(found["credit −k3"]),
        apart=number(median(x.cosine["reverse"] for x in found["credit x to go"]), 2),
        worst=_percent(max(x.left for x in found["full forward, terms within 0.05"])),
        tail=_left(found["top-k forward and a tail"]), cut=_left(found["top-k forward, at least 0"]),
        kept=_left(found["top-k renormalised forward"]), own=_left(found["top-k renormalised JSD, student's"]),
    )  # fmt: skip


TEXT = """<!-- Written by tools/site/distillation.py. -->

# Which distillation loss is right?

| you want | take |
| --- | --- |
| the reverse KL | `full reverse`, or credit every sampled token with x = log q − log p: the same gradient, more noise |
| the forward KL, or the Jensen-Shannon divergence | differentiate the whole distributions: `full forward`, `full JSD` |
| a loss from the teacher's top-k alone | a bucket for all other tokens: `top-k forward and a tail` |

Do not send k2 or k3 as a credit, back-propagate k1, or use a number of the state as a credit.

> This is four tokens, tables for models, on policy, one temperature. It shows what a loss means, not how a language
> model ends. Top-k keeps two of four tokens; with a hundred of a large vocabulary the errors of truncation shrink.
> Losses that descend nothing, and k2 and k3 as credits, don't depend on k. "Reverse", "forward" and "JSD" take the
> sampled states as given.

![Each distillation loss, the divergences that it descends, its noise, and where training ends](distillation.svg)

## What was found

- **"Reverse KL" means two things.** `credit x` descends the KL of the next token at the sampled states. `credit x to
  go` descends the KL of whole responses, and makes every further token cost. Their cosine is {apart}.
- **k3 as a credit runs away.** It descends the reverse less the forward KL and ends with {k3} of the KL at the start.
  Differentiated, k3 is the forward KL.
- **Two terms teach nothing but noise**: a credit that depends on the state alone, and the gradient of k1.
- **Whole distributions need fewer responses than credits** until signal and noise are equal: {full}. `credit x` takes
  {one}, with the KL of the state as its baseline {base}; `credit x to go` takes {togo}.
- **Top-k needs a bucket for the rest.** Then {tail} of the KL is left. Truncated and held above zero {cut} is left,
  renormalised {kept} (the teacher's tokens) or {own} (the student's). Truncated losses move a student that already is
  the teacher. `gkd` needs no top-k, as it holds the teacher's logits [a tile at a
  time](speed.md#a-teachers-distribution). No engine here reads a server's top-k.
- **Clip a sum, never its terms.** With a bound on each vocabulary entry the worst world keeps {worst} of the KL.

## What frameworks compute

These settings do not end at the teacher:

{astray}

Tests compare the updates of TRL's (without `minillm`) and verl's own loss functions with these forms; the other rows
are our transcriptions of the code. Forms are sums over tokens: a framework that first takes the mean of each response
lets its length in, as `credit x / length`. RLSD (2604.03128) is left out: it scales a reward's credit and descends no
divergence.

<details markdown="1"><summary>All {settings} settings, and where they were read</summary>

{frameworks}

{read}

</details>

## The numbers

p is the student, q the teacher, m their mean, x = log q − log p of the sampled token; sg stops the gradient; K are
two tokens, Q_K and P_K their masses.

- The first four numbers are cosines with the way down a divergence: **exact** where the expected update is its gradient
  to 1e-10, "–" where there is no update.
- Responses: how many make signal and noise of their mean equal.
- KL left: of whole responses, after {steps} plain steps along the expected update. Of two losses of different scale the
  smaller gets less far.

<details markdown="1"><summary>{forms} forms, medians over {worlds} worlds</summary>

{table}

</details>

## How it was made

Student and teacher are tables of logits over the states of a small automaton: up to four tokens out of four, one of
which ends a response. The student's logits are standard normal, the teacher's add standard normal ones. All 121
responses are listed, so nothing is sampled (float64, `python tools/site/distillation.py`). `opd`, `gkd`, the teacher's
term of `sdar` and the penalty `TeacherKl` are this package's objectives, the others formulas in
[`distillation_forms.py`](../tools/site/distillation_forms.py). Tests check every exact entry and the zeros to 1e-10.
With rewards (`opd` with `rewards=True`) the update is the sum of both gradients, the reward's times (G − 1)/G in groups
of G. To judge a loss of your own, in a clone, with `PYTHONPATH=tools/site`:

```python
from distillation_worlds import judge, taught

halved = judge(taught(0), lambda t: -0.5 * t.x * t.lp)
assert abs(halved.cosine["reverse"] - 1) < 1e-10 and abs(halved.bias["reverse"] - 0.5) < 1e-10
```
"""


def _cells(found: list[Found]) -> Iterator[str]:
    for way in WAYS:
        yield "**exact**" if _exact(found, way) else number(_cosine(found, way))


def _exact(found: list[Found], way: str) -> bool:
    return max(x.bias[way] for x in found) < 1e-10


def _cosine(found: list[Found], way: str) -> float:
    return median(x.cosine[way] for x in found)


def _needed(found: list[Found]) -> str:
    needed = median(x.needed for x in found)
    return "∞" if needed == math.inf else number(needed, 2)


def _left(found: list[Found]) -> str:
    return _percent(median(x.left for x in found))


def _percent(share: float) -> str:
    return f"{100 * share:.{1 if share < 0.1 else 0}f} %"


LABEL, COLUMN, ROW, EDGE, HEAD, SAYS = 236, 84, 23, 14, 112, 316
FAINT = "fill:#55636f"


def picture(found: FOUND) -> str:
    """A row for every form: cosines, noise, where training ends, and the verdict in words."""
    width, y = 2 * EDGE + LABEL + 6 * COLUMN + SAYS, HEAD
    parts = [
        text(EDGE, 24, "Which distillation loss is right?", style="font-size:17px;font-weight:600"),
        text(EDGE, 44, "Cosine of the expected update with the way down each divergence. Blue leads to the teacher, "
             "orange away from it.", style=FAINT),
        text(EDGE, 62, "x = log q − log p of the sampled token, p the student and q the teacher; k2 and k3 estimate "
             "a KL from x; top-k keeps two of four tokens.", style=FAINT),
        text(EDGE + LABEL + 6 * COLUMN + 12, HEAD - 7, "what it descends", style=FAINT),
    ]  # fmt: skip
    titles = (("KL, whole", "responses"), ("reverse", "KL"), ("forward", "KL"), ("Jensen-", "Shannon"),
              ("responses", "for a signal"), ("KL left", "at the end"))  # fmt: skip
    for column, words in enumerate(titles):
        parts += [text(_middle(column), HEAD - 22 + 15 * k, w, "value", FAINT) for k, w in enumerate(words)]
    for group, forms in SAID.items():
        y += 22
        parts.append(text(EDGE, y - 5, group, style="font-weight:600"))
        for name, (_, does) in forms.items():
            parts.append(text(EDGE + 8, y + 16, name))
            parts += _row(found[name], y)
            parts.append(text(EDGE + LABEL + 6 * COLUMN + 12, y + 16, does))
            y += ROW
    label = "Each distillation loss, the divergences that it descends, its noise, and where training ends"
    return svg(label, width, y + EDGE, STYLE, parts)


def _row(found: list[Found], y: int) -> Iterator[str]:
    none = math.isinf(median(x.needed for x in found))
    for column, way in enumerate(WAYS):
        shown = "none" if none else "exact" if _exact(found, way) else f"{_cosine(found, way):.2f}"
        yield from _cell(column, y, 0.0 if none else _cosine(found, way), shown)
    yield text(_middle(4), y + 16, _needed(found), "value")
    left = median(x.left for x in found)
    yield from _cell(5, y, 1 - left, _percent(left))


def _cell(column: int, y: int, x: float, shown: str) -> Iterator[str]:
    half = len(COLOURS) // 2
    ground, ink = COLOURS[half + round(half * max(-1.0, min(1.0, x)))]
    yield (
        f'<rect x="{EDGE + LABEL + COLUMN * column}" y="{y}" width="{COLUMN - 1}" height="{ROW - 1}" fill="{ground}"/>'
    )
    weight = ";font-weight:700" if shown == "exact" else ""
    yield text(_middle(column), y + 16, shown, "value", f"fill:{ink}{weight}")


def _middle(column: int) -> float:
    return EDGE + LABEL + COLUMN * (column + 0.5)


def main() -> int:
    found = {name: [judge(taught(seed), form) for seed in range(WORLDS)] for name, form in FORMS.items()}
    return write(PICTURE, picture(found)) | write(PAGE, page(found))


if __name__ == "__main__":
    sys.exit(main())
