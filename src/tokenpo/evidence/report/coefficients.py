"""A picture of the effective coefficient of one method, over ratio and advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...core.coefficient import coefficients, entropy_at
from .picture import BLUE, GREY, ORANGE, dress, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

OLD_PROB = 0.1
RATIOS = (0.3, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0, 4.0)
# A response of ten tokens, one in the middle of each tenth of the entropies; these of them are shown.
ENTROPIES = tuple(entropy_at((i + 0.5) / 10) for i in range(10))
SHOWN = (0, 4, 8, 9)
ADVANTAGES = (1.0, -1.0)
HIGHEST = 4.0  # beyond ±4 curves and colours are cut off, or the interesting part would be flat
STYLES = ("-", "--", "-.", ":")
RATIO_LABEL = "ratio p / p_old, log scale"
C_LABEL = "c, in units of the advantage"


@dataclass(frozen=True)
class Level:
    """Shown tokens whose c is the same.

    Args:
        label: names their entropies; "" where there is only one level.
        place: where the first of them stands in `SHOWN`.
    """

    label: str
    place: int


def write_coefficients(name: str, objective: Any, out: Path | str) -> Path:
    """Draws c of one method into a PNG or SVG and returns its path.

    Raises:
        TokenPOError: an ending that is neither, a directory that does not exist, or a place that cannot be written.
    """
    return save(lambda: draw(name, objective), out)


def text(name: str, objective: Any) -> list[str]:
    """c at a few ratios for A = ±1 as lines for a terminal, one pair for each level of entropy."""
    rows = [(f"A = {a:+.0f}", label, *(f"{x:.3f}" for x in c)) for a, label, c in numbers(objective)]
    head = ("", "ratio", *(f"{r:g}" for r in RATIOS))
    width = max(len(row[1]) for row in (head, *rows))
    lines = [f"{row[0]:<8}{row[1]:<{width}}" + "".join(f"{x:>8}" for x in row[2:]) for row in (head, *rows)]
    return [f"effective coefficient c of {name}, p_old = {OLD_PROB:g}: grad L = -sum coefficient * c * grad lp", *lines]


def numbers(objective: Any) -> list[tuple[float, str, list[float]]]:
    """(A, level of entropy, c at each of `RATIOS`) for A = ±1, level by level; on a bound, c is that of its inside."""
    # Exactly on a bound rounding would decide, and differently from machine to machine.
    table = tables(objective, [1 + (r - 1) * (1 - 1e-9) for r in RATIOS], ADVANTAGES)
    return [
        (advantage, level.label, table[level.place, k].tolist())
        for level in levels(objective, table)
        for k, advantage in enumerate(ADVANTAGES)
    ]


def tables(objective: Any, ratio: Any, advantage: Any, places: Sequence[int] = range(len(SHOWN))) -> Tensor:
    """c [E, K, R] of the shown tokens of a response; [1, K, R] for a method that reads no entropy.

    What varies is the current policy's entropy where the method reads it (the old one's then stands at its median),
    else the old policy's. In a method of batch scope every token is a response of its own: tokens of one response would
    take each other's place among the few that such a method picks.
    """
    reads = [name for name in ("entropy", "old_entropy") if name in objective.needs]
    tokens = [SHOWN[place] for place in places]

    def table(entropy: Any) -> Tensor:
        inputs = {reads[0]: entropy} if reads else {}
        return coefficients(objective, ratio, advantage, old_prob=OLD_PROB, **inputs)

    if not reads:
        return table(None)[None]
    if _of_batch_scope(objective):
        return torch.stack([table(ENTROPIES[token]) for token in tokens])
    return table(ENTROPIES)[tokens]


def levels(objective: Any, table: Tensor) -> list[Level]:
    """The shown tokens of c [E, K, R], neighbours with equal tables joined."""
    runs: list[list[int]] = []
    for place in range(len(table)):
        if runs and torch.allclose(table[runs[-1][0]], table[place], rtol=1e-9, atol=1e-12):
            runs[-1].append(place)
        else:
            runs.append([place])
    if len(runs) == 1:
        return [Level("", 0)]
    symbol = "H" if "entropy" in objective.needs else "H_old"
    ends = [dict.fromkeys(f"{ENTROPIES[SHOWN[i]]:.2f}" for i in (run[0], run[-1])) for run in runs]
    return [Level(f"{symbol} {' to '.join(end)} nats", run[0]) for run, end in zip(runs, ends, strict=True)]


def draw(name: str, objective: Any) -> Figure:
    """Curves of c over the ratio at A = ±1, and c over ratio and advantage at the lowest and the highest entropy."""
    from matplotlib.figure import Figure

    # One look at the whole step per cell is what a method of batch scope costs.
    coarse = _of_batch_scope(objective)
    ratio = torch.logspace(-1, 1, 97 if coarse else 241, dtype=torch.float64)
    table = tables(objective, ratio, ADVANTAGES)
    every_level = levels(objective, table)
    outer_levels = _outer_levels(every_level)

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(outer_levels), width_ratios=[1.5, *[1.0] * len(outer_levels)])
    _curves(axes[0], ratio, table, every_level)
    dress(axes[0], "at A = +1 and A = −1", RATIO_LABEL, C_LABEL)
    _legend(axes[0])
    across = torch.logspace(-1, 1, 41 if coarse else 121, dtype=torch.float64)
    up = torch.linspace(-2, 2, 21 if coarse else 65, dtype=torch.float64)
    colours = _maps(axes[1:], objective, outer_levels, across, up)
    bar = figure.colorbar(colours, ax=list(axes[1:]), extend="both", aspect=30)
    bar.set_label(C_LABEL, fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    figure.suptitle(
        f"{name}: effective coefficient c of a token with p_old = {OLD_PROB:g}", fontsize=11, x=0.01, ha="left",
        weight="bold",
    )  # fmt: skip
    return figure


def _maps(panels: Sequence[Axes], objective: Any, outer_levels: list[Level], ratio: Tensor, advantage: Tensor) -> Any:
    """c over ratio and advantage, one map for each level; returns what the colour bar shows."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    planes = tables(objective, ratio, advantage, [level.place for level in outer_levels])
    limit = min(max(float(planes.abs().max()), 1.0), HIGHEST)
    # Orange below 0 and blue above, as in the report: told apart by every kind of colour vision.
    scale = LinearSegmentedColormap.from_list("tokenpo", ["#6b2400", ORANGE, "#f4f4f2", BLUE, "#052c4a"])
    norm = Normalize(-limit, limit)
    for axes, level, plane in zip(panels, outer_levels, planes, strict=True):
        grid = (x.numpy() for x in (ratio, advantage, plane))
        axes.pcolormesh(*grid, cmap=scale, norm=norm, shading="nearest", rasterized=True)
        _log_axis(axes)
        dress(axes, level.label or "over ratio and advantage", RATIO_LABEL, "advantage A")
    return ScalarMappable(norm, scale)


