"""Fingerprints as pictures: small panels in one SVG file, which has light and dark colours and needs no other file.

Blue is the push on the token in a right response, orange in a wrong one; the broad grey lines behind them are those of
the method that it is compared with. A panel is left out if its lines are flat for both methods.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from torch import Tensor

from tokenpo.lab.page.chart import nice, scale

from .curves import Axis, axes_of, fingerprint

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 172, 132, 26, 8, 20, 30

CHANNELS = ("", "push on the entropy")  # titles of panels of channels 0, push on lp, and 1
HIGHEST = 2.5  # pushes above this and above twice the usual push are cut off
STYLE = """
text{font:10.5px system-ui,-apple-system,"Segoe UI","Liberation Sans",sans-serif;fill:#5b616a}
.h{font-size:11px;font-weight:600;fill:#1c1e21}.n{font-size:13px;font-weight:650;fill:#1c1e21}
.x{text-anchor:middle}.y{text-anchor:end}path{fill:none;stroke-linejoin:round}
.a{stroke:#dcdcd6}.g{stroke:#c4c4be;stroke-width:4}.r{stroke:#0a66a8;stroke-width:1.8}
.w{stroke:#c8500a;stroke-width:1.8}.p{fill:#fcfcfa}
@media(prefers-color-scheme:dark){text{fill:#a0a6ae}.h,.n{fill:#e6e6e3}.a{stroke:#34383e}.g{stroke:#4c5259}
.r{stroke:#62b2ee}.w{stroke:#f0954f}.p{fill:#15171a}}
""".replace("\n", "")


@dataclass(frozen=True, eq=False)
class Panel:
    """The panel of one axis.

    Args:
        axis: the property that varies.
        channel: 0 for the push on the log-probability, 1 for the push on the entropy.
        own: [P, 2] pushes of the method.
        behind: [P, 2] pushes of the method that it is compared with.
        usual: pushes [2] of both at the default facts.
    """

    axis: Axis
    channel: int
    own: Tensor
    behind: Tensor
    usual: tuple[Tensor, Tensor]

    @property
    def limit(self) -> float:
        """Both ends (±) of the axis of pushes, a round number; lines beyond it are cut off."""
        most = max(float(x.nan_to_num().abs().max()) for x in (self.own, self.behind))
        return nice(min(most, max(HIGHEST, 2 * float(self.usual[0].abs().max()))))


def panels(objective: Any, base: Any) -> list[Panel]:
    """The panels of a method, with the lines of `base` behind; flat panels are left out."""
    both = own, behind = fingerprint(objective), fingerprint(base)
    return [
        Panel(axis, k, own.on(axis)[..., k], behind.on(axis)[..., k], (own.base[:, k], behind.base[:, k]))
        for k in range(len(CHANNELS))
        for axis in axes_of(objective, base)
        if any(one.varies(axis, k) for one in both)
    ]


def svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{STYLE}</style><path class="p" d="M0 0H{width}V{height}H0Z"/>'
        f'<clipPath id="c"><path d="M0 -1H{WIDTH - LEFT - RIGHT + 1}V{HEIGHT - TOP - BOTTOM + 1}H0Z"/></clipPath>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def panel_svg(panel: Panel, x: float, y: float) -> str:
    """The panel at (x, y) as SVG: its title, two axes with their ends, and the lines."""
    axis, limit = panel.axis, panel.limit
    inner, tall, low, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, axis.values[0], axis.values[-1]
    across = scale(low, high, 0, inner, log=axis.logarithmic)

    def px(value: float) -> float:
        return round(across(value), 1)

    def py(value: float) -> float:
        return round((1 - value / limit) / 2 * tall, 1)

    title, unit = (CHANNELS[panel.channel], axis.title) if panel.channel else (axis.title, axis.unit)
    lines = zip("ggrw", [*panel.behind.T, *panel.own.T], strict=True)
    drawn = [f'<path class="{kind}" d="{path}"/>' for kind, c in lines if (path := _path(axis.values, c, px, py))]
    marked = [low, 1.0, high] if axis.logarithmic and low < 1 < high else [low, high]
    ticks = "".join(f'<text class="x" x="{px(v):g}" y="{tall + 11}">{v:g}</text>' for v in marked)
    return (
        f'<g transform="translate({x:g} {y + TOP:g})"><text class="h" x="-10" y="-8">{escape(title)}</text>'
        f'<path class="a" d="M0 {tall / 2:g}H{inner}M0 0V{tall}"/>'
        f'<text class="y" x="-3" y="4">{limit:g}</text><text class="y" x="-3" y="{tall + 3}">−{limit:g}</text>{ticks}'
        f'<text class="x" x="{inner / 2:g}" y="{tall + 22}">{escape(unit)}</text>'
        f'<g clip-path="url(#c)">{"".join(drawn)}</g></g>'
    )


def _path(xs: Sequence[float], ys: Tensor, px: Callable[[float], float], py: Callable[[float], float]) -> str:
    """The line through all points but NaN; points within a straight stretch are left out."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(xs, ys.tolist(), strict=True):
        if math.isnan(y):
            runs.append([])
            continue
        run = runs[-1]
        run.append((px(x), py(y)))
        if len(run) > 2:
            (x1, y1), (x2, y2), (x3, y3) = run[-3:]
            # The middle point lies on the line between the others, to a twentieth of a pixel.
            if x3 != x1 and abs(y1 + (y3 - y1) * (x2 - x1) / (x3 - x1) - y2) < 0.05:
                del run[-2]
    return "".join("M" + "L".join(f"{x:g} {y:g}" for x, y in run) for run in runs if len(run) > 1)
