"""Tokens on a page: their numbers, a colour scale per quantity (the same for all rollouts), and drawn responses."""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base.text import number
from ...records.metrics import Number
from .chart import nice
from .text import visible

HEAD, TAIL = 400, 200  # tokens drawn of a longer response
TOKEN_LIMIT, PROMPT_LIMIT, LABEL_LIMIT = 60, 2_000, 60  # characters
SHOWN_LIMIT = 120  # characters of a token once its invisible characters are spelt out

Kind = Literal["signed", "unsigned", "negative", "around_one", "ratio", "range", "share", "state"]
DIVERGING, SEQUENTIAL = 9, 8  # number of colours; the style sheet names them d0..d8 and s0..s7
STATES = ("not clipped", "clipped, ratio below 1", "clipped, ratio above 1")


@dataclass(frozen=True)
class Quantity:
    """A number per token: `name` in the trace, `label` and `help` for the reader."""

    name: str
    label: str
    kind: Kind
    help: str

    def text(self, x: Number) -> str:
        """The number as text; a clip state as a word."""
        return ("no", "below", "above")[int(x)] if self.kind == "state" and x is not None else number(x)


# In the order of the menu; docs/report.md defines each quantity.
QUANTITIES = (
    Quantity("advantage", "advantage", "signed", "blue is pushed up, orange is pushed down"),
    Quantity("weight", "weight", "around_one", "factor on the advantage: 1 leaves the token as it is"),
    Quantity("effective", "effective coefficient", "signed", "how hard the loss pushes the token's log-probability, "
             "weight, ratio, clip and penalties included: blue up, orange down"),
    Quantity("ratio", "ratio", "ratio", "probability now / when it was sampled, in equal steps of its logarithm"),
    Quantity("clipped", "clip state", "state", "the trust region cuts the gradient of clipped tokens"),
    Quantity("entropy", "entropy", "unsigned",
             "nats over the whole vocabulary: strongly coloured tokens were real decisions"),
    Quantity("probability", "probability", "share",
             "with which the token was sampled: strongly coloured was improbable"),
    Quantity("temperature", "temperature", "range", "at which the token was sampled"),
    Quantity("kl", "KL moved", "unsigned", "nats, k3 estimate: how far the policy moved on this token since sampling"),
    Quantity("kl_ref", "KL to reference", "unsigned", "nats, k3 estimate: how far the policy is from the reference"),
    Quantity("logprob", "log-prob", "negative", "nats, at this update: strongly coloured tokens are improbable"),
)  # fmt: skip
KNOWN = {quantity.name: quantity for quantity in QUANTITIES}