def _curves(axes: Axes, ratio: Tensor, table: Tensor, drawn_levels: list[Level]) -> None:
    """c [E, K, R] over the ratio, A = +1 in blue and −1 in orange, one style of line for each level."""
    axes.axhline(0, color=GREY, lw=0.6)
    axes.axvline(1, color=GREY, lw=0.6)
    for style, level in zip(STYLES, drawn_levels, strict=False):
        for k, (colour, sign) in enumerate(((BLUE, "+1"), (ORANGE, "−1"))):
            label = f"A = {sign}{', ' + level.label if level.label else ''}"
            axes.plot(ratio.numpy(), table[level.place, k].numpy(), color=colour, ls=style, lw=1.5, label=label)
    _log_axis(axes)
    axes.set_ylim(-HIGHEST, HIGHEST)


def _legend(axes: Axes) -> None:
    """Every level once, and the other colour once: eight entries would cover the curves."""
    lines, labels = axes.get_legend_handles_labels()
    up = [(line, label) for line, label in zip(lines, labels, strict=True) if label.startswith("A = +1")]
    down = next((line, label) for line, label in zip(lines, labels, strict=True) if label.startswith("A = −1"))
    order = [line for line, _ in (*up, down)]
    texts = [*(label for _, label in up), down[1] if len(up) == 1 else "A = −1, lines alike"]
    axes.legend(order, texts, frameon=False, fontsize=7.5, loc="upper right")


def _log_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.1, 10)
    axes.set_xticks([0.1, 0.3, 1, 3, 10], labels=["0.1", "0.3", "1", "3", "10"])
    axes.minorticks_off()


def _outer_levels(every_level: list[Level]) -> list[Level]:
    """The levels of the lowest and of the highest entropy, or the only one."""
    return every_level if len(every_level) == 1 else [every_level[0], every_level[-1]]


def _of_batch_scope(objective: Any) -> bool:
    return getattr(objective, "scope", "row") == "batch"
