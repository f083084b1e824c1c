"""README's picture of a run: how accuracy, length and entropy moved, and a response before and after.

python tools/site/run_picture.py RUN docs/quickstart.svg
"""

import argparse
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tokenpo.base.errors import TokenPOError
from tokenpo.base.files import whole
from tokenpo.records.run import Rollout, Run, read_run, read_trace

BLUE, GREEN, GREY, PURPLE = "#2f86c9", "#1a8a66", "#808890", "#8a63d2"  # each is seen on white and on black
INK = "#010203"  # becomes the reader's colour of text: dark by day, light by night
SCHEME = "<style>svg{color:#16181a}@media(prefers-color-scheme:dark){svg{color:#d6d9de}}</style>"
PLACES = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")


def write_picture(directory: Path, out: Path) -> Path:
    """Draws the run into an SVG on the page's own ground: the same run, the same bytes."""
    run, drawn = read_run(directory), StringIO()
    settings = {"svg.hashsalt": "tokenpo", **dict.fromkeys(PLACES, INK)}
    with style.context("default"), matplotlib.rc_context(settings):
        # The day and the hour stay out of the file.
        draw(run, examples(run.path)).savefig(
            drawn, transparent=True, metadata={"Date": None, "Creator": None}, format="svg"
        )
    text = drawn.getvalue().replace(INK, "currentColor").replace(" <defs>", f" {SCHEME}\n <defs>", 1)
    with whole(out) as part:
        part.write_text(text, encoding="utf-8")
    return out


def examples(run: Path) -> tuple[Rollout, Rollout]:
    """The first response of the first traced step, and the first right one of the last.

    Raises:
        TokenPOError: nothing was traced.
    """
    trace = read_trace(run)
    if trace is None or not trace.index:
        raise TokenPOError(f"{run} holds no traced response: train with output.trace_every > 0")
    first, last = trace.index[0][0], trace.index[-1][0]
    before = [trace.load(offset) for step, offset in trace.index if step == first]
    after = [trace.load(offset) for step, offset in trace.index if step == last]
    return before[0], next((rollout for rollout in after if rollout.correct), after[0])


def draw(run: Run, pair: Sequence[Rollout]) -> Figure:
    """Three curves above, the tokens of each response below, coloured by the entropy of their position."""
    figure = Figure(figsize=(7.6, 4.8), layout="constrained")
    grid = figure.add_gridspec(2 + len(pair) - 1, 3, height_ratios=[3.2, *[1.0] * len(pair)])
    _accuracy(figure.add_subplot(grid[0, 0]), run)
    _curve(figure.add_subplot(grid[0, 1]), run, "length", "response length, tokens")
    _entropy(figure.add_subplot(grid[0, 2]), run)
    entropies = [x for rollout in pair for x in _terms(rollout, "entropy")]
    top = max((x for x in entropies if x is not None), default=1.0) or 1.0
    width = max(len(rollout.tokens) for rollout in pair)
    for row, rollout in enumerate(pair, start=1):
        _tokens(figure.add_subplot(grid[row, :]), rollout, top, width)
    figure.suptitle(_title(run.config), fontsize=10, x=0.01, ha="left", weight="bold")
    return figure


def _accuracy(axes: Axes, run: Run) -> None:
    _curve(axes, run, "accuracy", "accuracy", label="training, sampled")
    steps, values = _points(run, "eval/accuracy")
    low, high = (_points(run, name)[1] for name in ("eval/low", "eval/high"))
    if len(low) == len(high) == len(values):
        error = [[v - a for v, a in zip(values, low, strict=True)], [b - v for v, b in zip(values, high, strict=True)]]
        axes.errorbar(steps, values, error, color=GREEN, fmt="o", ms=4, capsize=3, label="held-out, greedy, 95 %")
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _entropy(axes: Axes, run: Run) -> None:
    steps, low = _points(run, "entropy_q10")
    _, high = _points(run, "entropy_q90")
    if len(low) == len(high):
        axes.fill_between(steps, low, high, color=BLUE, alpha=0.15, lw=0, label="10 % to 90 % of tokens")
    _curve(axes, run, "entropy", "entropy, nats a token", label="mean")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _curve(axes: Axes, run: Run, name: str, title: str, label: str | None = None) -> None:
    steps, values = _points(run, name)
    axes.plot(steps, values, color=BLUE, lw=1.6, label=label)
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.set_xlabel("step", fontsize=9)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(bottom=0)


def _tokens(axes: Axes, rollout: Rollout, top: float, width: int) -> None:
    """One box a token, more purple with more entropy. Most entropies are small, and a root tells them from none."""
    for place, (token, entropy) in enumerate(zip(rollout.tokens, _terms(rollout, "entropy"), strict=True)):
        share = 0.0 if entropy is None else min(1.0, entropy / top) ** 0.5
        axes.add_patch(Rectangle((place, 0), 1, 1, facecolor=(PURPLE, 0.9 * share), edgecolor=GREY, lw=0.5))
        text = "end" if token.startswith("<|") else token
        size = 8 if len(text) < 3 else 6
        axes.text(place + 0.5, 0.48, text, ha="center", va="center", fontsize=size, family="monospace")
    outcome = "right" if rollout.correct else "wrong"
    axes.set_title(
        f"step {rollout.step}: {rollout.prompt} answered {outcome}; purple: much entropy (root scale, {top:.2f} nats)",
        fontsize=8.5,
        loc="left",
        color=GREY,
        parse_math=False,
    )
    # Room for the borders of the outermost boxes.
    axes.set_xlim(-0.1, width + 0.3)
    axes.set_ylim(-0.05, 1.05)
    axes.axis("off")


def _points(run: Run, name: str) -> tuple[list[float], list[float]]:
    series = [(step, value) for step, value in run.series(name) if value is not None]
    return [step for step, _ in series], [value for _, value in series]


def _terms(rollout: Rollout, name: str) -> Sequence[float | None]:
    return rollout.terms.get(name) or (None,) * len(rollout.tokens)


def _title(config: Mapping[str, Any]) -> str:
    method, task = config.get("method", {}).get("name", "?"), config.get("task", {}).get("name", "?")
    return f"{method} on {task}, seed {config.get('seed', '?')}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    print(write_picture(options.run, options.out))