@dataclass(frozen=True)
class Scale:
    """The colour scale of a quantity: `edges` from low to high, and the number of values `beyond` them.

    `key` begins its style classes; the palette is "d" diverging, "s" sequential or "k" clip states.
    """

    quantity: Quantity
    key: str
    palette: Literal["d", "s", "k"]
    edges: tuple[float, ...] = ()
    beyond: int = 0

    @property
    def colours(self) -> int:
        return len(STATES) if self.palette == "k" else len(self.edges) - 1

    def level(self, x: Number) -> str:
        """The style class of a token with this value; it ends with n if there is no number."""
        if x is None:
            return f"{self.key}n"
        if self.palette == "k":
            return f"{self.key}{int(x)}"
        return f"{self.key}{min(max(bisect.bisect_right(self.edges, x) - 1, 0), self.colours - 1)}"

    @property
    def swatches(self) -> list[tuple[str, str, str]]:
        """(class, text at its left edge, text at its right edge, only for the last) of each colour, for the legend."""
        if self.palette == "k":
            return [(f"{self.key}{i}", "", name) for i, name in enumerate(STATES)]
        *lefts, last = map(number, self.edges)
        rights = [""] * (self.colours - 1) + [last]
        return [(f"{self.key}{i}", *ends) for i, ends in enumerate(zip(lefts, rights, strict=True))]

    def rules(self, place: int) -> list[str]:
        """The style rules that colour the tokens and show the legend while radio button q`place` is checked."""
        # The smallest log-probabilities and probabilities matter most, so the low end has the strongest colour.
        shades = range(self.colours)[:: -1 if self.quantity.kind in ("negative", "share") else 1]
        chosen, p = f":root:has(#q{place}:checked)", self.palette
        rules = [f"{chosen} .legend-{place}{{display:block}}"]
        for i, shade in enumerate(shades):
            rules.append(f"{chosen} .{self.key}{i}{{background:var(--{p}{shade});color:var(--{p}t{shade})}}")
        # A bar under the tokens below the middle shows the sign without colour.
        if below := {"d": range(DIVERGING // 2), "k": (1,), "s": ()}[p]:
            tokens = ",".join(f"{chosen} .{self.key}{i}" for i in below)
            rules.append(f"{tokens}{{box-shadow:inset 0 -.14em var(--d0)}}")
        return rules

    @property
    def barred(self) -> str:
        """Text for the legend: which tokens have the bar."""
        return {"d": "below the middle", "k": "clipped below", "s": ""}[self.palette]


def scales(columns: Iterable[tuple[Quantity, Sequence[Number]]]) -> tuple[list[Scale], list[tuple[str, str]]]:
    """(scales of the columns that vary, (label, value) of the columns that hold a single number)."""
    varying: list[Scale] = []
    fixed = []
    for q, values in columns:
        if len(set(values)) == 1:
            fixed.append((q.label, q.text(values[0])))
        elif values:
            key, known = chr(ord("a") + len(varying)), [x for x in values if x is not None]
            edges = () if q.kind == "state" else _edges(q.kind, known)
            palette = "k" if not edges else "d" if len(edges) == DIVERGING + 1 else "s"
            varying.append(Scale(q, key, palette, edges, sum(not edges[0] <= x <= edges[-1] for x in known if edges)))
    return varying, fixed


def clip_state(clipped: Number, ratio: Number) -> Number:
    """0 not clipped, 1 clipped with a ratio below 1, 2 clipped with a ratio above 1 or unknown."""
    if clipped is None:
        return None
    return 0.0 if not clipped else 1.0 if ratio is not None and ratio < 1 else 2.0


def _edges(kind: Kind, xs: Sequence[float]) -> tuple[float, ...]:
    """Edges of the colours; they cover all values, or 99 % of them if the largest is above 1.5 times that range."""
    if kind in ("signed", "around_one", "ratio"):
        centre = 1.0 if kind == "around_one" else 0.0
        distances = [math.log(x) for x in xs if x > 0] if kind == "ratio" else [x - centre for x in xs]
        width = nice(_reach(distances) / (DIVERGING / 2))
        edges = [centre + (i - DIVERGING / 2) * width for i in range(DIVERGING + 1)]
        return tuple(map(math.exp, edges)) if kind == "ratio" else tuple(edges)
    if kind == "range":
        low, high = min(xs, default=0.0), max(xs, default=1.0)
        width = (high - low) / SEQUENTIAL or 1.0 / SEQUENTIAL
        return (*(low + i * width for i in range(SEQUENTIAL)), max(high, low + 1e-9))
    width = 1 / SEQUENTIAL if kind == "share" else nice(_reach(xs) / SEQUENTIAL)
    first = -SEQUENTIAL if kind == "negative" else 0
    return tuple((first + i) * width for i in range(SEQUENTIAL + 1))


def _reach(distances: Iterable[float]) -> float:
    """The largest distance, or the 99 % quantile if the largest is an outlier."""
    sizes = sorted(map(abs, distances))
    if not sizes:
        return 1.0
    usual = sizes[math.ceil(0.99 * len(sizes)) - 1]
    return sizes[-1] if sizes[-1] <= 1.5 * usual or usual == 0 else usual


@dataclass(frozen=True)
class DrawnToken:
    """A token as it is drawn; `gap` tokens are left out before it, and a line ends after it if it `breaks`."""

    position: int
    text: str
    classes: str
    values: tuple[str, ...]
    breaks: bool
    gap: int


@dataclass(frozen=True)
class DrawnResponse:
    """A response of `length` tokens; `views` has its drawn tokens, once for each method that the page compares."""

    row: int
    group: str
    length: int
    reward: Number
    correct: bool | None
    prompt: str
    answer: str
    views: tuple[tuple[DrawnToken, ...], ...]

    def texts(self) -> dict[str, str]:
        """Texts by place: label in a menu, verdict and its style class, what precedes and follows the answer."""
        verdict, tone = {True: ("✓ right", "good"), False: ("✗ wrong", "bad"), None: ("not judged", "")}[self.correct]
        before, count = f"reward {number(self.reward)}", f"{self.length:,} tokens"
        after = f" · {count} · row {self.row}" + (f", group {self.group}" if self.group else "")
        label = f"row {self.row}: {verdict}, {before}, {count}"
        return {
            "label": label, "verdict": verdict, "tone": tone, "before": before, "answer": self.answer, "after": after,
        }  # fmt: skip


def draw_tokens(tokens: Sequence[str], columns: Sequence[tuple[Scale, Sequence[Number]]]) -> tuple[DrawnToken, ...]:
    """The drawn tokens of a response [T], with a colour and a number for each (scale, values [T])."""
    drawn, last = [], -1
    for t in kept(len(tokens)):
        classes = " ".join(scale.level(values[t]) for scale, values in columns)
        texts = tuple(scale.quantity.text(values[t]) for scale, values in columns)
        drawn.append(DrawnToken(t + 1, token_text(tokens[t]), classes, texts, "\n" in tokens[t], t - last - 1))
        last = t
    return tuple(drawn)


def token_text(token: str) -> str:
    """The token with invisible characters shown, of limited length; ∅ for an empty one."""
    text = visible(token, limit=TOKEN_LIMIT, spaces=True) or "∅"
    # An invisible character that is spelt out takes up to eight characters.
    return text if len(text) <= SHOWN_LIMIT else visible(token, limit=SHOWN_LIMIT // 10, spaces=True)


def kept(length: int) -> list[int]:
    """The positions, from 0, of a response that are drawn."""
    return [t for t in range(length) if t < HEAD or t >= length - TAIL]
